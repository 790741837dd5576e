"""Connections that are secured. The certificates in `certificates/` were made with openssl for a hundred years: an
authority that signed those of localhost and of a client, whose key is nowhere any more, and a stranger's."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest

from opweld.errors import OptionError
from opweld.serve.limits import Limits
from opweld.serve.open_inference.grpc.messages import SERVICE
from opweld.serve.tls import Tls
from tests.patience import PATIENCE_S
from tests.unit.serve.open_inference.running import Running, serving

PEM = Path(__file__).parent / "certificates"


def over_http(running: Running, authority: str, client: str = "") -> int:
    context = ssl.create_default_context(cafile=str(PEM / f"{authority}.pem"))
    if client:
        context.load_cert_chain(PEM / f"{client}.pem", PEM / f"{client}.key")
    url = f"https://{running.address}/v2/health/ready"
    with urllib.request.urlopen(url, timeout=PATIENCE_S, context=context) as answer:
        return answer.status


def over_grpc(running: Running, authority: str, client: str = "") -> bytes:
    pair = ((PEM / f"{client}.key").read_bytes(), (PEM / f"{client}.pem").read_bytes()) if client else (None, None)
    credentials = grpc.ssl_channel_credentials((PEM / f"{authority}.pem").read_bytes(), *pair)
    with grpc.secure_channel(running.grpc_address, credentials) as channel:
        return channel.unary_unary(f"/{SERVICE}/ServerReady")(b"", timeout=PATIENCE_S)


def test_a_certificate_of_the_server() -> None:
    with serving(Limits(drain=0.0), tls=Tls(PEM / "server.pem", PEM / "server.key")) as running:
        assert over_http(running, "authority") == 200
        assert over_grpc(running, "authority") == b"\x08\x01"
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            over_http(running, "stranger")
        with pytest.raises(grpc.RpcError):
            over_grpc(running, "stranger")


def test_certificates_of_clients() -> None:
    tls = Tls(PEM / "server.pem", PEM / "server.key", PEM / "authority.pem")
    with serving(Limits(drain=0.0), tls=tls) as running:
        assert over_http(running, "authority", "client") == 200
        assert over_grpc(running, "authority", "client") == b"\x08\x01"
        with pytest.raises((ssl.SSLError, OSError)):
            over_http(running, "authority")
        with pytest.raises(grpc.RpcError):
            over_grpc(running, "authority")


def test_files_that_are_none(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    with pytest.raises(OptionError, match="nothing: cannot be read"):
        Tls(nothing, PEM / "server.key")
    nothing.write_text("nothing")
    with pytest.raises(OptionError, match="no certificate in PEM and its unencrypted key"):
        Tls(nothing, PEM / "server.key")
    with pytest.raises(OptionError, match="no certificate in PEM and its unencrypted key"):
        Tls(PEM / "server.pem", PEM / "client.key")
    with pytest.raises(OptionError, match="nothing: no certificates in PEM"):
        Tls(PEM / "server.pem", PEM / "server.key", nothing)
