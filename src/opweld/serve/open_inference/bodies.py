"""Bodies of requests, and what their headers say of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from opweld.serve.refusal import Refusal, too_large

_EITHER: Final = 32 + zlib.MAX_WBITS
"""zlib's word for: gzip or zlib, as the first bytes say."""


def header_length(headers: Mapping[bytes, bytes]) -> int | None:
    """How many bytes of a body are JSON; None: all."""
    raw = headers.get(b"inference-header-content-length")
    if raw is None:
        return None
    if not (raw.isdigit() and len(raw) < 19):
        text = raw.decode("latin-1")
        raise Refusal(400, f"Inference-Header-Content-Length is {text!r}, expected the number of bytes that are JSON")
    return int(raw)


def plain(body: bytes, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """A body as it was before it was compressed. Raises Refusal where that is more than `limit` bytes."""
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
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
