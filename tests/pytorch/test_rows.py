"""What each ATen operator says, against eager PyTorch, with the interpreter of tensor programs: nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opweld
from tests.pytorch.function import Function

pytestmark = pytest.mark.usefixtures("interpreter")

INF, NAN = float("inf"), float("nan")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def whole(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(low, high, shape)).to(dtype)


X, Y, POSITIVE = normal(3, 5), normal(3, 5, seed=1), normal(3, 5).abs() + 0.1
ODD = torch.tensor([0.0, -0.0, 1.5, -2.5, 3.5, INF, -INF, NAN, 0.25])
WHOLE, DIVISORS = whole(3, 5), whole(3, 5, low=1)
FLAGS, IMAGE = X > 0, normal(2, 4, 6, 7)
STEPS = torch.linspace(-3.7, 3.9, 39)
BILINEAR = normal(2, 5, 5)
Z = torch.complex(X, Y)

CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    # promotion of types
    "an integer and a float": (lambda x, i: x + i, (X, WHOLE)),
    "an integer divided is a float": (lambda i, j: i / j, (WHOLE, DIVISORS)),
    "a number does not widen": (lambda x: (x.half() * 2.5, x.to(torch.int8) + 1), (X,)),
    "products of bytes wrap around": (
        lambda x, y: (
            x @ y,
            torch.addmm(x[:, :3], x, y, alpha=3),
            x.prod(dtype=x.dtype),
            x.cumsum(1, dtype=x.dtype),
            y**3,
        ),
        (whole(3, 40, low=-128, high=128, dtype=torch.int8), whole(40, 3, low=-128, high=128, dtype=torch.int8)),
    ),
    "extremes of 16 bits": (
        lambda x: (x.amax(1), x.min(), *x.cummax(0), *x.aminmax(dim=1)),
        (whole(5, 7, low=-40000, high=40000, dtype=torch.int16),),
    ),
    "numbers wrap around": (lambda i: i.to(torch.uint8) - 1, (WHOLE.abs(),)),
    "constants wrap around": (
        lambda x: (
            torch.tensor(5, dtype=torch.uint8) < torch.neg(torch.tensor(5, dtype=torch.uint8)),
            torch.tensor([100, 27], dtype=torch.int8) + 100 > 0,
            x,
        ),
        (X,),
    ),
    "common divisors and multiples of constants": (
        lambda x: (
            torch.gcd(torch.tensor([12, -18, 0]), torch.tensor(8)),
            x % torch.lcm(torch.tensor(4), torch.tensor(6)),
        ),
        (WHOLE,),
    ),
    "truth values add and multiply": (lambda b: (b + b, b * ~b, b.sum()), (FLAGS,)),
    "compared as the wider type": (lambda x, i: (x > i, i == 2.5, x.half() < x), (X, WHOLE)),
    "bfloat16": (lambda x: (x.bfloat16() * 3).sum(-1), (X,)),
    "one of 16 bits and another": (lambda x: (x.bfloat16().half(), x.half().bfloat16(), x.half() + x.bfloat16()), (X,)),
    # arithmetic
    "rounded down": (lambda x, y: (x // y, torch.floor_divide(x, 0.7), torch.remainder(x, y)), (X, Y)),
    "rounded down, integers": (lambda i, j: (i // j, i % j, torch.fmod(i, j), i // -j, i % -j), (WHOLE, DIVISORS)),
    "rounded towards zero": (lambda x, y: (torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y)), (X, Y)),
    "odd numbers": (lambda x: (torch.sign(x), x.round(), x.trunc(), torch.clamp(x, -1, 2), x.relu()), (ODD,)),
    "powers": (lambda x: (x**2, x**3, x**-1, x**1.5, 2**x, x**0.5), (POSITIVE,)),
    "functions": (lambda x: (x.log2(), x.log10(), x.log1p(), x.expm1(), x.exp2(), x.rsqrt(), x.erf()), (POSITIVE,)),
    "near one": (lambda x: (torch.expm1(x * 1e-4), torch.log1p(x * 1e-4)), (X,)),
    "the known one": (lambda x, y: (torch.fmax(x, y), torch.fmin(y, x), torch.maximum(x, y)), (ODD, ODD.flip(0))),
    "signs": (lambda x: (torch.copysign(x.abs(), x), torch.copysign(x, -0.0)), (ODD,)),
    "bits": (lambda i: (i & 3, i | 8, i ^ 5, ~i, i << 2, i >> 1, i << 70), (WHOLE,)),
    "lengths": (lambda x, y: (torch.hypot(x, y), torch.hypot(x * 0, y)), (X, Y)),
    "places after the point": (lambda x: (x.round(decimals=2), (100 * x).round(decimals=-1), x.signbit()), (X,)),
    "lerp": (lambda x, y: (torch.lerp(x, y, 0.2), torch.lerp(x, y, 0.9)), (X, Y)),
    "angles": (torch.atan2, (X, Y)),
    # activations
    "activations": (
        lambda x: (
            functional.gelu(x),
            functional.gelu(x, approximate="tanh"),
            functional.silu(x),
            functional.elu(x, 1.5),
            functional.selu(x),
        ),
        (X,),
    ),
    "more": (
        lambda x: (
            functional.hardswish(x),
            functional.softplus(x, 2, 1),
            functional.hardsigmoid(x),
            functional.mish(x),
            functional.logsigmoid(x),
        ),
        (X,),
    ),
    "halves": (
        lambda x: (functional.glu(x, 0), functional.leaky_relu(x, 0.3), functional.hardtanh(x, -0.5, 0.5)),
        (normal(4, 3),),
    ),
    # reductions
    "means": (lambda x: (x.mean(), x.sum(0), x.mean((0, 1), keepdim=True), x.prod(1)), (X,)),
    "extremes": (lambda x: (x.max(), x.amin(0), *x.max(1), *x.min(0, keepdim=True), x.argmax(), x.argmin(1)), (X,)),
    "spread": (lambda x: (x.var(), x.std(1), x.var(0, correction=0), *torch.var_mean(x, 1)), (X,)),
    "spread of many halves": (lambda x: x.half().expand(70000, 3, 5).var(0, correction=0), (X,)),
    "truths": (lambda x: ((x > 0).any(1), (x > -9).all(), x.bool().any()), (X,)),
    "running": (lambda x, i: (x.cumsum(0), i.cumsum(1), x.cumprod(1), x.logsumexp(1)), (X, WHOLE)),
    "running along a long axis": (
        lambda x, i: (x.double().cumsum(0), i.cumsum(1), x[:1100].exp2().cumprod(0)),
        (normal(2100, 2) / 9, whole(2, 1024 * 2)),
    ),
    "norms": (lambda x: (x.norm(), x.norm(1, 0), torch.linalg.vector_norm(x, INF, 1), functional.normalize(x)), (X,)),
    "distances": (lambda x, y: (torch.dist(x, y), torch.cdist(x, y), torch.cdist(x, y, 1.0)), (X, Y)),
    "histogram": (lambda x: (torch.histc(x, 5, -1, 1), torch.histc(x, 4, -2, 0)), (X,)),
    "the middle": (lambda x: (*x.median(1), *x.kthvalue(2, 0)), (X,)),
    # movement
    "views": (
        lambda x: (x.view(5, 3), x.flatten(), x.t(), x[None, ..., None].squeeze(0), x.unflatten(1, (5, 1))),
        (X,),
    ),
    "parts": (lambda x: (x[1:, ::2], x[-1], x[:, 1:-1], *x.split(2, 1), *x.chunk(2), *x.unbind(0)), (X,)),
    "joined": (lambda x, i: (torch.cat([x, i], 1), torch.stack([x, x], -1)), (X, WHOLE)),
    "padded": (
        lambda x: (functional.pad(x, (1, 2, -1, 0), value=2.0), functional.pad(x[None], (2, 1), mode="reflect")),
        (X,),
    ),
    "edges": (lambda x: (functional.pad(x, (1, 2, 2, 1), mode="replicate"), functional.pixel_shuffle(x, 2)), (IMAGE,)),
    "turned": (lambda x: (x.flip(0, 1), x.roll(7, 1), x.roll(2), x.repeat(2, 1), x.repeat_interleave(2, 0)), (X,)),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.diagonal(), x.diagonal(1), torch.diag(x[0])), (X,)),
    "blocks": (
        lambda x: (
            functional.fold(x.reshape(2, -1)[:, :144].reshape(2, 12, 12), (5, 6), (2, 2), stride=(1, 2)),
            functional.fold(x.reshape(-1)[:108].reshape(12, 9), (5, 5), (3, 2), dilation=(1, 2), padding=1, stride=2),
        ),
        (IMAGE,),
    ),
    "windows": (lambda x: (x.unfold(1, 3, 2), functional.unfold(x[None, None], (2, 3))), (X,)),
    "strides": (
        lambda x: (torch.as_strided(x, (2, 3), (5, 1), 1), torch.as_strided_scatter(x, x[:2, :3], (2, 3), (5, 1), 1)),
        (X,),
    ),
    # creation
    "made": (lambda x: (torch.arange(3, 20, 4) + x.sum(), torch.full_like(x, 2), torch.eye(3), x.new_ones(2)), (X,)),
    "steps of integers": (
        lambda x: (
            torch.ops.prims.iota(5, start=3, step=-2, dtype=torch.int64, device="cpu", requires_grad=False),
            torch.empty_strided((2, 3), (1, 2)).fill_(4) + x.sum(),
        ),
        (X,),
    ),
    "steps of integers told in floats": (
        lambda x: (
            torch.arange(1.5, 7.2, 1.6, dtype=torch.int64),
            torch.arange(9.0, -3.0, -2.0, dtype=torch.int32),
            x.sum(),
        ),
        (X,),
    ),
    "numbers from a start to an end": (
        lambda x: (
            torch.linspace(x[0, 0], x[0, 1], 50),
            torch.linspace(-3, 50, 9, dtype=torch.int64),
            torch.linspace(x[0, 0], 4, 1, dtype=torch.float64),
        ),
        (X,),
    ),
    "steps": (lambda x: (torch.linspace(0, 1, 7) * x.sum(), torch.arange(0.0, 1.0, 0.3)), (X,)),
    # indices
    "gathered": (
        lambda x, i: (x[i], x[:, i], x[i, i], x.gather(1, i[:, None]), x[[0, 2], 1:3]),
        (X, whole(3, low=0, high=3)),
    ),
    "apart": (lambda x, i: (x[i, :, i], x[:, i, i], x[:, i]), (normal(3, 4, 5), torch.tensor([0, 2]))),
    "negative indices": (lambda x, i: x[i], (X, torch.tensor([-1, 0, -3]))),
    "chosen": (lambda x, b: (torch.where(b, x, 0.5), x.masked_fill(b, -INF), torch.where(b, 1, 0)), (X, FLAGS)),
    "written": (
        lambda x, i: (x.scatter(1, i, 2.0), x.scatter_add(1, i, x), x.index_fill(0, i[0, :1], 1.0)),
        (X, whole(3, 2, low=0, high=3)),
    ),
    "combined": (
        lambda x, i: (x.scatter_reduce(1, i, x, "amax"), x.scatter_reduce(1, i, x, "prod")),
        (X, whole(3, 2, low=0, high=5)),
    ),
    "replaced": (lambda x, y: (x.select_scatter(y[0], 0, 1), x.slice_scatter(y[:, :2], 1, 1, 5, 2)), (X, Y)),
    "put": (
        lambda x, y, i: (x.index_put((i, i), y[0, :3]), x.index_put((i,), y, accumulate=True)),
        (X, Y, torch.tensor([2, 0, 2])),
    ),
    "combined without x": (
        lambda x, i: [x.scatter_reduce(1, i, x, how, include_self=False) for how in ("sum", "mean", "amin", "prod")],
        (X, whole(3, 2, low=0, high=5)),
    ),
    "searched": (
        lambda x, y: (torch.bucketize(x, y), torch.searchsorted(y, x, right=True, out_int32=True)),
        (X, torch.tensor([-1.0, 0.0, 0.5])),
    ),
    "ordered": (lambda x: (*x.topk(2), *x.sort(0, descending=True), x.argsort(1)), (X,)),
    "ties stay in order": (lambda i: torch.sort(i, dim=1, stable=True), (whole(2, 9, low=0, high=3),)),
    "embedded": (lambda i: functional.embedding(i, torch.arange(12.0).reshape(4, 3)), (whole(2, 3, low=0, high=4),)),
    "one hot": (lambda i: functional.one_hot(i, 4), (whole(2, 3, low=0, high=4),)),
    # products
    "products": (
        lambda x, y: (x @ y.T, torch.addmm(x[:, :3], x, y.T, beta=0.5, alpha=2), functional.linear(x, y, y[:, 0])),
        (X, Y),
    ),
    "batches": (
        lambda x: (torch.bmm(x, x.mT), torch.baddbmm(x[:, :, :1], x, x.mT), torch.einsum("bij,bkj->bik", x, x)),
        (normal(2, 3, 4),),
    ),
    "rows of groups": (
        lambda x, w: functional.grouped_mm(x.bfloat16(), w.bfloat16(), offs=torch.tensor([2, 2, 5], dtype=torch.int32)),
        (normal(5, 8), normal(3, 8, 16)),
    ),
    "rounded once": (
        lambda x, y: (
            torch.addcmul(x, x, y),
            torch.lerp(x, y, 0.3),
            functional.gelu(x),
            functional.linear(x, y, -(x @ y.T)[0]),
            functional.batch_norm(x, y[0], y[1].abs() + 1, y[2], x[0]),
            functional.adaptive_avg_pool1d(x, 3),
            functional.rms_norm(x * 1e-3, (5,)),
        ),
        (X.half(), Y.half()),
    ),
    "attention": (lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True), (normal(2, 3, 5, 4),)),
    "attention with a mask": (
        lambda q, m: functional.scaled_dot_product_attention(q, q, q, m, scale=0.3),
        (normal(2, 3, 5, 4), normal(5, 5) > -0.5),
    ),
    "attention of nothing": (
        lambda q: functional.scaled_dot_product_attention(q, q, q, torch.zeros(5, 5, dtype=torch.bool)),
        (normal(1, 1, 5, 4),),
    ),
    "grouped heads": (
        lambda q: functional.scaled_dot_product_attention(q, q[:, :2], q[:, 2:], enable_gqa=True),
        (normal(2, 4, 3, 8),),
    ),
    # pictures
    "convolved": (
        lambda x: functional.conv2d(x, normal(6, 2, 3, 3), normal(6), stride=2, padding=1, groups=2),
        (IMAGE,),
    ),
    "transposed": (
        lambda x: functional.conv_transpose2d(x, normal(4, 3, 3, 2), stride=(2, 1), padding=1, output_padding=(1, 0)),
        (IMAGE,),
    ),
    "a line": (lambda x: functional.conv1d(x, normal(3, 4, 3), dilation=2, padding="same"), (normal(4, 9),)),
    "pooled": (
        lambda x: (functional.max_pool2d(x, 3, 2, 1, ceil_mode=True), functional.avg_pool2d(x, 2, padding=1)),
        (IMAGE,),
    ),
    "places of maxima": (lambda x: functional.max_pool2d(x, 2, return_indices=True), (IMAGE,)),
    "adaptive": (lambda x: (functional.adaptive_avg_pool2d(x, 1), functional.adaptive_avg_pool2d(x, (4, 3))), (IMAGE,)),
    "averages of nothing": (lambda x: (functional.adaptive_avg_pool2d(x, (0, 3)), x.sum()), (IMAGE,)),
    "bits as another type": (
        lambda x, i: (
            x.view(torch.int32),
            x.view(torch.int16),
            i.to(torch.uint8).view(torch.int64),
            i.view(torch.float32).view(torch.int64),
            x.half().view(torch.bfloat16),
        ),
        (normal(3, 8), whole(3, 8)),
    ),
    "strides over strides": (
        lambda x: (
            (y := torch.as_strided(x * 2, (2, 3, 3), (20, 4, 1), 1)),
            torch.as_strided(y, (2, 2, 2), (24, 1, 5)),
            torch.as_strided(x.mT * 2, (4, 2), (3, 1)),
            torch.as_strided_copy(x.flatten(), (2, x.numel() // 2), (1, 1)),  # as many elements, not the same ones
            torch.as_strided_scatter(x.mT * 2, x[:2, 0, :3], (2, 3), (8, 2), 1),
        ),
        (normal(6, 8, 3),),
    ),
    "numbers in types of their own": (
        lambda i: (torch.ops.prims.div(i, 2), torch.ops.prims.convert_element_type(i, torch.float64)),
        (WHOLE,),
    ),
    "larger": (
        lambda x: (
            functional.interpolate(x, scale_factor=2),
            functional.interpolate(x, (9, 5), mode="bilinear", align_corners=True),
        ),
        (IMAGE,),
    ),
    "cubic": (lambda x: functional.interpolate(x, (9, 5), mode="bicubic"), (IMAGE,)),
    "sampled": (lambda x, g: functional.grid_sample(x, g.tanh(), align_corners=False), (IMAGE, normal(2, 3, 3, 2))),
    # normalisations
    "normalised": (
        lambda x: (
            functional.layer_norm(x, (5,)),
            functional.rms_norm(x, (5,), eps=1e-5),
            functional.softmax(x, 0),
            functional.log_softmax(x, 1),
        ),
        (X,),
    ),
    "groups": (lambda x: (functional.group_norm(x, 2), functional.instance_norm(x)), (IMAGE,)),
    # special functions
    "gamma": (lambda x: (torch.lgamma(x), torch.digamma(x)), (torch.cat([STEPS, torch.tensor([0.0, 1e30, INF])]),)),
    "normal": (
        lambda x: (torch.erfc(x), torch.erfinv(x / 4), torch.special.erfcx(x), torch.special.log_ndtr(x)),
        (torch.cat([STEPS, torch.tensor([4.0, -4.0])]),),
    ),
    "quantiles": (lambda x: torch.special.ndtri(x.abs() / 4), (STEPS,)),
    "bessel": (
        lambda x: (torch.i0(x), torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x)),
        (torch.cat([STEPS * 3, torch.tensor([8.0, 60.0, 80.0])]),),
    ),
    "modified bessel": (
        lambda x: (
            torch.special.modified_bessel_i0(x),
            torch.special.modified_bessel_i1(x),
            torch.special.spherical_bessel_j0(x),
        ),
        (torch.cat([STEPS, torch.tensor([INF, -INF])]),),
    ),
    "the trigamma function at integers, where it has poles": (
        lambda q: torch.polygamma(1, q),
        (torch.tensor([-4, -1, 0, 1, 2, 90], dtype=torch.int8),),
    ),
    "zeta": (
        lambda x, q: (
            torch.special.zeta(x, q),
            torch.special.zeta(3, q),
            torch.polygamma(1, q),
            torch.polygamma(4, q),
        ),
        # From below 1, where it is not defined, over integers, where q may be negative, to a large one; and to where q
        # is 0, or a negative integer.
        (
            torch.cat([torch.linspace(0, 6, 25), torch.arange(2.0, 16.0)]).double(),
            torch.cat([STEPS[:38], torch.zeros(1)]).double(),
        ),
    ),
    "zeta of whole numbers": (
        lambda x, q: torch.special.zeta(x, q),
        (torch.arange(1.0, 9.0)[:, None], torch.arange(-3.0, 4.0)),
    ),
    **{
        f"bags of rows, {mode}": (
            lambda w, i, o, mode=mode: (
                functional.embedding_bag(i, w, o, mode=mode),
                functional.embedding_bag(i, w, o, mode=mode, include_last_offset=True, padding_idx=3),
                functional.embedding_bag(i.reshape(3, 2), w, mode=mode),
            ),
            (normal(10, 4), torch.tensor([1, 2, 3, 4, 3, 3]), torch.tensor([0, 2, 2, 5])),
        )
        for mode in ("sum", "mean", "max")
    },
    "weighted bags of rows": (
        lambda w, i, weights: functional.embedding_bag(i, w, mode="sum", per_sample_weights=weights),
        (normal(10, 4), torch.tensor([[1, 2, 3], [4, 3, 3]]), normal(2, 3)),
    ),
    # more of each family
    "unequal windows": (
        lambda x: (
            *functional.adaptive_max_pool2d(x, (4, 3), return_indices=True),
            functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=4),
        ),
        (normal(1, 4, 7, 5),),
    ),
    "smoothed": (
        lambda x: [functional.interpolate(x, (3, 4), mode=how, antialias=True) for how in ("bilinear", "bicubic")],
        (normal(1, 2, 9, 11),),
    ),
    "running extremes": (lambda x: (*x.cummax(1), *x.cummin(0), x.logcumsumexp(1)), (X,)),
    "running extremes of the least and the largest": (
        lambda x, i, b: (*x.cummax(0), *x.cummin(0), *i.cummax(0), *b.cummax(1), *b.cummin(1)),
        (torch.tensor([-INF, -INF, 1.0, NAN, 1.0]), torch.tensor([0, 0, 3, 0], dtype=torch.uint8), FLAGS),
    ),
    "medians": (lambda x: (x.median(), *x.nanmedian(1), x.nanmedian()), (torch.where(X > 1, NAN, X),)),
    "counted": (lambda x: (torch.histc(x, 4), torch.pdist(x), functional.bilinear(x, x, BILINEAR)), (X,)),
    "put in": (
        lambda x, y, i: (
            x.put(i, y[0, :3]),
            x.put(i, y[0, :3], accumulate=True),
            x.masked_scatter(x > 0, y),
            x.diagonal_scatter(y[0, :3], 1),
            x.index_reduce(0, i, y, "amax", include_self=False),
            torch.nonzero_static(x > 0, size=20),
        ),
        (X, Y, torch.tensor([2, 0, 1])),
    ),
    "in the order of another": (
        lambda x, y, i: torch.searchsorted(y[0], x, sorter=i),
        (X, torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([1, 2, 0])),
    ),
    "smoothed by a factor": (
        lambda x: [functional.interpolate(x, scale_factor=s, mode="bilinear", antialias=True) for s in (0.4, 0.7, 1.7)],
        (IMAGE,),
    ),
    "smoothed by a factor, cubic": (
        lambda x: functional.interpolate(x, scale_factor=(0.4, 0.7), mode="bicubic", antialias=True),
        (IMAGE,),
    ),
    "bytes, smoothed": (
        lambda x: [
            *(
                functional.interpolate(x, size, mode=how, antialias=True)
                for how in ("bilinear", "bicubic")
                for size in ((5, 9), (31, 8), (40, 41))
            ),
            functional.interpolate(x, scale_factor=(0.4, 1.7), mode="bilinear", antialias=True),
        ],
        (whole(2, 3, 17, 23, low=0, high=256, dtype=torch.uint8),),
    ),
    "bytes at other sizes": (
        lambda x: [
            *(
                functional.interpolate(x, size, mode=how, align_corners=aligned)
                for how in ("bilinear", "bicubic")
                for aligned in (False, True)
                for size in ((5, 9), (31, 8), (1, 41))
            ),
            functional.interpolate(x, scale_factor=(0.4, 1.7), mode="bilinear"),
        ],
        (whole(2, 3, 17, 23, low=0, high=256, dtype=torch.uint8),),
    ),
    "complex numbers, made and written": (
        lambda z, x: (
            torch.zeros(2, 5, dtype=torch.complex64).select_scatter(z[0], 0, 1),
            torch.ones(4, dtype=torch.complex64) * z[0, 0],
            torch.full((2, 2), 3 - 2j) + z.new_full((2, 2), 1j),
            z.slice_scatter(x[1:], 0, 1),
            z.diagonal_scatter(x[0, :3]),
        ),
        (Z, Y),
    ),
    "complex numbers of two precisions": (
        lambda z, x: (z * z.to(torch.complex128), z + x.double(), x.double() * z, z.to(torch.complex128) / (z + 3)),
        (Z, Y),
    ),
    "the most frequent": (
        lambda i, b: (*i.mode(1), *i.mode(0, keepdim=True), i.flatten().mode()[0], *b.mode(), *i[0, 0].mode()),
        (whole(4, 12, low=0, high=4), FLAGS),
    ),
    "parts of a range": (
        lambda x, w: (
            *torch.histogram(x, 5, range=(-1.0, 1.5)),
            *torch.histogram(x, 7),
            *torch.histogram(x, torch.tensor([-1.0, -0.25, 0.5, 3.0]), weight=w, density=True),
            *torch.histogram(x * 0, 3),
            *torch.histogram(x[:0], 3),
        ),
        (X, POSITIVE),
    ),
    "ends of a range": (lambda x: torch.histogram(x, 4, range=(0.0, 4.0)), (torch.arange(-1, 6) * 1.0,)),
    "segments": (
        lambda x, n: [
            torch.segment_reduce(x, how, lengths=n, initial=start)
            for how in ("sum", "mean", "max", "min", "prod")
            for start in (None, 0.5)
        ],
        (normal(6, 3), torch.tensor([2, 0, 3, 1])),
    ),
    "segments of rows": (
        lambda x, n, ends: (
            torch.segment_reduce(x, "sum", lengths=n, axis=1),
            torch.segment_reduce(x, "mean", offsets=ends, axis=1),
        ),
        (normal(2, 5, 3), torch.tensor([[1, 4], [5, 0]]), torch.tensor([[0, 2, 5], [0, 1, 5]])),
    ),
    "triangular systems": (
        lambda a, x, y: (
            torch.linalg.solve_triangular(a, x, upper=False),
            torch.linalg.solve_triangular(a, x, upper=True),
            torch.linalg.solve_triangular(a, x, upper=True, unitriangular=True),
            torch.linalg.solve_triangular(a, y, upper=False, left=False),
            torch.linalg.solve_triangular(a[:, :4, :4], y[..., :4], upper=False, unitriangular=True, left=False),
            torch.linalg.solve_triangular(a[0, :1, :1], x[:, :1], upper=False),
            torch.linalg.solve_triangular(a[:, :0, :0], x[:, :0], upper=False),
        ),
        (normal(2, 7, 7) + 4 * torch.eye(7), normal(2, 7, 3), normal(2, 3, 7)),
    ),
    "many triangular systems": (
        lambda a, x: torch.linalg.solve_triangular(a, x, upper=False),
        (normal(1, 2, 1, 2, 3, 3) + 4 * torch.eye(3), normal(1, 2, 1, 2, 3, 2)),
    ),
    # complex numbers
    "complex arithmetic": (
        lambda x, y: (
            (z := torch.complex(x, y)) * z.conj() / (z + 2j),
            z.abs(),
            z.angle(),
            x.angle(),
            torch.exp(z * 0.1).log(),
            (z - x).sum(1),
            1 / z,
            z == z,
        ),
        (X, Y),
    ),
    "complex in and out": (lambda z: (z @ z.mH, torch.cat([z, z.T.reshape(3, 5)]), z[:, 1:3].real), (Z,)),
    "complex and real": (
        lambda z, x, i: (
            torch.cat([z, x, i]),
            torch.stack([z, z]),
            torch.where(x > 0, z, x),
            torch.zeros_like(z, dtype=torch.float64) + x,
            functional.pad(z, (1, 2), value=2.0),
            z.clone().copy_(x),
        ),
        (Z, X, WHOLE),
    ),
    "rotated": (
        lambda x, a: torch.view_as_real(torch.view_as_complex(x) * torch.polar(torch.ones_like(a), a)).flatten(1),
        (normal(3, 4, 2), normal(3, 4)),
    ),
    "transforms": (
        lambda x: (
            (f := torch.fft.rfft2(x, norm="ortho")),
            torch.fft.irfft2(f, s=(3, 5), norm="ortho"),
            torch.fft.fft(x, dim=0),
            torch.fft.ifft(f, norm="forward"),
            torch.fft.hfft(f, n=6),
        ),
        (X,),
    ),
    "the phase of what is real": (lambda x: torch.fft.rfft(x).angle()[:, [0, -1]], (normal(3, 100),)),
    "sums of products": (
        lambda z, x, y: (torch.einsum("ij,ij->i", z, z), torch.einsum("ij,kj,kl->il", z, x - 1j, y + 1j)),
        (Z, X, Y),
    ),
    "a spectrogram": (
        lambda x: torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).abs(),
        (normal(2, 40),),
    ),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("title", CASES)
def test_says_what_eager_does(title: str) -> None:
    function, inputs = CASES[title]
    module = Function(function).eval()
    model = opweld.compile(module, inputs, target="interpret")
    fed = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in inputs]
    found = model.run({info.name: tensor.numpy() for info, tensor in zip(model.inputs, fed, strict=True)})
    answers = module(*inputs)
    expected = list(answers) if isinstance(answers, tuple | list) else [answers]
    assert len(found) == len(expected)
    for own, right in zip(found.values(), expected, strict=True):
        if right.is_complex():
            right = torch.view_as_real(right.resolve_conj())
        if right.dtype is torch.bfloat16:
            own, right = own.astype(np.float32), right.float()
        tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(right.dtype, 2e-5)
        torch.testing.assert_close(
            torch.from_numpy(np.array(own)), right, rtol=tolerance, atol=tolerance, equal_nan=True
        )
