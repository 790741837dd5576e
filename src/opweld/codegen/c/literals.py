"""Numbers, and text from a model, as C literals and comments: escaped, so that it can never end them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from opweld.errors import UnsupportedError
from opweld.tensor.dtype import DType

_INT64_MIN = -(1 << 63)
_LONGEST_LINE = 150
_LONGEST_NAME = 120
_LONGEST_WORDS = 40
_ALIEN = re.compile(r"[^A-Za-z0-9]+")
_SPECIAL = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?", ord("\n"): "\\n"}


def string_literal(text: str) -> str:
    """A C string literal of the UTF-8 bytes of a text. Octal escapes have three digits, so none runs on."""
    data = text.encode("utf-8", "surrogatepass")
    inner = "".join(_SPECIAL.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in data)
    return f'"{inner}"'


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """A name for a message: what is too long loses its middle."""
    if len(name) <= longest:
        return name
    half = (longest - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def comment_text(text: str) -> str:
    """Text that is safe in a C line comment: printable ASCII of bounded length that does not end in a backslash."""
    plain = "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in text[: 4 * _LONGEST_LINE])
    plain = plain.replace("??", "?.")  # no trigraphs
    return plain if len(plain) <= _LONGEST_LINE else plain[: _LONGEST_LINE - 3] + "..."


def words(name: str, origin: Sequence[str]) -> str:
    """A part of a C identifier that tells what a kernel is and computes: its name, the end of the first node's name,
    the last word of the last node's. Letters, digits and _, whatever a model calls its nodes; of bounded length."""
    first = _plain(origin[0]) if origin else ""
    last = _plain(origin[-1].rpartition("/")[2]) if len(origin) > 1 else ""
    return "_".join(filter(None, (_plain(name), first, last and f"to_{last}")))


def _plain(text: str) -> str:
    """The end of a text, from the beginning of a word on."""
    plain = _ALIEN.sub("_", text[-4 * _LONGEST_WORDS :]).strip("_")
    if len(plain) <= _LONGEST_WORDS:
        return plain
    return plain[-_LONGEST_WORDS:].partition("_")[2] or plain[-_LONGEST_WORDS:]


def integer_literal(value: int) -> str:
    """An int64. Raises UnsupportedError for a number beyond it: no size that is computed with it would fit."""
    if not _INT64_MIN <= value < -_INT64_MIN:
        raise UnsupportedError(
            f"sizes of this model are computed with {value:.3g}, which is beyond 64-bit integers: "
            "no input is small enough for it"
        )
    return "INT64_MIN" if value == _INT64_MIN else str(value)


def number_literal(value: float | int | bool, dtype: DType) -> str:
    """One value of a dtype as registers hold it: float16 and bfloat16 in float32, booleans as masks, codes as codes."""
    if dtype is DType.BOOL:
        return "-1" if value else "0"
    if dtype.is_storage_only:
        return str(dtype.code(value))
    if not dtype.is_float:
        if dtype in (DType.U32, DType.U64) and int(value) >= 1 << 31:
            return f"{int(value)}u"
        return integer_literal(int(value))
    number = float(value)
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    text = repr(number) if dtype is DType.F64 else str(np.float32(number))
    text = text if any(mark in text for mark in ".e") else text + ".0"
    return text if dtype is DType.F64 else text + "f"
