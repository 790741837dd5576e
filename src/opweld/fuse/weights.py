"""Weights of contractions rounded to integers of 8 or 4 bits, where the program permits it.

    sum<k>(mul(x[i, k], w[k, j]))   becomes   sum<k>(mul(x[i, k], mul(f32(w_int8[k, j]), w_scales[j])))
                                         or   sum<k>(mul(x[i, k], mul(f32(w_int4[k, j]), w_scales[k // 32, j])))

which is what a model says that brings such weights with a DequantizeLinear; what follows is the same. Or x is rounded
too, to 24 bits, and integers are multiplied (`fixed_point.py`). Rounding of weights is that of `opweld quantize`
without data. Products that wait for their arithmetic, and not for the bytes of weights, gain nothing by it and keep
their floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from opweld.fuse.codes import counted, from_words
from opweld.fuse.factor_prices import Factor, FactorPrices
from opweld.fuse.fixed_point import FixedPoint
from opweld.fuse.region import Kind, classify, operand_of, reductions
from opweld.ledger import Alternative, Ledger
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.axes import split
from opweld.tensor.dim import Dim, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Expr, Load, Reduce, binary, cast, load, loads, reduce, transform
from opweld.tensor.integer_weights import BLOCKS, Weights, block_length, quantize_blocks, quantize_weights
from opweld.tensor.program import Constant, Item, Tensor, TensorProgram, item_inputs, unused

RULE = "fuse.precision"
"""The rule of every decision here."""

ASKED = {"int8-weights": ("int8",), "int4-weights": ("int4", "int8")}
"""What weights become by the program's precision: the first that is legal, if it is predicted to take less."""
CODES = {"int8": DType.I8, "int4": DType.I4}
FIXED = "int8, fixed point"
"""The same as int8, multiplied by numbers in fixed point."""
FEWER = 1.1
"""Fixed point is taken where it is predicted to take less than this times as long as floats: where both wait for the
bytes of weights, its few instructions leave them coming 1.15 times faster (measured on Zen 4, one core)."""


@dataclass(frozen=True)
class ProductByWeights:
    """A sum of products of float32 by constant ones: what is summed, the other factor, the weights."""

    summed: Reduce
    x: Expr
    w: Load


def product_by_weights(item: Tensor, constants: Mapping[str, Constant]) -> ProductByWeights | None:
    """The product by weights that a tensor is, with whatever is done with the sum; None where it is none."""
    found = reductions(item.body)
    if len(found) != 1 or found[0].kind != "sum" or found[0].dtype is not DType.F32:
        return None
    body = found[0].body
    if not isinstance(body, Binary) or body.op != "mul" or classify(item, constants) is not Kind.CONTRACTION:
        return None
    known = [all(node.tensor in constants for node in loads(factor)) for factor in (body.x, body.y)]
    x, w = (body.y, body.x) if known[0] else (body.x, body.y)
    if known[0] == known[1] or not isinstance(w, Load):
        return None
    return ProductByWeights(found[0], x, w)


def along_elements(item: Tensor) -> Tensor:
    """A sum over heads and their elements as one axis, as one over both axes: neighbours are those along elements."""
    return replace(item, body=split((), item.body, ())[1])


