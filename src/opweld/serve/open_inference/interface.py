"""The protocol for the server."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from grpc.aio import ServerInterceptor

from opweld.serve.inference.model import Repository
from opweld.serve.interface import Interface
from opweld.serve.limits import Limits
from opweld.serve.listener import Common, Listener, MakeListener
from opweld.serve.metrics import Metrics
from opweld.serve.open_inference.grpc.listener import GrpcListener
from opweld.serve.open_inference.grpc.service import Service
from opweld.serve.open_inference.regions import Regions
from opweld.serve.open_inference.routes import refuse, routes


class OpenInference:
    """A repository's models over the protocol, by each of its transports.

    Attributes:
        regions: shared memory that clients registered over any of them.
    """

    def __init__(self, repository: Repository, regions: Regions | None = None) -> None:
        """
        Args:
            regions: None: clients may register none.
        """
        self._repository = repository
        self.regions = regions or Regions(allowed=False)

    def interface(self, limits: Limits, metrics: Metrics) -> Interface:
        """HTTP, under /v2; `Server` takes this method."""
        return Interface(
            "/v2",
            None,
            refuse,
            answer=routes(self._repository, self.regions, limits.body),
            live="/v2/health/live",
            ready="/v2/health/ready",
        )

    def listener(self, address: socket.socket, around: Sequence[ServerInterceptor] = ()) -> MakeListener:
        """gRPC, at the address of a reserved socket; `Server` takes what this returns.

        Args:
            around: are around everything else, as what traces calls.
        """

        def make(common: Common) -> Listener:
            service = Service(self._repository, self.regions, common.health, common.limits.body)
            return GrpcListener(service, common, address, around)

        return make
