"""What expressions read, and whether they differ from lane to lane."""

from __future__ import annotations

from opweld.tensor.dim import Axis, Dim, Value, atoms_of
from opweld.tensor.expr import Binary, Expr, Load, dims_of, free_atoms, walk


class Dependence:
    """Answers about expressions of one function; `lane` is the index within a vector register.

    `varying` are the registers that hold different values in different lanes; `registers` are all of them."""

    def __init__(self, lane: Axis) -> None:
        self.lane = lane
        self.varying: set[str] = set()
        self._reads: dict[Expr, frozenset[str]] = {}
        self._touched: dict[Expr, frozenset[Expr]] = {}

    def reads(self, root: Expr) -> frozenset[str]:
        """Names of the buffers and registers that the expression loads, run-time indices included."""
        found = self._reads.get(root)
        if found is None:
            self._visit(root)
            found = self._reads[root]
        return found

    def touches(self, root: Expr) -> bool:
        """Whether evaluating it where it should not be may fail: it loads memory or divides integers."""
        return bool(self.touched(root))

    def touched(self, root: Expr) -> frozenset[Expr]:
        """The nodes for which `touches` holds: loads, integer divisions, and what uses run-time indices."""
        if root not in self._touched:
            self._visit(root)
        return self._touched[root]

    def varies(self, root: Expr) -> bool:
        """Whether lanes may differ."""
        return self.lane in free_atoms(root) or bool(self.varying and self.reads(root) & self.varying)

    def dim_varies(self, dim: Dim) -> bool:
        """Whether an index may differ from lane to lane."""
        atoms = atoms_of(dim)
        return self.lane in atoms or any(isinstance(atom, Value) and self.varies(atom.expr) for atom in atoms)

    def dim_reads(self, dim: Dim) -> frozenset[str]:
        """Names of what the run-time indices of a polynomial load."""
        found: frozenset[str] = frozenset()
        for atom in atoms_of(dim):
            if isinstance(atom, Value):
                found |= self.reads(atom.expr)
        return found

    def lane_stride(self, dim: Dim) -> Dim | None:
        """c of `c * lane + rest` where neither varies; None when the index is not of that form."""
        stride = dim.coefficient(self.lane)
        if stride is None or self.dim_varies(stride) or self.dim_varies(dim.without(self.lane)):
            return None
        return stride

    def _visit(self, root: Expr) -> None:
        for node in walk(root):
            if node in self._reads:
                continue
            reads: frozenset[str] = frozenset()
            touched: frozenset[Expr] = frozenset()
            touches = False
            for operand in node.operands:
                reads |= self._reads[operand]
                touched |= self._touched[operand]
            for dim in dims_of(node):
                reads |= self.dim_reads(dim)
                touches = touches or any(isinstance(atom, Value) for atom in atoms_of(dim))
            if isinstance(node, Load):
                reads |= {node.tensor}
                touches = touches or bool(node.indices)
            elif isinstance(node, Binary) and node.op in ("div", "mod", "fmod"):
                touches = touches or node.dtype.is_integer
            self._reads[node] = reads
            self._touched[node] = touched | {node} if touches else touched
