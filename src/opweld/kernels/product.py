"""Products with the template of `matmul`: which kernel and tiles for which shapes, and how it is launched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from opweld.kernels.devices import architecture, processors
from opweld.kernels.matmul import combine, multiply, multiply_tma  # pyright: ignore[reportUnknownVariableType]
from opweld.kernels.matmul_specialized import specialized_launch
from opweld.kernels.registration import is_traced, launch
from opweld.kernels.sizes import ceil_div
from opweld.kernels.variant import Variant, variant

Precision = Literal["ieee", "tf32", "fast"]
"""How float32 is multiplied, and float8 summed: fast leaves whole sums to tensor cores, which keep 14 bits."""

COMBINED = (16, 128)
"""The tile of the sum of partial sums."""


@dataclass(frozen=True)
class Configuration:
    """How a product is computed.

    Attributes:
        block_m, block_n, block_k: the tile of a program, and how much of the sum it takes at a time.
        warps, stages: of a program, and of its pipeline of loads.
        split: programs that share one tile's sum.
        tma: through tensor descriptors, programs that stay (sm_90).
        parts: in how many parts of its columns a tile is stored.
        group: tiles of a column that follow one another.
        programs: with tma, how many stay on each multiprocessor; of 0 each takes one tile.
        flat: with tma, loads of the next tile run while one is stored.
        stores_tma: with tma, results are stored through a descriptor, too.
        specialized: with tma and 128 rows, warps of their own load (`matmul_specialized`), of 16 bits on sm_90.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    split: int = 1
    tma: bool = False
    parts: int = 2
    group: int = 8
    programs: int = 1
    flat: bool = True
    stores_tma: bool = False
    specialized: bool = False

    def __str__(self) -> str:
        suffix = f"{' tma' if self.tma else ''}{f' split {self.split}' if self.split > 1 else ''}"
        suffix += f"{'' if self.flat else ', not flat'}{', stored by tma' if self.stores_tma else ''}"
        suffix += f", {self.parts} parts of {self.group}, specialised" if self.specialized else ""
        suffix += "" if self.programs == 1 else f", {self.programs} programs" if self.programs else ", a tile a program"
        return f"{self.block_m}x{self.block_n}x{self.block_k} w{self.warps} s{self.stages}{suffix}"


CANDIDATES = (
    Configuration(128, 256, 64, 8, 4, tma=True),
    Configuration(128, 256, 64, 8, 3, tma=True),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, group=4),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, group=16),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, stores_tma=True),
    Configuration(128, 256, 64, 8, 3, tma=True, stores_tma=True),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, flat=False),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, flat=False, stores_tma=True),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, flat=False, programs=0),
    Configuration(128, 256, 128, 8, 2, tma=True, parts=4),
    Configuration(256, 128, 64, 8, 4, tma=True, parts=4),
    Configuration(128, 128, 64, 4, 3, tma=True, parts=4, programs=2),
    Configuration(128, 128, 64, 4, 3, tma=True, parts=4, flat=False, programs=0),
    Configuration(128, 256, 64, 8, 3, tma=True, group=16),
    Configuration(256, 128, 64, 8, 3, tma=True),
    Configuration(128, 128, 64, 8, 4, tma=True),
    Configuration(128, 128, 64, 4, 4, tma=True),
    Configuration(128, 256, 64, 8, 3),
    Configuration(128, 256, 64, 8, 4),
    Configuration(256, 128, 64, 8, 3),
    Configuration(128, 128, 64, 4, 4),
    Configuration(128, 128, 64, 8, 4),
)
"""Configurations for 16 bits that a benchmark may try in place of `configuration`'s."""

SPECIALIZED = (
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, specialized=True),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=4, group=16, specialized=True),
    Configuration(128, 256, 64, 8, 4, tma=True, parts=2, specialized=True),
    Configuration(128, 256, 64, 8, 3, tma=True, parts=2, specialized=True),
    Configuration(128, 256, 32, 8, 6, tma=True, parts=2, specialized=True),
    Configuration(128, 128, 64, 8, 5, tma=True, parts=1, specialized=True),
)
"""The same with specialised warps. None is a default before one is measured."""


