"""Products of quantized values: sums of integers, with scales and zero points moved out of them.

    sum<k>((f32(x[i, k]) - zx) * sx * ((f32(w[k, j]) - zw[j]) * sw[j]))
      = (sum<k>(i32(x[i, k]) * i32(w[k, j])) - zx * sum<k>(w[k, j]) - ...) * (sx * sw[j])

Found by algebra, whoever wrote the model: a factor is a number of 8 bits that is shifted and scaled by what is the same
for all that is summed, be it in the contraction or in the tensor that it reads (DequantizeLinear, or what MatMulInteger
and QLinearConv subtract). Of constant weights the sums are computed when the model is compiled; those of the other
operand, which weights with a zero point need, are a tensor of their own.

Three channels and one of zeros are a word, too (`channel_words`).

Where instructions for that do not serve, as in a window, and sums are not long, floats hold the integers: what is
summed is shifted and scaled then, not each element. With VNNI an instruction multiplies and adds integers of 16 bits,
too: a window's are words of a single number ("singles"), and what it reads need not be made floats.

The integers are exact, so that the result is rounded less often than that of floats. x is unsigned and w signed, as
instructions for dot products of bytes want them (VNNI): a signed x has its highest bit flipped, and is 128 more; an
unsigned w is stored as 128 less. A signed x that the program computes is stored as an unsigned one, for all that read
it, so that nothing stands between memory and the products.

Without such instructions bytes are widened to 16 bits before they are multiplied, time and again. Two products of
numbers that lie in memory with 16 bits take less then: x and w are stored so ("halves"), twice as long as bytes and as
exact. What multiplies bytes as they are without VNNI, vpmaddubsw, saturates: where weights say that it cannot (see
`saturation`), bytes stay bytes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from opweld.fuse.channel_words import channel_axis, in_words
from opweld.fuse.factor_prices import lanes_and_rows
from opweld.fuse.integer_storage import FLIPPED, IntegerStorage
from opweld.fuse.point_sums import point_sums
from opweld.fuse.prologues import folded
from opweld.fuse.quantized import LARGEST, Quantized
from opweld.fuse.region import Kind, axes_in, classify, counts_words, has_words, is_zero, reductions
from opweld.fuse.saturation import gains_by_pairs, pairs_fit
from opweld.fuse.steps import weights_of, without_unused
from opweld.ledger import Alternative, Ledger, cheapest
from opweld.schedule.cost import Product, core_of, dot_products, fetched_product, traffic
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.algebra import simplify
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    binary,
    cast,
    const,
    free_atoms,
    load,
    loads,
    reduce,
    substitute,
    transform,
    walk,
)
from opweld.tensor.operators import WORDS
from opweld.tensor.program import Item, Scan, Tensor, TensorProgram, bodies_of, tensors_of

RULE = "fuse.integer"
"""The rule of every decision here."""

BYTES = (DType.U8, DType.I8)
WORD, HALF = WORDS["dot4"], WORDS["dot2i"]
REDUCE = "opweld quantize --reduce-range"
"""What makes such weights."""
MOST_ZERO = 255
"""A number that is a zero point: of a byte, or of an unsigned one as a signed one."""
SAVED = 0.1
"""The part of a window of integers in float32 that making floats of these takes."""
WHOLE = {DType.F32: 2**24, DType.F64: 2**53}
"""The integers up to this one are floats."""


def integer_products(program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> TensorProgram:
    """The program with products of quantized values, those of the steps of a recurrence too, as sums of integers where
    that is predicted to take less, each a decision in the ledger."""
    return _Integers(program, expected, target, ledger).run()


class _Integers:
    def __init__(self, program: TensorProgram, expected: Expected, target: Target, ledger: Ledger) -> None:
        self._program = program
        self._expected = expected
        self._target = target
        self._ledger = ledger
        self._tensors = {tensor.name: tensor for item in program.items for tensor in tensors_of(item)}
        self._constants = {constant.name: constant for constant in program.constants}
        self._storage = IntegerStorage(program, ledger)
        self._weights = program.constant_bytes
        self._made = self._storage.made
        self._longer: dict[tuple[str, int], str] = {}  # names of copies with a channel more, by value and axis
        self._copied: set[str] = set()  # those of them that are there

    def run(self) -> TensorProgram:
        """The program as decided."""
        items: list[Item] = []
        for item in self._program.items:
            if isinstance(item, Scan):
                items.append(self._scan(item))
            else:
                items += self._item(item, self._weights) if isinstance(item, Tensor) else (item,)
        items = [without_unused(item) if isinstance(item, Scan) else item for item in self._storage.items(items)]
        read = {node.tensor for item in items for node in loads(*bodies_of(item))}
        made = (constant for name, constant in self._made.items() if name in read)
        return replace(self._program, items=tuple(items), constants=(*self._program.constants, *made))

    def _scan(self, scan: Scan) -> Scan:
        """The recurrence with its steps as decided: they read nothing but its own weights between two times."""
        held = weights_of(scan, self._constants)
        steps = tuple(made for step in scan.steps for made in self._item(step, held, steps=True))
        return scan if steps == scan.steps else replace(scan, steps=steps)

    def _item(self, item: Tensor, held: int, steps: bool = False) -> tuple[Tensor, ...]:
        """The tensor, of integers where that was decided, after what it needs. So many bytes of weights are read before
        its own are read again."""
        found = reductions(item.body)
        if len(found) != 1 or found[0].kind != "sum" or found[0].dtype not in (DType.F32, DType.F64):
            return (item,)
        summed, body = found[0], found[0].body
        if not isinstance(body, Binary) or body.op != "mul":
            return (item,)
        pair = [self._quantized(factor, summed) for factor in (body.x, body.y)]
        if pair[0] is not None and pair[0].element.tensor in self._constants:
            pair.reverse()
        x, w = pair
        if x is None or w is None or w.element.tensor not in self._constants or w.element.guards:
            return (item,)
        if x.element.tensor in self._constants or not self._is_finite(x) or not self._is_finite(w):
            return (item,)
        if not _is_of({*item.axes, *summed.axes}, w.element, w.zero, w.scale):
            return (item,)  # other weights in each step of a recurrence
        longer = None if steps else self._in_words(item, summed, x, w)
        whole, copies, longer_x, longer_w = longer or (summed, (), x, w)
        way = self._decided(item, whole, longer_x, longer_w, held, copies)
        if way == "floats":
            return (item,)
        if way in ("integers", "halves"):
            make = self._total if way == "integers" else self._halves
            before, total = make(item, whole, longer_x, longer_w)
            self._copied.update(copy.name for copy in copies)
        else:
            make, copies = self._singles if way == "singles" else self._whole, ()
            before, total = make(item, summed, x, w)
        return (
            *copies,
            *before,
            replace(item, body=transform(item.body, lambda node: total if node is summed else None)),
        )

    def _in_words(
        self, item: Tensor, summed: Reduce, x: Quantized, w: Quantized
    ) -> tuple[Reduce, tuple[Tensor, ...], Quantized, Quantized] | None:
        """(the sum over a channel more, the copy that it reads where that is new, both operands), where an instruction
        multiplies whole words and channels are one less (`channel_words`)."""
        axis = channel_axis(summed, x.element, w.element, WORD)
        if axis is None or dot_products("dot4", self._target) > 1 or not isinstance(w.zero, Const | None):
            return None
        picture = x.element.tensor
        _, shape = self._program.signatures[picture]
        place = picture, x.element.indices.index(axis.dim)
        if place not in self._longer:
            self._longer[place] = self._storage.name(f"{picture}_words")
        constant = self._constants[w.element.tensor]
        names = self._longer[place], self._storage.name(f"{constant.name}_words")
        found = in_words(
            summed, axis, (x.element, shape, names[0]), (w.element, constant, names[1]), w.zero, item.origin
        )
        self._storage.add(found.picture, found.weights)
        self._constants[names[1]] = self._made[names[1]] = found.weights
        copies = () if names[0] in self._copied else (found.picture,)
        return found.summed, copies, replace(x, element=found.x), replace(w, element=found.w)

    # ------------------------------------------------------------------------------------------------- what is there

    def _quantized(self, value: Expr, summed: Reduce) -> Quantized | None:
        """A float as a quantized value, or None: what scales and shifts it is the same for all that is summed."""
        if isinstance(value, Cast):
            return self._shifted(value.x, summed)
        if isinstance(value, Load):
            return self._read(value, summed)
        if not isinstance(value, Binary):
            return None
        for inner, other in ((value.x, value.y), (value.y, value.x)):
            if free_atoms(other) & set(summed.axes):
                continue
            if value.op == "mul" and (found := self._quantized(inner, summed)) is not None:
                scale = other if found.scale is None else binary("mul", found.scale, other)
                return replace(found, scale=scale)
            if value.op in ("add", "sub") and not (value.op == "sub" and inner is value.y):
                found, zero = self._quantized(inner, summed), self._zero(other)
                if found is not None and zero is not None and found.scale is None:
                    number, low, high = zero
                    return found.shifted(*zero) if value.op == "sub" else found.shifted(_negated(number), -high, -low)
        return None

    def _shifted(self, value: Expr, summed: Reduce) -> Quantized | None:
        """An integer as a quantized value of scale 1."""
        if isinstance(value, Load):
            return Quantized(value) if value.dtype in BYTES else self._shifted_in(value, summed)
        if isinstance(value, Cast) and value.dtype is DType.I32:
            return self._shifted(value.x, summed)
        if not isinstance(value, Binary) or value.op != "sub" or value.dtype is not DType.I32:
            return None  # a difference of bytes wraps
        if free_atoms(value.y) & set(summed.axes):
            return None
        found, zero = self._shifted(value.x, summed), self._zero(value.y)
        return None if found is None or zero is None else found.shifted(*zero)

    def _shifted_in(self, site: Load, summed: Reduce) -> Quantized | None:
        """What a load of a tensor of integers stands for."""
        tensor = self._tensors.get(site.tensor)
        if tensor is None or site.dtype is not DType.I32 or site.guards or reductions(tensor.body):
            return None
        mapping: dict[Atom, Dim] = dict(zip(tensor.axes, site.indices, strict=True))
        return self._shifted(substitute(tensor.body, mapping), summed)

    def _zero(self, value: Expr) -> tuple[Expr, int, int] | None:
        """A number as an int32 zero point, with its least and its greatest value, where these are known and small."""
        if isinstance(value, Load) and value.tensor in self._constants and value.dtype.is_integer and not value.guards:
            numbers = self._constants[value.tensor].read()
            low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
            return (cast(value, DType.I32), low, high) if low >= -MOST_ZERO and high <= MOST_ZERO else None
        if isinstance(value, Const):
            fits = float(value.value).is_integer() and -MOST_ZERO <= value.value <= MOST_ZERO
            return (const(int(value.value), DType.I32), int(value.value), int(value.value)) if fits else None
        if isinstance(value, Cast) and value.x.dtype in BYTES:
            low, high = value.x.dtype.limits
            return cast(value.x, DType.I32), int(low), int(high)
        return None

    def _read(self, site: Load, summed: Reduce) -> Quantized | None:
        """What a load of a tensor stands for that dequantizes another one; where it is guarded, its fill is zero, and
        so is what the zero point stands for."""
        tensor = self._tensors.get(site.tensor)
        if tensor is None or tensor.dtype is not site.dtype or reductions(tensor.body):
            return None
        mapping: dict[Atom, Dim] = dict(zip(tensor.axes, site.indices, strict=True))
        found = self._quantized(substitute(tensor.body, mapping), summed)
        if found is None or not site.guards:
            return found
        element, zero = found.element, const(0, DType.I32) if found.zero is None else found.zero
        if not isinstance(site.fill, Const) or site.fill.value != 0 or element.guards:
            return None
        low, high = element.dtype.limits
        if isinstance(zero, Const) and low <= zero.value <= high:
            fill = const(zero.value, element.dtype)
        elif isinstance(zero, Cast) and zero.x.dtype is element.dtype:
            fill = zero.x
        else:
            return None
        return replace(found, element=load(element.tensor, element.dtype, element.indices, site.guards, fill))

    def _is_finite(self, value: Quantized) -> bool:
        """Whether no constant scale is an infinity or a NaN, of which products and sums of them make different ones."""
        nodes = () if value.scale is None else tuple(walk(value.scale))
        if not all(math.isfinite(node.value) for node in nodes if isinstance(node, Const)):
            return False
        read = (self._constants.get(node.tensor) for node in nodes if isinstance(node, Load))
        return all(bool(np.isfinite(constant.read()).all()) for constant in read if constant is not None)

    # ------------------------------------------------------------------------------------------------- the decision

    def _decided(
        self, item: Tensor, summed: Reduce, x: Quantized, w: Quantized, held: int, copies: tuple[Tensor, ...]
    ) -> str:
        """What the sum is made of: floats, integers, or whole floats. `copies`: what words are read from."""
        count = self._expected.product(axis.extent for axis in summed.axes)
        known = product(axis.extent for axis in summed.axes).constant
        failed: dict[str, int | str] = {}
        products = binary("mul", cast(x.element, DType.I32), cast(w.element, DType.I32))
        kind = classify(replace(item, body=reduce("sum", summed.axes, products)), self._constants)
        if known is None or known * x.reach * w.reach > LARGEST:
            failed["integers"] = "how many products there are tells the run" if known is None else "sums may overflow"
        elif not has_words(summed, WORD, x.element, w.element):
            failed["integers"] = f"no axis of the sum counts neighbours of both operands, {WORD} at a time"
        elif kind is not Kind.CONTRACTION:
            failed["integers"] = "neither operand is shared by several results"
        if "integers" in failed and has_words(summed, WORD, x.element, w.element):
            failed["halves"] = failed["integers"]
        elif not has_words(summed, HALF, x.element, w.element):
            failed["halves"] = f"no axis of the sum counts neighbours of both operands, {HALF} at a time"
        if known is None or known * x.largest * w.reach > WHOLE[summed.dtype]:
            failed["whole floats"] = f"sums may be no whole {summed.dtype.short}"
        if kind is Kind.WINDOW:
            if known is None or known * x.reach * w.reach > LARGEST:
                failed["singles"] = failed["integers"]
            elif dot_products("dot2i", self._target) > 1:
                failed["singles"] = "the target has no instruction that multiplies integers and adds them"
            elif not is_zero(w.zero):
                failed["singles"] = "weights have a zero point"
        if (problem := self._beyond_weights(item, w)) is not None:
            failed.setdefault("integers", problem)
            failed.setdefault("halves", problem)
            if kind is Kind.WINDOW:
                failed.setdefault("singles", problem)
            if not is_zero(x.zero):
                failed.setdefault("whole floats", problem)
        along, across = axes_in(w.element), axes_in(x.element)
        lane, rows = lanes_and_rows(item, along, across, self._expected)
        elements = self._expected.product(axis.extent for axis in along)
        floats = Product(lane, rows, count, 1, summed.dtype, self._target)
        dot = "dot4s" if "integers" not in failed and self._pairs_fit(summed, w) else "dot4"
        bytes_ = Product(lane, rows, max(1, count // WORD), 1, DType.I32, self._target, dot=dot)
        halves = Product(lane, rows, max(1, count // HALF), 1, DType.I32, self._target, dot="dot2i")
        # What is shifted and scaled: a window's operand for each product, one that many results share once.
        shared = lane if kind is Kind.CONTRACTION else 1
        shifts = 2 * count * self._expected.product(item.shape) / shared / self._target.vector_lanes_f32
        shifted = shifts / core_of(self._target).products / core_of(self._target).hertz
        copied = sum(
            core_of(self._target).launch + traffic(2 * self._expected.product(copy.shape), self._target)
            for copy in copies
        )
        words = fetched_product(bytes_, elements, held) + copied
        doubled = fetched_product(halves, 2 * elements, max(held, 2 * elements)) + copied + self._stored_wide(x.element)
        whole = fetched_product(floats, 4 * elements, max(held, 4 * elements))
        one = replace(floats, dtype=DType.I32, dot="dot2i")
        singles = fetched_product(one, 4 * elements, max(held, 4 * elements)) * (1 - SAVED)
        alternatives = [
            Alternative("floats", seconds=whole + shifted),
            Alternative("integers", seconds=None if "integers" in failed else words),
            Alternative("halves", seconds=None if "halves" in failed else doubled),
            Alternative("whole floats", seconds=None if "whole floats" in failed else whole),
        ]
        if kind is Kind.WINDOW:
            alternatives.append(Alternative("singles", seconds=None if "singles" in failed else singles))
        best = cheapest(alternatives).name
        reasons = {
            "integers": f"{WORD} products of bytes are summed at once"
            + (f", of {copies[0].name}, which has a channel of zeros more" if copies else ""),
            "halves": f"{HALF} products are summed at once of bytes that are stored with 16 bits; {WORD} would be of "
            f"weights that cannot saturate ({REDUCE})",
            "whole floats": "sums of integers, which floats hold exactly: elements are not shifted and scaled",
            "singles": "products of a window are summed as integers, one by one, and what it reads is not made floats",
            "floats": failed.get("integers", "sums of bytes take no less time"),
        }
        return self._ledger.decide(
            rule=RULE,
            site=item.origin,
            subject=(item.name, x.element.tensor, w.element.tensor),
            alternatives=alternatives,
            prefer=best,
            reason=str(reasons[best]),
            failed=failed,
        )

    def _pairs_fit(self, summed: Reduce, w: Quantized) -> bool:
        """Whether the target gains by weights whose pairs fit, and these are such."""
        if not gains_by_pairs(self._target):
            return False
        constant = self._constants[w.element.tensor]
        weights = constant.read()
        signed = weights if constant.dtype is DType.I8 else weights.astype(np.int16) - FLIPPED
        places = enumerate(w.element.indices)
        neighbours = {p for p, index in places if any(counts_words(index, axis, WORD) for axis in summed.axes)}
        return any(pairs_fit(signed, place) for place in neighbours)

    def _stored_wide(self, element: Load) -> float:
        """Seconds that storing the elements of a value with 16 bits takes more, and copying those that others see."""
        size = self._expected.product(self._storage.signatures[element.tensor][1])
        if self._storage.is_computed(element.tensor):
            return traffic(size, self._target)
        return core_of(self._target).launch + traffic(3 * size, self._target)

    def _beyond_weights(self, item: Tensor, w: Quantized) -> str | None:
        """Why the sums of weights that zero points are multiplied by cannot be stored: there is one for each position,
        not for each channel, as where a transposed convolution takes other weights at odd positions than at even."""
        own = product(axis.extent for axis in item.axes if axis in axes_in(w.element)).constant
        if own is None or own > math.prod(int(dim) for dim in self._constants[w.element.tensor].shape):
            return "sums of weights would be more numbers than the weights"
        return None

    # ---------------------------------------------------------------------------------------------------- the result

    def _total(self, item: Tensor, summed: Reduce, x: Quantized, w: Quantized) -> tuple[tuple[Tensor, ...], Expr]:
        """The sum of products, without zero points and scaled; and the tensors that it needs."""
        if x.element.dtype is DType.I8:
            x = x.shifted(const(FLIPPED, DType.I32), FLIPPED, FLIPPED)
        if self._constants[w.element.tensor].dtype is DType.U8:
            w = w.shifted(const(-FLIPPED, DType.I32), -FLIPPED, -FLIPPED)
        weight = cast(load(self._storage.signed(w.element.tensor), DType.I8, w.element.indices), DType.I32)
        return self._corrected(item, summed, x, w, cast(self._storage.unsigned(x.element), DType.I32), weight)

    def _singles(self, item: Tensor, summed: Reduce, x: Quantized, w: Quantized) -> tuple[tuple[Tensor, ...], Expr]:
        """The same of words that hold a single number: unsigned ones of x, and those of w."""
        if x.element.dtype is DType.I8:
            x = x.shifted(const(FLIPPED, DType.I32), FLIPPED, FLIPPED)
        weight = load(self._storage.words(w.element.tensor), DType.I32, w.element.indices)
        return self._corrected(item, summed, x, w, cast(self._storage.unsigned(x.element), DType.I32), weight, "dot2i")

    def _corrected(
        self, item: Tensor, summed: Reduce, x: Quantized, w: Quantized, number: Expr, weight: Expr, op: str = "mul"
    ) -> tuple[tuple[Tensor, ...], Expr]:
        """The sum of products of integers, which are x and w as they are stored, without zero points and scaled."""
        total = reduce("sum", summed.axes, binary(op, number, weight))
        before: tuple[Tensor, ...] = ()
        # (x - zx) * (w - zw) = x * w - zx * (w - zw) - x * zw
        centred = weight if w.zero is None else binary("sub", weight, w.zero)
        if not is_zero(x.zero):
            assert x.zero is not None
            # Added, so that it is what an accumulator begins with.
            shift = self._constant(item, reduce("sum", summed.axes, centred), _negated(x.zero))
            total = binary("add", total, shift)
        if not is_zero(w.zero):
            assert w.zero is not None
            before, read = self._sums(item, summed, x, number)
            total = binary("sub", total, binary("mul", read, w.zero))
        return before, self._scaled(item, cast(total, summed.dtype), x, w)

    def _sums(self, item: Tensor, summed: Reduce, x: Quantized, number: Expr) -> tuple[tuple[Tensor, ...], Load]:
        """Tensors of the sums of the integers themselves, of a window by its points, and where a reader finds them."""
        shape = self._storage.signatures.get(x.element.tensor, (None, ()))[1]
        name = self._storage.name(f"{item.name}_points")
        results = product(axis.extent for axis in item.axes if axis in free_atoms(number))
        points = point_sums(number, summed.axes, results, shape, name, self._expected) if shape else None
        if points is None:
            sums, read = self._tensor(item, reduce("sum", summed.axes, number), "sums")
            return (sums,), read
        self._ledger.set_label(name, f"{self._ledger.label(item.name)} points")
        sums, read = self._tensor(item, points.windows, "sums")
        return (Tensor(name, number.dtype, points.axes, points.body, item.origin), sums), read

    def _halves(self, item: Tensor, summed: Reduce, x: Quantized, w: Quantized) -> tuple[tuple[Tensor, ...], Expr]:
        """The same of numbers that lie in memory with 16 bits."""
        weight = cast(load(self._storage.halves(w.element.tensor), DType.I16, w.element.indices), DType.I32)
        number = cast(self._storage.half(x.element), DType.I32)
        return self._corrected(item, summed, x, w, number, weight)

    def _whole(self, item: Tensor, summed: Reduce, x: Quantized, w: Quantized) -> tuple[tuple[Tensor, ...], Expr]:
        """The same of floats that hold the integers."""
        weight = cast(w.element, DType.I32)
        centred = weight if w.zero is None else binary("sub", weight, w.zero)
        factors = binary("mul", cast(x.element, summed.dtype), cast(centred, summed.dtype))
        total = reduce("sum", summed.axes, factors)
        if not is_zero(x.zero):
            assert x.zero is not None
            shift = self._constant(item, reduce("sum", summed.axes, centred), x.zero)
            total = binary("sub", total, cast(shift, summed.dtype))
        return (), self._scaled(item, total, x, w)

    def _scaled(self, item: Tensor, total: Expr, x: Quantized, w: Quantized) -> Expr:
        """A sum of products times both scales."""
        scales = [scale for scale in (x.scale, w.scale) if scale is not None]
        if scales:
            scale = scales[0] if len(scales) == 1 else binary("mul", *scales)
            total = binary("mul", total, cast(self._constant(item, simplify(scale)), total.dtype))
        return total

    def _constant(self, item: Tensor, value: Expr, factor: Expr | None = None) -> Expr:
        """A value, times a factor, as an element of a constant of its own where it is made of constants; the part that
        is, otherwise."""
        whole = value if factor is None else simplify(binary("mul", factor, value))
        for known in (whole, value):
            read = {node.tensor for node in loads(known)}
            if not read or not read <= self._constants.keys() | self._made.keys() or not _is_of({*item.axes}, known):
                continue
            if isinstance(known, Load):
                return whole
            tensor, element = self._tensor(item, known, "shift" if known.dtype is DType.I32 else "scale")
            sources = {name: self._constants.get(name) or self._made[name] for name in read}
            self._made[tensor.name] = folded(tensor, sources)
            return element if known is whole or factor is None else binary("mul", factor, element)
        return whole

    def _tensor(self, item: Tensor, value: Expr, hint: str) -> tuple[Tensor, Load]:
        """A tensor of a value for each element of the axes it depends on, and where a reader finds it."""
        own = [axis for axis in item.axes if axis in free_atoms(value) and axis.extent is not ONE]
        axes = tuple(Axis(f"i{number}", axis.extent) for number, axis in enumerate(own))
        mapping: dict[Atom, Dim] = {axis: ZERO for axis in item.axes if axis.extent is ONE}
        mapping |= {old: new.dim for old, new in zip(own, axes, strict=True)}
        name = self._storage.name(f"{item.name}_{hint}")
        tensor = Tensor(name, value.dtype, axes, substitute(value, mapping), item.origin)
        self._ledger.set_label(name, f"{self._ledger.label(item.name)} {hint}")
        read = load(name, value.dtype, tuple(axis.dim for axis in own))
        assert isinstance(read, Load)
        return tensor, read


def _is_of(axes: set[Axis], *values: Expr | None) -> bool:
    """Whether values depend on no other axes than these."""
    atoms = (atom for value in values if value is not None for atom in free_atoms(value))
    return all(atom in axes for atom in atoms if isinstance(atom, Axis))


def _negated(zero: Expr) -> Expr:
    return simplify(binary("sub", const(0, DType.I32), zero))
