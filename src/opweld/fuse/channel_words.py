"""Pictures of few channels in whole words: three channels and one of zeros, so that a word of bytes is one point.

    sum<c: 3>(x[c] * w[c])  =  sum<c: 4>(x4[c] * w4[c])    where x4[3] = 0 and w4[3] is the zero point of w

The first layer of a network reads three channels, of which no whole words can be made: its products would be of floats,
one by one. With a fourth one four are summed at once, a quarter of which are nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from opweld.fuse.prologues import folded
from opweld.tensor.dim import Atom, Axis, Dim
from opweld.tensor.expr import Const, Expr, Load, Reduce, const, load, reduce, substitute
from opweld.tensor.program import Constant, Tensor

MOST = 16
"""Channels beyond which what is left of the last word is a small part."""


@dataclass(frozen=True)
class Words:
    """A sum over a channel more.

    Attributes:
        summed: it, of elements of 0; the factors are for whoever makes the sum.
        picture, weights: what are read, and how.
    """

    summed: Reduce
    picture: Tensor
    weights: Constant
    x: Load
    w: Load


def channel_axis(summed: Reduce, x: Load, w: Load, word: int) -> Axis | None:
    """The axis of a sum that counts channels of both operands, one less than fill whole words; None without one."""
    for axis in summed.axes:
        size = axis.extent.constant or 0
        guarded = any(guard.depends_on(axis) for guard in x.guards)
        if size < MOST and size % word == word - 1 and not guarded and None not in (_place(x, axis), _place(w, axis)):
            return axis
    return None


def _place(element: Load, axis: Axis) -> int | None:
    """The index of an element that is the axis, where no other one depends on it."""
    found = [place for place, index in enumerate(element.indices) if index.depends_on(axis)]
    return found[0] if len(found) == 1 and element.indices[found[0]] is axis.dim else None


def in_words(
    summed: Reduce,
    axis: Axis,
    x: tuple[Load, tuple[Dim, ...], str],
    w: tuple[Load, Constant, str],
    zero: Expr | None,
    origin: tuple[str, ...],
) -> Words:
    """The sum with one channel more.

    x: the element, the shape of what it is of, and a name for the copy.
    w: the element, its constant, and a name for the longer one. zero: the zero point of w, a literal or None."""
    (picture, shape, x_name), (weight, constant, w_name) = x, w
    longer = Axis(axis.name, axis.extent + 1)
    mapping: dict[Atom, Dim] = {axis: longer.dim}
    axes = tuple(longer if one is axis else one for one in summed.axes)
    fill = int(zero.value) if isinstance(zero, Const) else 0
    copy = _longer(picture, shape, axis, x_name, 0, origin)
    made = folded(_longer(weight, constant.shape, axis, w_name, fill, origin), {constant.name: constant})
    found = (substitute(load(name, one.dtype, one.indices, one.guards, one.fill), mapping) for name, one in (
        (x_name, picture), (w_name, weight)
    ))  # fmt: skip
    read, of_weights = found
    assert isinstance(read, Load) and isinstance(of_weights, Load)
    whole = reduce("sum", axes, substitute(summed.body, mapping))
    assert isinstance(whole, Reduce)
    return Words(whole, copy, made, read, of_weights)


def _longer(element: Load, shape: tuple[Dim, ...] | tuple[int, ...], axis: Axis, name: str, fill: int,
            origin: tuple[str, ...]) -> Tensor:  # fmt: skip
    """What an element is of, with one channel more of a number."""
    place = _place(element, axis)
    axes = tuple(Axis(f"i{p}", extent + (p == place)) for p, extent in enumerate(shape))
    assert place is not None
    guard = axis.extent - 1 - axes[place].dim
    value = load(element.tensor, element.dtype, tuple(a.dim for a in axes), (guard,), const(fill, element.dtype))
    return Tensor(name, element.dtype, axes, value, origin)
