"""Expressions as vector values: each node is computed once a block, and only where it may be.

`Values.vector` gives an expression one vector register wide, and writes the definitions it needs. A sum of products
stays one expression, so that compilers contract it to a fused multiply-add; everything else that is used twice, or is a
call, gets a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opweld.codegen.c.dependence import Dependence
from opweld.codegen.c.integers import ALL, Active, Indices
from opweld.codegen.c.memory import Addresses, Loads, Memory
from opweld.codegen.c.operators import (
    SCALAR_INFIX,
    binary_value,
    bitcast_value,
    cast_value,
    nearest_value,
    register,
    rounded_before,
    select,
    taken,
    unary_value,
    vector_literal,
    vector_type,
)
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.vector import (
    Assign,
    Bytes,
    Conditional,
    Convert,
    Define,
    Element,
    Expression,
    If,
    Infix,
    Literal,
    Name,
    Prefix,
    VectorStatement,
    call,
    integer,
    size_of,
)
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Bitcast, Cast, Const, Expr, Index, Load, Lookup, Select, Unary, walk
from opweld.tensor.rounding import saturated

_LARGEST_INLINE = 20
"""Nodes of an expression that may stand inside another one; a larger one gets a name."""

_FIRST = integer(0)


class Values:
    """Writes the values of one function."""

    def __init__(self, scopes: Scopes, lane: Axis, memories: Mapping[str, Memory]) -> None:
        self.dependence = Dependence(lane)
        self.indices = Indices(scopes, self.dependence, self.vector, self.scalar)
        self.integers = self.indices.integers
        self.addresses = Addresses(scopes, self.integers, self.dependence)
        self._loads = Loads(scopes, self.dependence, self.indices, self.addresses, memories, self.vector, self._either)
        self._scopes = scopes
        self._memories = memories
        self.held: set[Expr] = set()
        """Loads that are to be in one register for all that is computed with them."""

    def vector(self, root: Expr, active: Active = ALL) -> Expression:
        """The expression as a value that may stand inside another one."""
        order, uses, branches = self._eager(root, active)
        done: dict[Expr, Expression] = {}
        for node in order:
            key = self._key(node, active)
            found: Expression | None = self._scopes.find(key)
            if found is None:
                value, inline = self._node(node, done, active, node in branches)
                once = isinstance(node, Const) or node is root or uses[node] == 1
                if inline and once and (node is root or size_of(value) <= self._largest(node)):
                    done[node] = value
                    continue
                named = inline is None or isinstance(value, Name)
                found = value if named else self._name(node, key, value)
            done[node] = found
        return done[root]

    def _largest(self, node: Expr) -> int:
        """A product is named later than others, lest it be no part of a fused multiply-add."""
        return 3 * _LARGEST_INLINE if isinstance(node, Binary) and node.op == "mul" else _LARGEST_INLINE

    def named(self, root: Expr, active: Active = ALL) -> Name:
        """The name of a variable that holds the expression."""
        value = self.vector(root, active)
        return value if isinstance(value, Name) else self._name(root, self._key(root, active), value)

    def scalar(self, node: Expr) -> Expression:
        """An expression that is the same in every lane, as one element."""
        if isinstance(node, Const):
            return Literal(node.value, node.dtype)
        if isinstance(node, Index):
            return self.integers.value(node.dim)
        if isinstance(node, Load) and node.indices and not node.guards and register(node.dtype) is node.dtype:
            memory = self.addresses.words(self._memories[node.tensor], node.dtype)
            element = Element(*self.addresses.element(memory, node.indices[0]))
            return Infix("!=", element, _FIRST) if node.dtype is DType.BOOL else element
        if isinstance(node, Binary) and node.x.dtype in (DType.I32, DType.I64) and node.op in SCALAR_INFIX:
            return Infix(SCALAR_INFIX[node.op], self.scalar(node.x), self.scalar(node.y))
        if isinstance(node, Binary) and node.dtype is DType.BOOL and node.op in ("and", "or"):
            touches = self.dependence.touches(node.y)
            if not touches:
                return Infix("&&" if node.op == "and" else "||", self.scalar(node.x), self.scalar(node.y))
        if isinstance(node, Unary) and node.op == "not":
            return Prefix("!", self.scalar(node.x))
        if isinstance(node, Select) and node.dtype in (DType.I32, DType.I64) and not self._risky(node, ALL):
            return Conditional(self.scalar(node.condition), self.scalar(node.x), self.scalar(node.y))
        if (
            isinstance(node, Cast)
            and node.dtype is DType.I64
            and node.x.dtype.is_integer
            and not node.x.dtype.is_storage_only
        ):
            return Convert("int64_t", self.scalar(node.x))
        return Element(self.named(node), _FIRST)

    # ---- which nodes, in which order ---------------------------------------------------------------------------------

    def _key(self, node: Expr, active: Active) -> Expr | tuple[Expr, Active]:
        """What the value is known by: the expression, and which lanes it has where others would be another value."""
        if active is ALL or not self.dependence.touches(node):
            return node
        return (node, active) if active.mask is not None or self.dependence.varies(node) else node

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
            for operand in reversed(taken(node)):
                if operand in lazy:
                    continue
                uses[operand] = uses.get(operand, 0) + 1
                stack.append((operand, False))
        return order, uses, branches

    def _name(self, node: Expr, key: Expr | tuple[Expr, Active], value: Expression) -> Name:
        name = self._scopes.numbered("t")
        ctype = f"const {vector_type(node.dtype)}"
        return self._scopes.define(key, ctype, name, value, self.dependence.reads(node))

    # ---- one node ----------------------------------------------------------------------------------------------------

    def _node(
        self, node: Expr, done: Mapping[Expr, Expression], active: Active, branch: bool
    ) -> tuple[Expression, bool | None]:
        """(value, whether it may stand inside another expression; None when it has a name already)"""
        if isinstance(node, Const):
            return vector_literal(node.value, node.dtype), True
        if isinstance(node, Index):
            return self.indices.vector(node.dim, active), False
        if isinstance(node, Load):
            if not node.indices:
                return Name(node.tensor), None
            loaded = self._loads.value(node, active)
            return (call(f"opw_held_{node.dtype.short}", loaded) if node in self.held else loaded), False
        if isinstance(node, Unary):
            return unary_value(node, done[node.x])
        if isinstance(node, Binary):
            if node.dtype.is_integer and node.op in ("div", "mod", "fmod"):
                self._check_divisor(node.y, done[node.y], active)
            return binary_value(node, done[node.x], done[node.y])
        if (rounding := rounded_before(node)) is not None:
            return nearest_value(node, done[rounding.x]), False
        if (whole := saturated(node)) is not None:
            return call(f"opw_narrow_i32_{node.dtype.short}", done[whole]), False
        if isinstance(node, Cast):
            return cast_value(node, done[node.x])
        if isinstance(node, Bitcast):
            return bitcast_value(node, done[node.x]), False
        if isinstance(node, Lookup):
            return call("opw_lookup_u8", Prefix("&", self._table(node.table)), done[node.x]), False
        if isinstance(node, Select):
            if branch:
                return self._branch(node, active), None
            return select(done[node.condition], node.dtype, done[node.x], done[node.y]), False
        raise TypeError(f"a kernel cannot hold {type(node).__name__} expressions: {node!r}")

    def _table(self, table: bytes) -> Name:
        found = self._scopes.find(table)
        if found is not None:
            return found
        return self._scopes.define(
            table, "static const opw_table", self._scopes.numbered("table"), Bytes(table), depth=0
        )

    def _check_divisor(self, divisor: Expr, value: Expression, active: Active) -> None:
        if isinstance(divisor, Const) and divisor.value != 0:
            return
        equal = call(f"opw_eq_{divisor.dtype.short}", value, vector_literal(0, divisor.dtype))
        self.indices.fail_where(equal, active, "OPW_DIVISION_BY_ZERO")

    # ---- branches ----------------------------------------------------------------------------------------------------

    def _branch(self, node: Select, active: Active) -> Name:
        """Evaluates only the chosen side; where lanes choose differently, each side for its lanes only."""
        if not self.dependence.varies(node.condition):
            if active.mask is not None and self.dependence.touches(node.condition):
                condition: Expression = Element(self.vector(node.condition, active), _FIRST)
            else:
                condition = self.scalar(node.condition)
            return self._either(
                node, active, condition, lambda: self.vector(node.x, active), lambda: self.vector(node.y, active)
            )
        lanes = self.indices.lanes_mask(active)
        condition = self.named(node.condition, active)
        chosen: Expression = condition
        other: Expression = Prefix("~", condition)
        if lanes is not None:
            chosen, other = Infix("&", chosen, lanes), Infix("&", other, lanes)
        x = self.vector(node.x, self._under(node.x, chosen, active))
        y = self.vector(node.y, self._under(node.y, other, active))
        return self._name(node, self._key(node, active), select(condition, node.dtype, x, y))

    def _under(self, node: Expr, mask: Expression, active: Active) -> Active:
        return Active(mask=self.indices.mask(mask)) if self.dependence.touches(node) else active

    def _either(
        self,
        node: Expr,
        active: Active,
        condition: Expression,
        then: Callable[[], Expression],
        otherwise: Callable[[], Expression],
    ) -> Name:
        """A variable assigned in the two blocks of a branch."""
        name = Name(self._scopes.numbered("t"))
        self._scopes.add(Define(vector_type(node.dtype), name.name))
        blocks: list[tuple[VectorStatement, ...]] = []
        for side in (then, otherwise):
            self._scopes.open()
            value = side()
            self._scopes.add(Assign(name, value))
            blocks.append(self._scopes.close())
        self._scopes.add(If(condition, blocks[0], blocks[1]))
        self._scopes.remember(self._key(node, active), name, self.dependence.reads(node))
        return name
