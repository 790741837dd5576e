"""The formats of tensors in GGUF files, and what their blocks hold.

Each format is written down in ggml-common.h and ggml-quants.c of llama.cpp. Symmetric ones become signed codes without
minimums; those with minimums, unsigned codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from opweld.llm.weights import Blocked, Weight

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class _Unpacked(NamedTuple):
    """Of n blocks: codes [n, elements], scales and minimums [n, elements / block]."""

    codes: NDArray[np.uint8] | NDArray[np.int8]
    scales: Floats
    minimums: Floats | None


@dataclass(frozen=True)
class Format:
    """How a tensor is stored.

    Attributes:
        name: as GGUF has it. elements, bytes: of a block of storage.
        bits: of a code; 0 for floats. block: elements that share a scale.
        unpack: of blocks [n, bytes].
    """

    name: str
    elements: int
    bytes: int
    bits: int = 0
    block: int = 1
    unpack: Callable[[Bytes], _Unpacked] | None = None
    dtype: type[np.generic] = np.uint8


def unpacked(form: Format, raw: Bytes, shape: tuple[int, ...]) -> Weight:
    """A weight from its bytes. Floats stay in the file: nothing is copied.

    Blocks become codes and scales where the weight is a matrix, and float32 where it is a vector."""
    if form.unpack is None:
        floats: NDArray[Any] = raw.view(form.dtype).reshape(shape)
        return floats
    found = form.unpack(raw.reshape(-1, form.bytes))
    rows, columns = (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])
    per_row = columns // form.block
    minimums = None if found.minimums is None else found.minimums.reshape(rows, per_row)
    blocked = Blocked(
        found.codes.reshape(rows, columns), found.scales.reshape(rows, per_row), minimums, form.bits, form.block
    )
    return blocked.values()[0] if len(shape) == 1 else blocked


def _halves(raw: Bytes) -> Floats:
    """float16 numbers [n, bytes / 2] in float32."""
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


def _nibbles(raw: Bytes) -> Bytes:
    """Low halves of a block's bytes, then high ones: [n, bytes] -> [n, 2 bytes]."""
    return np.concatenate([raw & np.uint8(15), raw >> np.uint8(4)], axis=1)


def _fifth_bits(raw: Bytes) -> Bytes:
    """Bit i of a block's four bytes, at 16: [n, 4] -> [n, 32]."""
    return np.unpackbits(raw, axis=1, bitorder="little") << np.uint8(4)


def _q8_0(raw: Bytes) -> _Unpacked:
    return _Unpacked(raw[:, 2:].view(np.int8), _halves(raw[:, :2]), None)


def _q4_0(raw: Bytes) -> _Unpacked:
    # (code - 8) scale is exact as code scale - 8 scale, with codes that half a byte holds: sums of blocks take the 8
    # times their scale off once, where each code would have it taken off, or be a byte.
    scales = _halves(raw[:, :2])
    return _Unpacked(_nibbles(raw[:, 2:]), scales, scales * np.float32(-8))


def _q4_1(raw: Bytes) -> _Unpacked:
    return _Unpacked(_nibbles(raw[:, 4:]), _halves(raw[:, :2]), _halves(raw[:, 2:4]))


def _q5_0(raw: Bytes) -> _Unpacked:
    codes = _nibbles(raw[:, 6:]) | _fifth_bits(raw[:, 2:6])
    return _Unpacked(codes.view(np.int8) - np.int8(16), _halves(raw[:, :2]), None)


def _q5_1(raw: Bytes) -> _Unpacked:
    codes = _nibbles(raw[:, 8:]) | _fifth_bits(raw[:, 4:8])
    return _Unpacked(codes, _halves(raw[:, :2]), _halves(raw[:, 2:4]))


def _scales_of_k(raw: Bytes) -> tuple[Floats, Floats]:
    """Scales and minimums of the 8 blocks in a block of Q4_K or Q5_K: numbers of six bits in 12 bytes, times the
    block's own scale and minimum. The product is rounded to float32, as llama.cpp does."""
    scale, minimum, six = raw[:, :2], raw[:, 2:4], raw[:, 4:16]
    first, second, third = six[:, :4], six[:, 4:8], six[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 2) & 48)], axis=1)
    minimums = np.concatenate([second & 63, (third >> 4) | ((second >> 2) & 48)], axis=1)
    return _halves(scale) * scales.astype(np.float32), -(_halves(minimum) * minimums.astype(np.float32))


def _nibbles_of_k(raw: Bytes) -> Bytes:
    """Of each 32 bytes, the low halves and then the high ones: [n, 128] -> [n, 256]."""
    grouped = raw.reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    return (grouped & np.uint8(15)).reshape(-1, 256)


def _q4_k(raw: Bytes) -> _Unpacked:
    return _Unpacked(_nibbles_of_k(raw[:, 16:]), *_scales_of_k(raw))


def _q5_k(raw: Bytes) -> _Unpacked:
    fifth = (raw[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & 1
    return _Unpacked(_nibbles_of_k(raw[:, 48:]) | (fifth.reshape(-1, 256) << 4), *_scales_of_k(raw))


def _q6_k(raw: Bytes) -> _Unpacked:
    low = raw[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    high = raw[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    codes = (low & 15).reshape(-1, 256) | ((high & 3).reshape(-1, 256) << 4)
    scales = _halves(raw[:, 208:]) * np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.float32)
    return _Unpacked(codes.view(np.int8) - np.int8(32), scales, None)


FORMATS = {
    0: Format("F32", 1, 4, dtype=np.float32),
    1: Format("F16", 1, 2, dtype=np.float16),
    30: Format("BF16", 1, 2, dtype=ml_dtypes.bfloat16),
    8: Format("Q8_0", 32, 34, 8, 32, _q8_0),
    2: Format("Q4_0", 32, 18, 4, 32, _q4_0),
    3: Format("Q4_1", 32, 20, 4, 32, _q4_1),
    6: Format("Q5_0", 32, 22, 5, 32, _q5_0),
    7: Format("Q5_1", 32, 24, 5, 32, _q5_1),
    12: Format("Q4_K", 256, 144, 4, 32, _q4_k),
    13: Format("Q5_K", 256, 176, 5, 32, _q5_k),
    14: Format("Q6_K", 256, 210, 6, 16, _q6_k),
}
"""By the number that GGUF gives them."""

NAMES = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
"""Formats that are not read, for messages."""