def integer_weights(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> TensorProgram:
    """The program with weights rounded to integers where it permits that and it is predicted to take less, each a
    decision in the ledger."""
    return program if program.precision not in ASKED else _Rounding(program, expected, target, ledger).run()


@dataclass(frozen=True)
class _Form:
    """Weights of a contraction as integers: how they are called, the axis that they have scales along, weights of a
    scale along it (0: one for each of its elements), and where the integers and the scales are read."""

    name: str
    axis: int
    block: int
    codes: Load
    scale: Load

    @property
    def value(self) -> Expr:
        """What stands for an element."""
        return binary("mul", cast(self.codes, DType.F32), self.scale)

    def codes_at(self, indices: tuple[Dim, ...]) -> Load:
        """The integer at other indices."""
        found = load(self.codes.tensor, self.codes.dtype, indices)
        assert isinstance(found, Load)
        return found


class _Rounding:
    def __init__(self, program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> None:
        self._program = program
        self._ledger = ledger
        self._prices = FactorPrices(expected, target, program.constant_bytes)
        self._constants = {constant.name: constant for constant in program.constants}
        self._names = set(program.signatures)
        self._fixed = FixedPoint(expected, target, ledger, self._names, program.constant_bytes)
        self._forms: dict[tuple[str, int, int], tuple[str, str]] = {}
        self._rounded: dict[tuple[str, int, int], Weights] = {}
        self._made: dict[str, Constant] = {}

    def run(self) -> TensorProgram:
        """The program as decided."""
        items: list[Item] = []
        for item in self._program.items:
            items += self._item(item) if isinstance(item, Tensor) else (item,)
        read = {name for item in items for name in item_inputs(item)} | {value for _, value in self._program.outputs}
        sources = {source for source, _, _ in self._forms}
        kept = (c for c in self._program.constants if c.name in read or c.name not in sources)
        made = (c for c in (*self._made.values(), *self._fixed.made.values()) if c.name in read)
        return replace(self._program, items=tuple(items), constants=(*kept, *made))

    def _item(self, item: Tensor) -> tuple[Tensor, ...]:
        product = product_by_weights(item, self._constants)
        if product is None:
            return (item,)
        in_words = self._in_words(item, product)
        form, fixed = self._decided(item, product, in_words)
        if form is None:
            return (item,)
        if fixed:
            split_item, apart = in_words
            codes = self._made[form.codes.tensor]
            assert isinstance(apart.x, Load)
            return self._fixed.sums(
                split_item, apart.summed, apart.x, form.codes_at(apart.w.indices), form.scale, codes
            )
        total = reduce("sum", product.summed.axes, binary("mul", product.x, form.value))
        return (replace(item, body=transform(item.body, lambda node: total if node is product.summed else None)),)

    def _in_words(self, item: Tensor, product: ProductByWeights) -> tuple[Tensor, ProductByWeights]:
        """The product whose neighbours words hold, and the tensor that it is."""
        made = along_elements(item)
        found = None if made.body is item.body else product_by_weights(made, self._constants)
        return (item, product) if found is None else (made, found)

    # ------------------------------------------------------------------------------------------------- the decision

    def _decided(
        self, item: Tensor, product: ProductByWeights, in_words: tuple[Tensor, ProductByWeights]
    ) -> tuple[_Form | None, bool]:
        """The form that the weights of a product take, None where they stay floats; whether they are multiplied in
        fixed point, `in_words`."""
        w, asked = product.w, ASKED[self._program.precision]
        constant = self._constants[w.tensor]
        elements = int(np.prod(constant.shape))
        failed: dict[str, int | str] = {}
        forms: dict[str, _Form] = {}
        seconds: dict[str, float] = {}
        sizes: dict[str, int] = {}
        floats = 0.0
        for name in asked:
            form = self._form(name, w, product.summed)
            if isinstance(form, str):
                failed[name] = form
                continue
            forms[name] = form
            scales = elements // form.block if form.block else constant.shape[form.axis]
            sizes[name] = elements * CODES[name].bits // 8 + DType.F32.bytes * scales
            factor = _in_words(form, product.summed)
            factor = Factor(*factor, sizes[name], DType.F32.bytes * elements)
            seconds[name], floats = self._prices.weights(item, product.summed, factor)
            if name == "int8":
                made, apart = in_words
                codes = form.codes_at(apart.w.indices)
                refusal = self._fixed.refusal(made, apart.summed, apart.x, codes)
                if refusal:
                    failed[FIXED] = refusal
                else:
                    forms[FIXED], sizes[FIXED] = form, sizes[name]
                    assert isinstance(apart.x, Load)
                    seconds[FIXED] = self._fixed.seconds(made, apart.summed, apart.x, codes, sizes[name])
        ways = {name: name for name in asked if name in forms}
        if FIXED in forms and seconds[FIXED] < FEWER * seconds["int8"]:
            ways["int8"] = FIXED
        wanted = next((way for way in ways.values() if seconds[way] < floats), "fp32")
        reason = "the product takes no less time where its weights are fewer bytes"
        if wanted != "fp32":
            held = constant.read()
            if np.isfinite(held).all():
                error = self._error(w.tensor, forms[wanted], held)
                reason = f"fewer bytes of weights, which are off by {error:.2%} of their root mean square"
            else:
                failed |= dict.fromkeys((*asked, FIXED), f"the weights of {' '.join(item.origin)} hold NaN or infinity")
                wanted = "fp32"
        if wanted == "fp32" and failed:
            reason = str(next(iter(failed.values())))
        alternatives = (
            Alternative("fp32", bytes=DType.F32.bytes * elements, seconds=floats or None),
            *(
                Alternative(name, bytes=sizes.get(name), seconds=None if name in failed else seconds[name])
                for name in (FIXED, *reversed(asked))
            ),
        )
        taken = self._ledger.decide(
            rule=RULE,
            site=item.origin,
            subject=(item.name, w.tensor),
            alternatives=alternatives,
            prefer=wanted,
            reason=reason,
            failed=failed,
        )
        if taken == "fp32":
            return None, False
        self._store(w, forms[taken])
        return forms[taken], taken == FIXED

    def _error(self, source: str, form: _Form, held: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
        """The root mean square of what rounding adds, as a part of that of the weights."""
        wrong = self._weights(source, form).values() - held
        size = float(np.linalg.norm(held))
        return float(np.linalg.norm(wrong)) / size if size else 0.0

    # ---------------------------------------------------------------------------------------------------- the result

    def _form(self, name: str, w: Load, summed: Reduce) -> _Form | str:
        """The weights as integers; why they cannot be, where they cannot."""
        shape = self._constants[w.tensor].shape
        if w.guards:
            return "what lies beyond the edges of the weights is read too"
        if name == "int4":
            along = [n for n, index in enumerate(w.indices) if index.atom in summed.axes]
            axis = max(along, key=lambda n: shape[n], default=None)
            if axis is None:
                return "no axis of the weights is one that is summed over"
            block = block_length(shape[axis])
            if not block:
                return f"neither of the blocks {BLOCKS} divides the {shape[axis]} that are summed"
            places = (*w.indices[:axis], floordiv(w.indices[axis], block), *w.indices[axis + 1 :])
        else:
            apart = [n for n, i in enumerate(w.indices) if not any(i.depends_on(axis) for axis in summed.axes)]
            axis, block = max(apart, key=lambda n: (shape[n] > 1, n), default=None), 0
            if axis is None:
                return "every axis of the weights is summed over"
            places = (w.indices[axis],)
        codes_name, scales_name = self._named(w.tensor, name, axis, block)
        codes = load(codes_name, CODES[name], w.indices)
        scale = load(scales_name, DType.F32, places)
        assert isinstance(codes, Load) and isinstance(scale, Load)
        return _Form(name, axis, block, codes, scale)

    def _named(self, source: str, form: str, axis: int, block: int) -> tuple[str, str]:
        """What the codes and scales of weights are called."""
        key = (source, axis, block)
        if key not in self._forms:
            made: list[str] = []
            for kind in (form, f"{form}_scales"):
                name = unused(f"{source}_{kind}", self._names)
                self._names.add(name)
                self._ledger.set_label(name, f"{self._ledger.label(source)} {kind.replace('_', ' ')}")
                made.append(name)
            self._forms[key] = made[0], made[1]
        return self._forms[key]

    def _store(self, w: Load, form: _Form) -> None:
        """Makes the constants of a form."""
        made, source = self._weights(w.tensor, form), self._constants[w.tensor]
        codes, scales = self._forms[w.tensor, form.axis, form.block]
        dtype = CODES[form.name]
        if codes not in self._made:
            self._made[codes] = Constant(
                codes, dtype, source.shape, lambda: made.codes.astype(dtype.numpy, copy=False), source.origin
            )
            self._made[scales] = Constant(scales, DType.F32, made.scales.shape, lambda: made.scales, source.origin)

    def _weights(self, source: str, form: _Form) -> Weights:
        key = (source, form.axis, form.block)
        if key not in self._rounded:
            held = self._constants[source].read()
            self._rounded[key] = (
                quantize_blocks(held, form.axis, form.block) if form.block else quantize_weights(held, form.axis)
            )
        return self._rounded[key]


def _in_words(form: _Form, summed: Reduce) -> tuple[Expr, Load]:
    """An element and what it is read from as `prologues.py` has them: those of 4 bits are fields of words."""
    position = counted(form.codes, summed)
    value = form.value
    if position is not None:
        field = from_words(value, form.codes, form.codes.tensor, position)
        value = value if field is None else field.value
    operand = operand_of(value)
    return (value, operand) if operand is not None else (form.value, form.codes)
