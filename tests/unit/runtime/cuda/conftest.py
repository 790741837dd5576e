"""A driver on the processor: fake_cuda.c, compiled with the header that comes with Triton."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from opweld.build.toolchain import build_shared
from opweld.runtime.cuda.device import Device
from opweld.target import Target

SOURCE = Path(__file__).parent / "fake_cuda.c"


@pytest.fixture(scope="session")
def header() -> Path:
    """cuda.h."""
    found = util.find_spec("triton")
    if found is None or found.origin is None:
        pytest.skip("cuda.h comes with Triton")
    return Path(found.origin).parent / "backends" / "nvidia" / "include" / "cuda.h"


@pytest.fixture(scope="session")
def compiled(header: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cuda") / "libcuda.so"
    sources = {"fake_cuda.c": SOURCE.read_text(encoding="utf-8")}
    build_shared(sources, out, target=Target.native(), flags=(f"-I{header.parent}", "-Wall", "-Werror"))
    return out


@pytest.fixture
def new_driver(compiled: Path, tmp_path: Path) -> Callable[[], Path]:
    """Another copy of the library at every call: each has a state of its own."""

    def copy() -> Path:
        path = tmp_path / f"libcuda-{len(list(tmp_path.iterdir()))}.so"
        path.write_bytes(compiled.read_bytes())
        return path

    return copy


class Fake:
    """What the fake driver knows, and what it is told."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_trace.restype = ctypes.c_char_p
        self.library.fake_alive.restype = ctypes.c_long

    def fail(self, name: str, code: int) -> None:
        """Lets the next call of a function fail."""
        self.library.fake_fail(name.encode(), code)

    def calls(self) -> list[str]:
        """The functions called since the last time, those that change the context as push and pop."""
        found: Any = self.library.fake_trace()
        self.library.fake_forget()
        return found.decode().split()

    @property
    def alive(self) -> int:
        """How much is held: memory, streams, events, graphs, modules."""
        return self.library.fake_alive()

    @property
    def depth(self) -> int:
        """How many contexts this thread has pushed."""
        return self.library.fake_depth()


@pytest.fixture
def fake(new_driver: Callable[[], Path]) -> Iterator[Fake]:
    yield Fake(new_driver())


@pytest.fixture
def device(fake: Fake) -> Device:
    opened = Device.open(0, fake.path)
    fake.calls()
    return opened
