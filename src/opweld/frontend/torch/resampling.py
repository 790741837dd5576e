"""Pictures at other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.resampled_bytes import Resampling, resampled_bytes
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType


def _resized(
    b: Builder, x: Value, output_size: Sequence[Any] | None, factors: Sequence[float] | None, **attributes: Any
) -> Value:
    if factors:
        scales = b.constant([1.0, 1.0, *factors], DType.F32)
        return b.op("Resize", x, None, scales, None, **attributes)
    assert output_size is not None
    sizes = b.ints([*b.sizes(x)[:2], *output_size])
    return b.op("Resize", x, None, None, sizes, **attributes)


def _are_known_bytes(b: Builder, x: Value) -> bool:
    """Whether pictures are bytes, which are summed as integers where all their sizes are known. Where one is not, they
    are rounded once, and may be one off."""
    return b.dtype is DType.U8 and all(isinstance(size, int) for size in (*b.shape(x)[2:], *b.made.shape[2:]))


def _nearest(mode: str, b: Builder, x: Value, output_size: Any, scale_factors: Any = None) -> Value:
    return _resized(
        b, x, output_size, scale_factors, mode="nearest", coordinate_transformation_mode=mode, nearest_mode="floor"
    )


for _n in (1, 2, 3):
    aten(f"upsample_nearest{_n}d.vec")(partial(_nearest, "asymmetric"))


def _linear(b: Builder, x: Value, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Value:
    if b.rank(x) == 4 and _are_known_bytes(b, x):
        how = Resampling(cubic=False, smoothed=False, aligned=align_corners)
        return resampled_bytes(b, x, b.made.shape[2:], scale_factors or (None, None), how)
    transformation = "align_corners" if align_corners else "half_pixel"
    return _resized(b, x, output_size, scale_factors, mode="linear", coordinate_transformation_mode=transformation)


aten("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")(_linear)


@aten("upsample_bicubic2d.vec")
def bicubic(b: Builder, x: Value, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Value:
    """Cubic, of PyTorch's coefficient."""
    if _are_known_bytes(b, x):
        how = Resampling(cubic=True, smoothed=False, aligned=align_corners)
        return resampled_bytes(b, x, b.made.shape[2:], scale_factors or (None, None), how)
    transformation = "align_corners" if align_corners else "half_pixel"
    return _resized(
        b,
        x,
        output_size,
        scale_factors,
        mode="cubic",
        cubic_coeff_a=-0.75,
        coordinate_transformation_mode=transformation,
    )


def _smoothed(
    b: Builder,
    x: Value,
    output_size: Any,
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
    *,
    mode: str,
) -> Value:
    """Smaller by averages over what each element stands for, as Pillow does it. Where a factor is told, places are
    by that, not by what the sizes make of it."""
    if align_corners:
        raise UnsupportedError(f"node {b.name!r}: smoothed, with aligned corners")
    factors = (scales_h, scales_w)
    if _are_known_bytes(b, x):
        return resampled_bytes(b, x, b.made.shape[2:], factors, Resampling(cubic=mode == "cubic", smoothed=True))
    return _resized(
        b,
        x,
        output_size,
        None if scales_h is None or scales_w is None else (scales_h, scales_w),
        mode=mode,
        cubic_coeff_a=-0.5 if mode == "cubic" else None,
        antialias=1,
        exclude_outside=1,
        coordinate_transformation_mode="half_pixel",
    )


aten("_upsample_bilinear2d_aa.default")(partial(_smoothed, mode="linear"))
aten("_upsample_bicubic2d_aa.default")(partial(_smoothed, mode="cubic"))


@aten("grid_sampler_2d.default", "grid_sampler_3d.default", "grid_sampler.default")
def grid_sample(
    b: Builder, x: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """Pictures looked up at places that a grid tells."""
    return b.op(
        "GridSample",
        x,
        grid,
        mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
        align_corners=int(align_corners),
    )
