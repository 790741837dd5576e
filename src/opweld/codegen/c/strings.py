"""Text from a model as C string literals and comments: escaped, so that it can never end the literal."""

from __future__ import annotations

_LONGEST_NAME = 120
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
