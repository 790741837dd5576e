"""Precision: operands of contractions rounded to bfloat16, their sums in float32.

    sum<k>(mul(x[i, k], w[k, j]))   becomes   sum<k>(mul(f32(x_bf16[i, k]), f32(w_bf16[k, j])))

where the program permits it (`TensorProgram.precision`) and it is predicted to take less: where a processor multiplies
two numbers at once, or where half of the bytes of weights take half of the time. Weights are rounded when the model is
compiled. Any other operand is rounded once, by whoever makes it, and lies in memory so for contractions; others read
it as it was. Where it permits weights alone to be rounded, these become integers (`weights.py`).
"""

from __future__ import annotations

from dataclasses import replace

from opweld.fuse.factor_prices import lanes_and_rows
from opweld.fuse.prologues import folded
from opweld.fuse.region import axes_in, has_words
from opweld.fuse.weights import RULE, along_elements, integer_weights, product_by_weights
from opweld.ledger import Alternative, Ledger, cheapest
from opweld.schedule.cost import Product, core_of, fetched_product
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.algebra import simplify
from opweld.tensor.dim import Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, Reduce, binary, cast, load, reduce, transform
from opweld.tensor.operators import WORDS
from opweld.tensor.program import Constant, Item, Tensor, TensorProgram, item_inputs, item_outputs, unused

WORD = WORDS["dot2"]
ROUNDING = 8
"""Plain operations that rounding a vector takes, and storing it."""


def reduce_precision(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> TensorProgram:
    """The program with operands of contractions rounded where it permits that and it is predicted to take less, each a
    decision in the ledger."""
    if program.precision == "bf16":
        return _Rounding(program, expected, target, ledger).run()
    return integer_weights(program, expected, target, ledger)


class _Rounding:
    def __init__(self, program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> None:
        self._program = program
        self._expected = expected
        self._target = target
        self._ledger = ledger
        self._constants = {constant.name: constant for constant in program.constants}
        self._producers = {name: item for item in program.items for name in item_outputs(item)}
        self._signatures = dict(program.signatures)
        self._weights = program.constant_bytes
        self._names: dict[str, str] = {}
        self._made: list[Constant] = []
        self._after: dict[str, Tensor] = {}

    def run(self) -> TensorProgram:
        """The program as decided."""
        items = [self._item(item) if isinstance(item, Tensor) else item for item in self._program.items]
        if not self._names:
            return self._program
        found: list[Item] = [self._after[v.name] for v in self._program.inputs if v.name in self._after]
        for item in items:
            found.append(item)
            found += (self._after[name] for name in item_outputs(item) if name in self._after)
        read = {name for item in found for name in item_inputs(item)} | {value for _, value in self._program.outputs}
        kept = (c for c in self._program.constants if c.name in read or c.name not in self._names)
        return replace(self._program, items=tuple(found), constants=(*kept, *self._made))

    def _item(self, item: Tensor) -> Tensor:
        made = along_elements(item)
        found = product_by_weights(made, self._constants)
        if found is None or not isinstance(found.x, Load):
            return item
        summed, x, w = found.summed, found.x, found.w
        if self._decided(item, summed, x, w) != "bf16":
            return item
        factors = binary("mul", self._rounded(x, item), self._rounded(w, item))
        total = reduce("sum", summed.axes, factors)
        return replace(item, body=transform(made.body, lambda node: total if node is summed else None))

    # ------------------------------------------------------------------------------------------------- the decision

    def _decided(self, item: Tensor, summed: Reduce, x: Load, w: Load) -> str:
        failed: dict[str, int | str] = {}
        if self._target.kind != "gpu" and not has_words(summed, WORD, x, w):
            failed["bf16"] = f"no axis of the sum counts neighbours of both operands, {WORD} at a time"
        along, across = axes_in(w), axes_in(x)
        lane, rows = lanes_and_rows(item, along, across, self._expected)
        count = self._expected.product(axis.extent for axis in summed.axes)
        elements = self._expected.product(axis.extent for axis in along)
        floats = Product(lane, rows, count, 1, DType.F32, self._target)
        bf16 = Product(lane, rows, max(1, count // WORD), 1, DType.F32, self._target, dot="dot2")
        core = core_of(self._target)
        vectors = self._expected.product(self._signatures[x.tensor][1]) / self._target.vector_lanes_f32
        rounding = 0.0 if x.tensor in self._names else ROUNDING * vectors / core.products / core.hertz
        plain = fetched_product(floats, DType.F32.bytes * elements, self._weights)
        rounded = fetched_product(bf16, DType.BF16.bytes * elements, self._weights) + rounding
        alternatives = (
            Alternative("fp32", bytes=4 * elements, seconds=plain),
            Alternative("bf16", bytes=2 * elements, seconds=None if failed else rounded),
        )
        best = cheapest(alternatives).name
        reason = f"{WORD} products of bf16 are summed at once, and weights are half of the bytes"
        if best == "fp32":
            reason = str(failed.get("bf16", "products of bf16 take no less time"))
        return self._ledger.decide(
            rule=RULE,
            site=item.origin,
            subject=(item.name, x.tensor, w.tensor),
            alternatives=alternatives,
            prefer=best,
            reason=reason,
            failed=failed,
        )

    # ---------------------------------------------------------------------------------------------------- the result

    def _rounded(self, site: Load, reader: Tensor) -> Expr:
        """An element of an operand as it is rounded, in float32."""
        fill = None if site.fill is None else simplify(cast(site.fill, DType.BF16))
        return cast(load(self._name(site.tensor, reader), DType.BF16, site.indices, site.guards, fill), DType.F32)

    def _name(self, source: str, reader: Tensor) -> str:
        """The name of an operand that is rounded."""
        if source in self._names:
            return self._names[source]
        name = unused(f"{source}_bf16", self._signatures)
        shape = self._signatures[source][1]
        self._names[source], self._signatures[name] = name, (DType.BF16, shape)
        self._ledger.set_label(name, f"{self._ledger.label(source)} bf16")
        axes = tuple(Axis(f"i{number}", extent) for number, extent in enumerate(shape))
        body = cast(load(source, DType.F32, tuple(axis.dim for axis in axes)), DType.BF16)
        producer = self._producers.get(source)
        origin = reader.origin if producer is None or not isinstance(producer, Tensor) else producer.origin
        tensor = Tensor(name, DType.BF16, axes, body, origin)
        if source in self._constants:
            self._made.append(folded(tensor, {source: self._constants[source]}))
        else:
            self._after[source] = tensor
        return name
