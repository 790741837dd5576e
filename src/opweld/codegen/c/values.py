"""Expressions as vector values: each node is computed once a block, and only where it may be.

`Values.vector` gives the C text of an expression, one vector register wide, and writes the definitions it needs.
A sum of products stays one C expression, so that compilers contract it to a fused multiply-add; everything else that is
used twice, or is a call, gets a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opweld.codegen.c.dependence import Dependence
from opweld.codegen.c.integers import Integers
from opweld.codegen.c.memory import Addresses, Memory
from opweld.codegen.c.operators import (
    COMPARE,
    INFIX,
    LOGIC,
    register,
    scalar_literal,
    vector_literal,
    vector_type,
)
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.vector import Assign, Define, Do, If, VectorStatement
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, FloorDiv, Max, Min, Mod, Value, as_dim, nonnegative
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Const, Expr, Index, Load, Select, Unary, cast

_LONGEST_INLINE = 100
_SCALAR_OPERANDS = (DType.F32, DType.F64, DType.I32, DType.I64)
_SCALAR_INFIX = {**{op: INFIX[op] for op in ("add", "sub", "mul")}, **COMPARE}


@dataclass(frozen=True)
class Active:
    """Which lanes exist: all, the first `count`, or those of a mask (a name)."""

    count: str | None = None
    mask: str | None = None


ALL = Active()


def _has_reciprocal(value: float) -> bool:
    """Whether division by the constant can be a multiplication with a correction."""
    return 2.0**-60 < abs(value) < 2.0**60


class Values:
    """Writes the values of one function."""

    def __init__(self, scopes: Scopes, lane: Axis, memories: Mapping[str, Memory]) -> None:
        self.dependence = Dependence(lane)
        self.integers = Integers(scopes, self._run_time_index, self.dependence.dim_reads)
        self.addresses = Addresses(scopes, self.integers, self.dependence)
        self._scopes = scopes
        self._lane = lane
        self._lanes = int(lane.extent)
        self._memories = memories

    def vector(self, root: Expr, active: Active = ALL) -> str:
        """The expression as C text fit to be an operand."""
        order, uses = self._eager(root, active)
        texts: dict[Expr, str] = {}
        for node in order:
            key = self._key(node, active)
            found = self._scopes.find(key)
            if found is None:
                text, inline = self._node(node, texts, active)
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
        masks = [f"opw_inside({self.integer_vector(guard, active)})" for guard in guards]
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

    def _lazy(self, node: Expr) -> tuple[Expr, ...]:
        """Operands that are evaluated inside a branch or under a mask, by the node itself."""
        if isinstance(node, Select):
            if self.dependence.touches(node.x) or self.dependence.touches(node.y):
                constant = not self.dependence.varies(node.condition)
                return (node.condition, node.x, node.y) if constant else (node.x, node.y)
        elif isinstance(node, Load) and node.fill is not None:
            return (node.fill,)
        return ()

    def _eager(self, root: Expr, active: Active) -> tuple[list[Expr], dict[Expr, int]]:
        """Nodes to compute, operands first, and how often each is used."""
        order: list[Expr] = []
        uses: dict[Expr, int] = {root: 1}
        stack: list[tuple[Expr, bool]] = [(root, False)]
        seen: set[Expr] = set()
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
            lazy = self._lazy(node)
            for operand in reversed(node.operands):
                if operand in lazy:
                    continue
                uses[operand] = uses.get(operand, 0) + 1
                stack.append((operand, False))
        return order, uses

    def _name(self, node: Expr, key: tuple[Expr, Active], text: str) -> str:
        if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
            text = text[1:-1]
        name = self._scopes.numbered("t")
        self._scopes.define(key, f"const {vector_type(node.dtype)}", name, text, self.dependence.reads(node))
        return name

    # ---- one node ----------------------------------------------------------------------------------------------------

    def _node(self, node: Expr, texts: Mapping[Expr, str], active: Active) -> tuple[str, bool | None]:
        """(text, whether it may stand inside another expression; None when the text is a name already)."""
        if isinstance(node, Const):
            return vector_literal(node.value, node.dtype), True
        if isinstance(node, Index):
            return self.integer_vector(node.dim, active), False
        if isinstance(node, Load):
            return (node.tensor, None) if not node.indices else (self._load(node, active), False)
        if isinstance(node, Unary):
            return self._unary(node, texts[node.x])
        if isinstance(node, Binary):
            return self._binary(node, texts, active)
        if isinstance(node, Cast):
            return self._cast(node, texts[node.x])
        if isinstance(node, Select):
            if self._lazy(node):
                return self._branch(node, texts, active), None
            return self.blend(texts[node.condition], node.dtype, texts[node.x], texts[node.y]), False
        raise TypeError(f"a kernel cannot hold {type(node).__name__} expressions: {node!r}")

    def _unary(self, node: Unary, x: str) -> tuple[str, bool]:
        if node.op == "neg":
            return f"-{x}", True
        if node.op in ("not", "bitnot"):
            return f"~{x}", True
        text = f"opw_{node.op}_{register(node.x.dtype).short}({x})"
        return self._round(node.dtype, text), False

    def _binary(self, node: Binary, texts: Mapping[Expr, str], active: Active) -> tuple[str, bool]:
        x, y = texts[node.x], texts[node.y]
        dtype = node.x.dtype
        if dtype is DType.BOOL:
            return LOGIC[node.op].format(x=x, y=y), True
        if node.op in COMPARE:
            return f"opw_{node.op}_{register(dtype).short}({x}, {y})", False
        if node.op == "div" and dtype is DType.F32 and isinstance(node.y, Const) and _has_reciprocal(node.y.value):
            divisor, inverse = scalar_literal(node.y.value, dtype), scalar_literal(1.0 / node.y.value, dtype)
            return f"opw_div_by_f32({x}, {divisor}, {inverse})", False
        if node.op in ("min", "max") and isinstance(node.y, Const):
            x, y = y, x  # that a constant first is no NaN saves a selection
        if node.op in INFIX and (dtype.is_float or node.op != "div"):
            left, right = self._operand(node.x, x, node.y), self._operand(node.y, y, node.x)
            text = f"{left} {INFIX[node.op]} {right}"
            rounded = self._round(node.dtype, text)
            return rounded, rounded is text
        if dtype.is_integer and node.op in ("div", "mod", "fmod"):
            self._check_divisor(node.y, y, active)
        return self._round(node.dtype, f"opw_{node.op}_{register(dtype).short}({x}, {y})"), False

    @staticmethod
    def _operand(node: Expr, text: str, other: Expr) -> str:
        """A constant beside a vector may be a plain number: C makes a vector of it."""
        if isinstance(node, Const) and not isinstance(other, Const) and node.dtype in _SCALAR_OPERANDS:
            number = scalar_literal(node.value, node.dtype)
            return f"({number})" if number.startswith("-") else number
        return text

    @staticmethod
    def _round(dtype: DType, text: str) -> str:
        return f"opw_round_{dtype.short}({text})" if dtype in (DType.F16, DType.BF16) else text

    def _cast(self, node: Cast, x: str) -> tuple[str, bool | None]:
        source, target = node.x.dtype, node.dtype
        if target is DType.BOOL:
            return f"opw_convert_{register(source).short}_b8({x})", False
        if register(source) is register(target):
            return (x, None) if target is DType.F32 and x.isidentifier() else (self._round(target, x), False)
        return self._round(target, f"opw_convert_{register(source).short}_{register(target).short}({x})"), False

    def _check_divisor(self, divisor: Expr, text: str, active: Active) -> None:
        if isinstance(divisor, Const) and divisor.value != 0:
            return
        zero = vector_literal(0, divisor.dtype)
        self._fail_where(f"opw_eq_{divisor.dtype.short}({text}, {zero})", active, "OPW_DIVISION_BY_ZERO")

    def _fail_where(self, mask: str, active: Active, code: str) -> None:
        lanes = self.lanes_mask(active)
        condition = f"opw_any({mask})" if lanes is None else f"opw_any({mask} & {lanes})"
        self._fail_if(condition, code)

    def _fail_if(self, condition: str, code: str) -> None:
        self._scopes.add(If(condition, (Assign("*error", code), Do("return"))))

    # ---- branches ----------------------------------------------------------------------------------------------------

    def _branch(self, node: Select, texts: Mapping[Expr, str], active: Active) -> str:
        """Evaluates only the chosen side; where lanes choose differently, each side for its lanes only."""
        if not self.dependence.varies(node.condition):
            if active.mask is not None and self.dependence.touches(node.condition):
                condition = f"{self.vector(node.condition, active)}[0]"
            else:
                condition = self.scalar(node.condition)
            return self._either(
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

    def _either(
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

    # ---- loads -------------------------------------------------------------------------------------------------------

    def _load(self, node: Load, active: Active) -> str:
        memory = self._memories[node.tensor]
        offset = node.indices[0]
        assert node.dtype is memory.dtype, f"{node!r} loads {node.dtype} from a buffer of {memory.dtype}"
        uniform = tuple(guard for guard in node.guards if not self.dependence.dim_varies(guard))
        varying = tuple(guard for guard in node.guards if self.dependence.dim_varies(guard))
        if not uniform:
            return self._load_where(node, memory, varying, active)
        fill = node.fill
        assert fill is not None
        simple = not varying and not self.dependence.dim_reads(offset) and active.mask is None
        stride = self.dependence.lane_stride(offset)
        if simple and stride in (ZERO, ONE) and isinstance(fill, Const) and not self.dependence.touches(fill):
            if fill.value == 0:
                span = 1 if stride is ZERO else self._lanes
                found = self.addresses.guarded(memory, offset.without(self._lane), uniform, span)
                if found is not None:
                    return self._read(memory, found[0], found[1], stride is ONE, active)
            condition, _ = self.addresses.condition(uniform)
            pointer, position = self.addresses.element(memory, offset.without(self._lane))
            text = self._read(memory, pointer, position, stride is ONE, active)
            return f"{condition} ? {text} : {vector_literal(fill.value, fill.dtype)}"
        condition = " && ".join(self.integers.positive(guard) for guard in uniform)
        return self._either(
            node,
            active,
            condition,
            lambda: self._load_where(node, memory, varying, active),
            lambda: self.vector(fill, active),
        )

    def _load_where(self, node: Load, memory: Memory, guards: tuple[Dim, ...], active: Active) -> str:
        """A load whose remaining guards differ from lane to lane."""
        if not guards:
            return self._load_lanes(memory, node.indices[0], active)
        inside = self.restrict(active, guards)
        mask = self.lanes_mask(inside)
        assert mask is not None
        loaded = self._load_lanes(memory, node.indices[0], inside)
        fill = node.fill
        if fill is None or (isinstance(fill, Const) and fill.value == 0):
            return loaded
        return self.blend(mask, node.dtype, loaded, self.vector(fill, active))

    def _load_lanes(self, memory: Memory, offset: Dim, active: Active) -> str:
        stride = self.dependence.lane_stride(offset)
        kind = memory.dtype.short
        if stride is None:
            offsets = self.integer_vector(offset, active)
            if active.mask is not None:
                return f"opw_gather_masked_{kind}({memory.name}, {offsets}, {active.mask})"
            if active.count is not None:
                return f"opw_gather_partial_{kind}({memory.name}, {offsets}, {active.count})"
            return f"opw_gather_{kind}({memory.name}, {offsets})"
        if stride is ZERO and active.mask is not None:
            # An index that is checked or a load that is made although no lane wants it would be an error.
            zero = vector_literal(0, memory.dtype)
            name = self._scopes.numbered("t")
            self._scopes.add(Define(vector_type(memory.dtype), name, zero))
            self._scopes.open()
            pointer, position = self.addresses.element(memory, offset)
            self._scopes.add(Assign(name, self._read(memory, pointer, position, False, ALL)))
            self._scopes.add(If(f"opw_any({active.mask})", self._scopes.close()))
            return name
        pointer, position = self.addresses.element(memory, offset.without(self._lane))
        if stride is ZERO or stride is ONE:
            return self._read(memory, pointer, position, stride is ONE, active)
        place = pointer if position == "0" else f"{pointer} + {position}"
        step = self.integers.operand(stride)
        if active.mask is not None:
            return f"opw_load_strided_masked_{kind}({place}, {step}, {active.mask})"
        if active.count is not None:
            return f"opw_load_strided_partial_{kind}({place}, {step}, {active.count})"
        return f"opw_load_strided_{kind}({place}, {step})"

    def _read(self, memory: Memory, pointer: str, position: str, contiguous: bool, active: Active) -> str:
        kind = memory.dtype.short
        if not contiguous:
            return f"opw_splat_{kind}({pointer}[{position}])"
        place = pointer if position == "0" else f"{pointer} + {position}"
        if active.mask is not None:
            return f"opw_load_masked_{kind}({place}, {active.mask})"
        if active.count is not None:
            return f"opw_load_partial_{kind}({place}, {active.count})"
        return f"opw_load_{kind}({place})"

    # ---- integers ----------------------------------------------------------------------------------------------------

    def _run_time_index(self, atom: Value) -> str:
        """A run-time index that is the same in every lane, checked."""
        key = ("index", atom)
        found = self._scopes.find(key)
        if found is not None:
            return found
        text = self.scalar(cast(atom.expr, DType.I64))
        name = self._scopes.numbered("j")
        self._scopes.define(key, "const int64_t", name, text, self.dependence.reads(atom.expr))
        extent = self.integers.operand(atom.extent)
        self._fail_if(f"(uint64_t){name} >= (uint64_t){extent}", "OPW_BAD_INDEX")
        return name

    def integer_vector(self, dim: Dim, active: Active) -> str:
        """A polynomial as a vector of int64; run-time indices in it are checked."""
        if not self.dependence.dim_varies(dim) and (active.mask is None or not self.dependence.dim_reads(dim)):
            return f"opw_splat_i64({self.integers.text(dim)})"
        key = ("vector", dim, active)
        found = self._scopes.find(key)
        if found is not None:
            return found
        uniform, parts = ZERO, list[str]()
        for monomial, coefficient in dim.terms:
            factor = as_dim(coefficient)
            vectors: list[str] = []
            for atom in monomial:
                checked = active.mask is not None and self.dependence.dim_reads(atom.dim)
                if checked or self.dependence.dim_varies(atom.dim):
                    vectors.append(self._atom_vector(atom, active))
                else:
                    factor = factor * atom.dim
            if not vectors:
                uniform = uniform + factor
            else:
                scale = [] if factor is ONE else [self.integers.operand(factor)]
                parts.append(" * ".join((*vectors, *scale)))
        if uniform is not ZERO:
            parts.append(self.integers.operand(uniform))
        if len(parts) == 1 and parts[0].isidentifier():
            return parts[0]
        name = self._scopes.numbered("o")
        return self._scopes.define(key, "const vi64", name, " + ".join(parts), self.dependence.dim_reads(dim))

    def _atom_vector(self, atom: Atom, active: Active) -> str:
        if atom is self._lane:
            return "opw_lane_i64()"
        key = ("atom", atom, active)
        found = self._scopes.find(key)
        if found is not None:
            return found
        reads = self.dependence.dim_reads(atom.dim)
        name = self._scopes.numbered("o")
        if isinstance(atom, Value):
            self._scopes.define(key, "const vi64", name, self.vector(cast(atom.expr, DType.I64), active), reads)
            outside = f"opw_outside({name}, {self.integers.text(atom.extent)})"
            self._fail_where(outside, active, "OPW_BAD_INDEX")
            return name
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        left, right = self.integer_vector(atom.left, active), self.integer_vector(atom.right, active)
        if isinstance(atom, FloorDiv | Mod) and nonnegative(atom.left):
            text = f"{left} {'/' if isinstance(atom, FloorDiv) else '%'} {right}"
        else:
            function = {FloorDiv: "floordiv", Mod: "mod", Min: "min", Max: "max"}[type(atom)]
            text = f"opw_index_{function}({left}, {right})"
        return self._scopes.define(key, "const vi64", name, text, reads)
