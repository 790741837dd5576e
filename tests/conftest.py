"""Every test run has a cache of its own, which its processes share: it finds nothing that another left, and touches
nothing of the user's.

No property fails because a shared machine was slow."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import precompiled
from tests.machines import TARGETS, run_as

REPOSITORY = Path(__file__).parent.parent

_CACHE = pytest.StashKey[Path]()

PRECOMPILED = "OPWELD_TESTS_PRECOMPILED"
"""Names the folder of precompiled headers in all processes of a run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", choices=TARGETS, help="the machine to run as, instead of this one: see tests.machines")


def pytest_configure(config: pytest.Config) -> None:
    if (target := config.getoption("--target")) is not None:
        run_as(target)
    for name in ("OPWELD_DEBUG", "OPWELD_DUMP", "OPWELD_CC"):
        os.environ.pop(name, None)
    # Triton decides when it is imported whether its kernels are compiled or interpreted; a test that compiles some does
    # so in a process without this.
    os.environ["TRITON_INTERPRET"] = "1"
    settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("shared")
    if not hasattr(config, "workerinput"):  # workers of pytest-xdist find what the process that starts them has set
        config.stash[_CACHE] = Path(tempfile.mkdtemp(prefix="opweld-tests-"))
        os.environ["OPWELD_CACHE"] = str(config.stash[_CACHE] / "cache")
        os.environ["OPWELD_CACHE_LIMIT"] = "2G"  # a run compiles 10 GB of models, nearly all of them once
        os.environ[PRECOMPILED] = str(config.stash[_CACHE] / "precompiled")
    precompiled.keep(Path(os.environ[PRECOMPILED]))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _CACHE in config.stash:
        shutil.rmtree(config.stash[_CACHE], ignore_errors=True)


@pytest.fixture
def interpreter(tmp_path: Path) -> Iterator[None]:
    """The target "interpret" is there: tensor programs run in NumPy, without a compiler."""
    from tests.backends.interpret import ENTRY_POINTS
    from tests.unit.packages import installed

    folder = tmp_path / "package"
    folder.mkdir()
    with installed(folder, ENTRY_POINTS):
        yield


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPWELD_CACHE", str(folder))
    return folder
