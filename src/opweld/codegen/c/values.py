"""Expressions as vector values: each node is computed once a block, and only where it may be.

`Values.vector` gives the C text of an expression, one vector register wide, and writes the definitions it needs.
A sum of products stays one C expression, so that compilers contract it to a fused multiply-add; everything else that is
used twice, or is a call, gets a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opweld.codegen.c.active import ALL, Active
from opweld.codegen.c.dependence import Dependence
from opweld.codegen.c.indices import Indices
from opweld.codegen.c.integers import Integers
from opweld.codegen.c.loads import Loads
from opweld.codegen.c.memory import Addresses, Memory
from opweld.codegen.c.operations import binary_text, cast_text, unary_text
from opweld.codegen.c.operators import (
    COMPARE,
    INFIX,
    register,
    scalar_literal,
    vector_literal,
    vector_type,
)
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.vector import Assign, Define, Do, If, VectorStatement
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Const, Expr, Index, Load, Select, Unary, walk

_LONGEST_INLINE = 100
_SCALAR_INFIX = {**{op: INFIX[op] for op in ("add", "sub", "mul")}, **COMPARE}


class Values:
    """Writes the values of one function."""

    def __init__(self, scopes: Scopes, lane: Axis, memories: Mapping[str, Memory]) -> None:
        self.lane = lane
        self.dependence = Dependence(lane)
        self.indices = Indices(self, scopes)
        self.integers = Integers(scopes, self.indices.run_time, self.dependence.dim_reads)
        self.addresses = Addresses(scopes, self.integers, self.dependence)
        self.loads = Loads(self, scopes, memories)
        self._scopes = scopes
        self._memories = memories

    def vector(self, root: Expr, active: Active = ALL) -> str:
        """The expression as C text fit to be an operand."""
        order, uses, branches = self._eager(root, active)
        texts: dict[Expr, str] = {}
        for node in order:
            key = self._key(node, active)
            found = self._scopes.find(key)
            if found is None:
                text, inline = self._node(node, texts, active, node in branches)
                if inline and (isinstance(node, Const) or node is root or uses[node] == 1):
                    short = len(text) <= _LONGEST_INLINE or node is root
                    if short or (isinstance(node, Binary) and node.op == "mul"):
                        bare = isinstance(node, Const) or text.isidentifier()
                        texts[node] = text if bare else f"({text})"
                        continue
                found = text if inline is None or text.isidentifier() else self._name(node, key, text)
            texts[node] = found
        return texts[root]

    def named(self, root: Expr, active: Active = ALL) -> str:
        """The name of a variable that holds the expression."""
        text = self.vector(root, active)
        return text if text.isidentifier() else self._name(root, self._key(root, active), text)

    def scalar(self, node: Expr) -> str:
        """An expression that is the same in every lane, as C text of one element fit to be an operand."""
        if isinstance(node, Const):
            return scalar_literal(node.value, node.dtype)
        if isinstance(node, Index):
            return self.integers.operand(node.dim)
        if isinstance(node, Load) and node.indices and not node.guards and register(node.dtype) is node.dtype:
            pointer, position = self.addresses.element(self._memories[node.tensor], node.indices[0])
            return f"(({pointer})[{position}] != 0)" if node.dtype is DType.BOOL else f"{pointer}[{position}]"
        if isinstance(node, Binary) and node.x.dtype in (DType.I32, DType.I64) and node.op in _SCALAR_INFIX:
            return f"({self.scalar(node.x)} {_SCALAR_INFIX[node.op]} {self.scalar(node.y)})"
        if isinstance(node, Binary) and node.dtype is DType.BOOL and node.op in ("and", "or"):
            touches = self.dependence.touches(node.y)
            if not touches:
                return f"({self.scalar(node.x)} {'&&' if node.op == 'and' else '||'} {self.scalar(node.y)})"
        if isinstance(node, Unary) and node.op == "not":
            return f"!{self.scalar(node.x)}"
        if isinstance(node, Select) and node.dtype in (DType.I32, DType.I64) and not self._risky(node, ALL):
            return f"({self.scalar(node.condition)} ? {self.scalar(node.x)} : {self.scalar(node.y)})"
        if isinstance(node, Cast) and node.dtype is DType.I64 and node.x.dtype.is_integer:
            return f"(int64_t){self.scalar(node.x)}"
        return f"{self.named(node)}[0]"

    def lanes_mask(self, active: Active) -> str | None:
        """The mask of the lanes that exist; None for all."""
        if active.mask is not None or active.count is None:
            return active.mask
        key = ("first", active.count)
        found = self._scopes.find(key)
        if found is not None:
            return found
        return self._scopes.define(key, "const vi32", self._scopes.numbered("m"), f"opw_first_lanes({active.count})")

    def restrict(self, active: Active, guards: tuple[Dim, ...]) -> Active:
        """The lanes for which, in addition, no guard is negative."""
        if not guards:
            return active
        masks = [f"opw_inside({self.indices.vector(guard, active)})" for guard in guards]
        lanes = self.lanes_mask(active)
        return Active(mask=self._mask(" & ".join(masks if lanes is None else (*masks, lanes))))

    def blend(self, mask: str, dtype: DType, x: str, y: str) -> str:
        """Per lane, `x` where the mask is set, else `y`."""
        return f"opw_select_{register(dtype).short}({mask}, {x}, {y})"

    # ---- which nodes, in which order ---------------------------------------------------------------------------------

    def _key(self, node: Expr, active: Active) -> tuple[Expr, Active]:
        if not self.dependence.touches(node):
            return node, ALL
        return node, active if active.mask is not None or self.dependence.varies(node) else ALL

    def _lazy(self, node: Expr, active: Active) -> tuple[Expr, ...]:
        """Operands that are evaluated inside a branch or under a mask, by the node itself."""
        if isinstance(node, Select):
            if self._risky(node, active):
                constant = not self.dependence.varies(node.condition)
                return (node.condition, node.x, node.y) if constant else (node.x, node.y)
        elif isinstance(node, Load) and node.fill is not None:
            return (node.fill,)
        return ()

    def _risky(self, node: Select, active: Active) -> bool:
        """Whether a side loads something that is not loaded anyway, for the condition or before."""
        risks = self.dependence.touched(node.x) | self.dependence.touched(node.y)
        if risks and not any(isinstance(inner, Select) for inner in walk(node.condition)):
            risks -= self.dependence.touched(node.condition)
        return any(self._scopes.find(self._key(risk, active)) is None for risk in risks)

    def _eager(self, root: Expr, active: Active) -> tuple[list[Expr], dict[Expr, int], set[Expr]]:
        """Nodes to compute, operands first; how often each is used; the selections that are branches."""
        order: list[Expr] = []
        uses: dict[Expr, int] = {root: 1}
        stack: list[tuple[Expr, bool]] = [(root, False)]
        seen: set[Expr] = set()
        branches: set[Expr] = set()
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                continue
            if node in seen:
                continue
            seen.add(node)
            stack.append((node, True))
            if self._scopes.find(self._key(node, active)) is not None:
                continue
            lazy = self._lazy(node, active)
            if lazy and isinstance(node, Select):
                branches.add(node)
            for operand in reversed(node.operands):
                if operand in lazy:
                    continue
                uses[operand] = uses.get(operand, 0) + 1
                stack.append((operand, False))
        return order, uses, branches

    def _name(self, node: Expr, key: tuple[Expr, Active], text: str) -> str:
        if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
            text = text[1:-1]
        name = self._scopes.numbered("t")
        self._scopes.define(key, f"const {vector_type(node.dtype)}", name, text, self.dependence.reads(node))
        return name

    # ---- one node ----------------------------------------------------------------------------------------------------

    def _node(self, node: Expr, texts: Mapping[Expr, str], active: Active, branch: bool) -> tuple[str, bool | None]:
        """(text, whether it may stand inside another expression; None when the text is a name already)."""
        if isinstance(node, Const):
            return vector_literal(node.value, node.dtype), True
        if isinstance(node, Index):
            return self.indices.vector(node.dim, active), False
        if isinstance(node, Load):
            return (node.tensor, None) if not node.indices else (self.loads.text(node, active), False)
        if isinstance(node, Unary):
            return unary_text(node, texts[node.x])
        if isinstance(node, Binary):
            if node.dtype.is_integer and node.op in ("div", "mod", "fmod"):
                self._check_divisor(node.y, texts[node.y], active)
            return binary_text(node, texts[node.x], texts[node.y])
        if isinstance(node, Cast):
            return cast_text(node, texts[node.x])
        if isinstance(node, Select):
            if branch:
                return self._branch(node, texts, active), None
            return self.blend(texts[node.condition], node.dtype, texts[node.x], texts[node.y]), False
        raise TypeError(f"a kernel cannot hold {type(node).__name__} expressions: {node!r}")

    def _check_divisor(self, divisor: Expr, text: str, active: Active) -> None:
        if isinstance(divisor, Const) and divisor.value != 0:
            return
        zero = vector_literal(0, divisor.dtype)
        self.fail_where(f"opw_eq_{divisor.dtype.short}({text}, {zero})", active, "OPW_DIVISION_BY_ZERO")

    def fail_where(self, mask: str, active: Active, code: str) -> None:
        """Ends the kernel with an error when the mask is set for a lane that exists."""
        lanes = self.lanes_mask(active)
        condition = f"opw_any({mask})" if lanes is None else f"opw_any({mask} & {lanes})"
        self.fail_if(condition, code)

    def fail_if(self, condition: str, code: str) -> None:
        """Ends the kernel with an error when the condition holds."""
        self._scopes.add(If(condition, (Assign("*error", code), Do("return"))))

    # ---- branches ----------------------------------------------------------------------------------------------------

    def _branch(self, node: Select, texts: Mapping[Expr, str], active: Active) -> str:
        """Evaluates only the chosen side; where lanes choose differently, each side for its lanes only."""
        if not self.dependence.varies(node.condition):
            if active.mask is not None and self.dependence.touches(node.condition):
                condition = f"{self.vector(node.condition, active)}[0]"
            else:
                condition = self.scalar(node.condition)
            return self.either(
                node, active, condition, lambda: self.vector(node.x, active), lambda: self.vector(node.y, active)
            )
        lanes = self.lanes_mask(active)
        condition = self.named(node.condition, active)
        chosen, other = condition, f"~{condition}"
        if lanes is not None:
            chosen, other = f"{condition} & {lanes}", f"{other} & {lanes}"
        x = self.vector(node.x, self._under(node.x, chosen, active))
        y = self.vector(node.y, self._under(node.y, other, active))
        return self._name(node, self._key(node, active), self.blend(condition, node.dtype, x, y))

    def _under(self, node: Expr, mask: str, active: Active) -> Active:
        if not self.dependence.touches(node):
            return active
        return Active(mask=self._mask(mask))

    def _mask(self, text: str) -> str:
        """A name for a mask."""
        if text.isidentifier():
            return text
        key = ("mask", text)
        found = self._scopes.find(key)
        return found or self._scopes.define(key, "const vi32", self._scopes.numbered("m"), text)

    def either(
        self, node: Expr, active: Active, condition: str, then: Callable[[], str], otherwise: Callable[[], str]
    ) -> str:
        """A variable assigned in the two blocks of a branch."""
        name = self._scopes.numbered("t")
        self._scopes.add(Define(vector_type(node.dtype), name))
        blocks: list[tuple[VectorStatement, ...]] = []
        for side in (then, otherwise):
            self._scopes.open()
            text = side()
            self._scopes.add(Assign(name, text))
            blocks.append(self._scopes.close())
        self._scopes.add(If(condition, blocks[0], blocks[1]))
        self._scopes.remember(self._key(node, active), name, self.dependence.reads(node))
        return name


def plain(text: str) -> str:
    """The text without a pair of parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