def configuration(
    arch: int, dtype: torch.dtype, shape: tuple[int, int, int], cores: int, precision: str
) -> Configuration:
    """The configuration for [M, K] by [N, K] on an architecture with so many multiprocessors: 128 bytes of the sum at a
    time; the largest tile of which there is one for each multiprocessor; few rows on small tiles, the sum split among
    programs while multiprocessors would have none."""
    m, n, k = shape
    if dtype == torch.float32 and precision == "ieee":
        return Configuration(64, 64, 16, 4, 3, parts=1)  # no tensor core computes it
    depth = 128 // dtype.itemsize
    if m <= 16:
        chosen = Configuration(16, 64, 2 * depth, 4, 4, parts=1)
        wanted = 2 * cores
    elif m <= 64:
        chosen = Configuration(64, 128, depth if arch >= 90 else depth // 2, 4, 4)
        wanted = cores
    elif dtype == torch.float32:
        chosen = Configuration(128, 128, depth, 8, 3)
        wanted = cores
    elif dtype == torch.float8_e4m3fn and precision == "ieee":
        # Accumulators twice, of a block and of all. Of 8192^3 on an H200, 2026-11-26: 1.067 ms; one program of 8 warps
        # on a multiprocessor 1.134.
        chosen = Configuration(128, 128, depth, 4, 3, tma=True, programs=2, parts=4)
        wanted = 1
    elif ceil_div(m, 128) * ceil_div(n, 256) >= cores:
        if arch < 90:
            return Configuration(128, 256, depth // 2, 8, 3)
        # bfloat16 on an H100 80GB HBM3, 2026-11-26: of 4096^3 0.204 ms stored in 4 parts, 0.212 in 2; of 8192^3 1.625
        # and 1.786. One byte was measured in 2 only.
        return Configuration(128, 256, depth, 8, 4, tma=True, parts=4 if dtype.itemsize == 2 else 2)
    else:
        chosen = Configuration(128, 128, depth, 8, 4) if arch >= 90 else Configuration(128, 128, depth // 2, 4, 4)
        wanted = cores
    tiles = ceil_div(m, chosen.block_m) * ceil_div(n, chosen.block_n)
    split = max(1, min(wanted // tiles, k // (4 * chosen.block_k), 16))
    return replace(chosen, split=split)


def without_tma(chosen: Configuration) -> Configuration:
    """The same tile through pointers, whose pipeline has a stage less: of the 227 KB each takes as much."""
    stages = min(chosen.stages, 3) if chosen.block_m * chosen.block_n > 128 * 128 else chosen.stages
    return replace(chosen, stages=stages, tma=False, programs=1, flat=True, stores_tma=False, specialized=False)


def saving_parts(parts: int) -> int:
    """In how many parts a tile is stored beside what is saved of it: two results at a time, in the same registers."""
    return 4 if parts > 1 else 1


def is_described(operand: Tensor) -> bool:
    """A tensor descriptor can be made of the matrix: one stride is 1, the other and the address multiples of 16 bytes.

    Elements of other than 16 bits must lie along the sum: tensor cores take these only so."""
    inner, outer = sorted(operand.stride())
    turned = operand.stride(1) != 1
    aligned = operand.data_ptr() % 16 == 0 and outer * operand.itemsize % 16 == 0
    return inner == 1 and aligned and not (turned and operand.itemsize != 2) and min(operand.shape) > 1


def product(
    a: Tensor,
    b: Tensor,
    dtype: torch.dtype,
    *,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    activation: str = "none",
    save: bool = False,
    scales: tuple[Tensor, Tensor] | None = None,
    precision: Precision = "ieee",
    chosen: Configuration | None = None,
) -> tuple[Tensor, Tensor]:
    """activation(a b^T + bias) + residual in a dtype, and, when saved, what the activation was of (else empty).

    a is [M, K] and b [N, K], of any strides; bias [N]; residual [M, N], its rows dense; scales [M] and [N], float32,
    are what sums are multiplied by."""
    (m, k), n = a.shape, b.shape[0]
    out = a.new_empty((m, n), dtype=dtype)
    saved = torch.empty_like(out) if save else out.new_empty(0)
    if out.numel() == 0:
        return out, saved
    nothing = out.new_empty(0)
    arch = architecture(a.device)
    chosen = chosen or configuration(arch, a.dtype, (m, n, k), processors(a.device), precision)
    if chosen.tma and (is_traced() or k < chosen.block_k or not (is_described(a) and is_described(b))):
        chosen = without_tma(chosen)
    unsaved = not save and scales is None
    if chosen.specialized and unsaved and arch // 10 == 9 and _specializes(out, a, b, residual):
        specialized_launch(
            out, a, b, bias, residual, activation, block_n=chosen.block_n, block_k=chosen.block_k, stages=chosen.stages,
            parts=chosen.parts, group=chosen.group, cores=processors(a.device),
        ).run(a.device)  # fmt: skip
        return out, saved
    if save:
        chosen = replace(chosen, parts=saving_parts(chosen.parts))
    residual_rows = nothing if residual is None else residual
    scale_a, scale_b = scales if scales is not None else (nothing, nothing)
    rest = (out, saved, nothing if bias is None else bias, residual_rows, scale_a, scale_b)
    strides = (n, n if residual is None else residual.stride(0))
    flags: dict[str, Any] = {
        "ACTIVATION": activation,
        "HAS_BIAS": bias is not None,
        "HAS_RESIDUAL": residual is not None,
        "SAVE": save,
        "SCALED": scales is not None,
    }
    tile: dict[str, Any] = {
        **_arithmetic(a.dtype, precision, chosen),
        "BLOCK_M": chosen.block_m,
        "BLOCK_N": chosen.block_n,
        "BLOCK_K": chosen.block_k,
        "GROUP": chosen.group,
        "PARTS": chosen.parts,
        "num_warps": chosen.warps,
        "num_stages": chosen.stages,
    }
    tiles = ceil_div(m, chosen.block_m) * ceil_div(n, chosen.block_n)
    if chosen.tma:
        a_turned, b_turned = a.stride(1) != 1, b.stride(1) != 1
        described = (
            _descriptor(a, a_turned, chosen.block_m, chosen.block_k),
            _descriptor(b, b_turned, chosen.block_n, chosen.block_k),
        )
        stores_tma = chosen.stores_tma and is_described(out)
        if stores_tma:
            part = [chosen.block_m, chosen.block_n // chosen.parts]
            rest = (TensorDescriptor.from_tensor(out, part), *rest[1:])
        programs = min(tiles, processors(a.device) * chosen.programs) if chosen.programs else tiles
        launch(
            multiply_tma, (programs,), *described, *rest, m, n, k, *strides, A_TURNED=a_turned, B_TURNED=b_turned,
            INTEGERS=a.dtype == torch.int8, FLAT=chosen.flat, OUT_DESCRIBED=stores_tma, **flags, **tile,
        )  # fmt: skip
        return out, saved
    sums = torch.int32 if a.dtype == torch.int8 else torch.float32
    partial = a.new_empty((chosen.split, m, n), dtype=sums) if chosen.split > 1 else nothing
    launch(
        multiply, (tiles, chosen.split), a, b, *rest, partial, m, n, k, *a.stride(), *b.stride(), *strides,
        EVEN_MN=m % chosen.block_m == 0 and n % chosen.block_n == 0, EVEN_K=k % (chosen.block_k * chosen.split) == 0,
        SPLIT=chosen.split, **flags, **tile,
    )  # fmt: skip
    if chosen.split > 1:
        grid = (ceil_div(m, COMBINED[0]), ceil_div(n, COMBINED[1]))
        launch(
            combine, grid, partial, *rest, m, n, *strides, **flags, SPLIT=chosen.split, BLOCK_M=COMBINED[0],
            BLOCK_N=COMBINED[1], num_warps=4,
        )  # fmt: skip
    return out, saved


def _specializes(out: Tensor, a: Tensor, b: Tensor, residual: Tensor | None) -> bool:
    """Whether warps may be specialised: 16 bits, operands along the sum, descriptors of what is stored and added."""
    along = a.stride(1) == b.stride(1) == 1 and a.itemsize == out.itemsize == 2
    return along and is_described(out) and (residual is None or is_described(residual))


def _arithmetic(dtype: torch.dtype, precision: Precision, chosen: Configuration) -> dict[str, Any]:
    summed = chosen.block_k if dtype == torch.float8_e4m3fn and precision != "fast" else None
    return {"PRECISION": "tf32" if precision == "tf32" else "ieee", "IMPRECISE": summed}


def _descriptor(operand: Tensor, turned: bool, block: int, block_k: int) -> Any:
    return TensorDescriptor.from_tensor(
        operand.t() if turned else operand, [block_k, block] if turned else [block, block_k]
    )


TRITON_NAMES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.float8_e4m3fn: "fp8e4nv",
}


def variants(
    name: str, arch: int, dtype: torch.dtype, constants: dict[str, Any], *, precision: Precision = "ieee",
    turned: tuple[bool, bool] = (False, False),
) -> Iterator[Variant]:  # fmt: skip
    """What is compiled ahead of time for a dtype: the default configurations of large, middling and small products,
    whose operands are turned or not; `constants` are the flags of the epilogue."""
    element, cores = TRITON_NAMES[dtype], 132 if arch >= 90 else 108
    result = "*bf16:16" if dtype.itemsize == 1 else f"*{element}:16"
    pointers = dict.fromkeys(("out", "saved", "bias", "residual"), result)
    pointers |= dict.fromkeys(("scale_a", "scale_b"), "*fp32:16")
    pointers |= {"partial": "*i32:16" if dtype == torch.int8 else "*fp32:16"}
    sizes = dict.fromkeys(("M", "N", "K", "out_stride", "residual_stride"), "i32:16")
    flags = {"HAS_BIAS": True, "HAS_RESIDUAL": False, "SAVE": False, "SCALED": False, "ACTIVATION": "none"}
    done: set[Configuration] = set()
    for shape in ((8192, 8192, 8192), (1024, 1024, 4096), (64, 4096, 4096), (16, 4096, 4096)):
        chosen = configuration(arch, dtype, shape, cores, precision)
        for one in (chosen, without_tma(chosen)) if chosen.tma else (chosen,):
            if one in done or (one.tma and any(turned) and dtype.itemsize != 2):
                continue
            tile = {"BLOCK_M": one.block_m, "BLOCK_N": one.block_n, "BLOCK_K": one.block_k, "GROUP": one.group}
            tile |= {
                "PARTS": saving_parts(one.parts) if constants.get("SAVE") else one.parts,
                "SPLIT": one.split,
                "EVEN_MN": True,
                "EVEN_K": True,
            }
            values = flags | constants | tile | _arithmetic(dtype, precision, one)
            values |= {"A_TURNED": turned[0], "B_TURNED": turned[1], "INTEGERS": dtype == torch.int8}
            values |= {"FLAT": one.flat, "OUT_DESCRIBED": False}
            values |= {"a_m" if turned[0] else "a_k": 1, "b_n" if turned[1] else "b_k": 1}
            types = pointers | sizes | dict.fromkeys(("a_m", "a_k", "b_n", "b_k"), "i32:16")
            types |= {"a": f"*{element}:16", "b": f"*{element}:16"}
            if one.tma:
                types |= {
                    key: f"tensordesc<{element}[{f'{one.block_k}, {block}' if turn else f'{block}, {one.block_k}'}]>"
                    for key, turn, block in zip("ab", turned, (one.block_m, one.block_n), strict=True)
                }
            suffix = f" turned {'ab'[turned[1]] if sum(turned) == 1 else 'both'}" if any(turned) else ""
            of = f"{name} {element}{'' if precision == 'ieee' else f' {precision}'}"
            label = f"{of}{suffix} {one}"
            yield variant(label, multiply_tma if one.tma else multiply, types, values, one.warps, one.stages)
            if one.split > 1 and not any(turned) and all(one.split != other.split for other in done):
                values |= {"BLOCK_M": COMBINED[0], "BLOCK_N": COMBINED[1]}
                yield variant(f"{of} sum of {one.split}", combine, types, values, 4)
            done.add(one)
