"""Bodies of requests, and what their headers say of them."""

from __future__ import annotations

import zlib
from typing import Final

from starlette.datastructures import Headers

from opweld.serve.refusal import Refusal, too_large

_EITHER: Final = 32 + zlib.MAX_WBITS
"""zlib's word for: gzip or zlib, as the first bytes say."""


def header_length(headers: Headers) -> int | None:
    """How many bytes of a body are JSON; None: all."""
    text = headers.get("inference-header-content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Refusal(400, f"Inference-Header-Content-Length is {text!r}, expected the number of bytes that are JSON")
    return int(text)


def plain(body: bytes, headers: Headers, limit: int) -> bytes:
    """A body as it was before it was compressed. Raises Refusal where that is more than `limit` bytes."""
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise Refusal(415, f"Content-Encoding is {encoding!r}, expected gzip, deflate or none")
    decompressor = zlib.decompressobj(_EITHER)
    try:
        found = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise Refusal(400, f"the body is not compressed as {encoding}: {error}") from None
    if len(found) > limit:
        raise too_large(limit)
    if not decompressor.eof or decompressor.unused_data:
        raise Refusal(400, f"the body is not compressed as {encoding}: it does not end where its data does")
    return found
