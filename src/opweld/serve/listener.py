"""What a listener is, and what all that listens for a server has in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from opweld.serve.access import AccessLog
from opweld.serve.health import Health
from opweld.serve.limits import Keys, Limits
from opweld.serve.metrics import Metrics
from opweld.serve.refusal import stopping
from opweld.serve.tls import Tls
from opweld.serve.visits import Visits


@dataclass(frozen=True)
class Common:
    """Of one server.

    Attributes:
        tls: how connections are secured; None: they are not.
    """

    limits: Limits
    keys: Keys
    visits: Visits
    metrics: Metrics
    log: AccessLog
    health: Health
    tls: Tls | None = None

    def admit(self, authorization: str) -> None:
        """Raises Refusal where the server stops, or a client's header of this name, or gRPC's, holds no key."""
        if not self.visits.open:
            raise stopping()
        if self.keys:
            self.keys.check(authorization)


class Listener(Protocol):
    """What listens beside HTTP. Its requests are visits of the server, which lets them end before it stops this."""

    async def start(self) -> None:
        """Listens. Raises OptionError if it cannot."""
        ...

    async def stop(self) -> None:
        """Listens no more."""
        ...


MakeListener: TypeAlias = Callable[[Common], Listener]
