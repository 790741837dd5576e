"""Secured connections."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from opweld.errors import OptionError


@dataclass(frozen=True)
class Tls:
    """Files in PEM.

    Attributes:
        certificate: of the server, and of those who signed it. key: its own.
        clients: of the authority whose certificates clients must have; None: they need none.
    """

    certificate: Path
    key: Path
    clients: Path | None = None

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for file in (self.certificate, self.key, self.clients):
            try:
                if file is not None:
                    file.read_bytes()
            except OSError as error:
                raise OptionError(f"{file}: cannot be read: {error.strerror}") from error
        try:
            # An empty password: nobody is asked for one where a key is encrypted.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (ssl.SSLError, ValueError) as error:
            raise OptionError(
                f"{self.certificate}, {self.key}: no certificate in PEM and its unencrypted key: {error}"
            ) from error
        try:
            if self.clients is not None:
                context.load_verify_locations(self.clients)
        except ssl.SSLError as error:
            raise OptionError(f"{self.clients}: no certificates in PEM: {error}") from error
