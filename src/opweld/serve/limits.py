"""What a server takes from its clients."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from opweld.errors import OptionError
from opweld.groups import free_memory
from opweld.serve.refusal import Refusal


@dataclass(frozen=True)
class Limits:
    """What a request may be, and take.

    Attributes:
        body: bytes of a request.
        prompt: tokens of a prompt; None: as many as the model's context has room for.
        answers: that one request may ask for: prompts times `n`, or `best_of`.
        seconds: from a request's first byte to the last one of its answer.
        drain: seconds that answers have to end when the server stops.
        in_flight: bytes of all requests that are being answered, and of answers that clients have not taken; None: a
            quarter of the memory that is free when the server starts, or as many as four requests may have.
        head: bytes of what comes before a body over HTTP, the path and the headers.
        head_seconds: that a client has to send them.
        idle: seconds that a connection is kept between requests. Load balancers keep theirs for 60 s at most by default
            and must be the first to close one: a request that is sent as the server closes would be lost.
    """

    body: int = 4 << 20
    prompt: int | None = None
    answers: int = 128
    seconds: float = 600.0
    drain: float = 30.0
    in_flight: int | None = None
    head: int = 64 << 10
    head_seconds: float = 10.0
    idle: float = 75.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            least = 0 if limit.name == "drain" else 1e-3
            if value is not None and not value >= least:
                raise OptionError(f"{limit.name} is {value}, expected more than 0")


def bytes_in_flight(limits: Limits) -> int:
    """Of all requests that are being answered, where the server starts now."""
    if limits.in_flight is not None:
        return limits.in_flight
    return max(4 * limits.body, free_memory() // 4)


class Keys:
    """Keys, one of which a client must know; where there are none, everybody is a client."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = [key.encode() for key in keys]
        if any(not key.strip() for key in self._keys):
            raise OptionError("an API key is empty")

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(self, authorization: str) -> None:
        """Raises Refusal where a client's header of this name holds none of them."""
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Refusal(401, "You didn't provide an API key. Send it as the header Authorization: Bearer YOUR_KEY.")
        if not self.know(key.strip().encode("latin-1")):
            raise Refusal(401, "Incorrect API key provided.", code="invalid_api_key")

    def know(self, key: bytes) -> bool:
        """Whether it is one of them. Takes as long whether it is nearly one of them or not at all."""
        found = False
        for known in self._keys:
            found |= hmac.compare_digest(known, key)
        return found


def keys_of_file(file: Path) -> list[str]:
    """The keys of a file, one a line; empty lines and those that begin with # are none. Raises OptionError if it cannot
    be read or holds no key."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{file}: cannot read keys: {error}") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise OptionError(f"{file} holds no key; write one a line")
    return keys
