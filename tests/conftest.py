"""Every test run has a cache of its own, which its processes share: it finds nothing that another left, and touches
nothing of the user's.

No property fails because a shared machine was slow."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import precompiled, shared_cache
from tests.machines import TARGETS, run_as

REPOSITORY = Path(__file__).parent.parent

_FOLDER = pytest.StashKey[Path]()

FOLDER = "OPWELD_TESTS_FOLDER"
"""Names the folder of a run, which is removed with it, in all its processes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--target", choices=TARGETS, help="the machine to run as, instead of this one: see tests.machines")


def pytest_configure(config: pytest.Config) -> None:
    if (target := config.getoption("--target")) is not None:
        run_as(target)
    for name in ("OPWELD_DEBUG", "OPWELD_DUMP", "OPWELD_CC"):
        os.environ.pop(name, None)
    # A shell has what it starts in the background ignore Ctrl-C, and so do the programs that tests start and send one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Triton decides when it is imported whether its kernels are compiled or interpreted; a test that compiles some does
    # so in a process without this.
    os.environ["TRITON_INTERPRET"] = "1"
    settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("shared")
    if not hasattr(config, "workerinput"):  # workers of pytest-xdist find what the process that starts them has set
        config.stash[_FOLDER] = Path(tempfile.mkdtemp(prefix="opweld-tests-"))
        os.environ[FOLDER] = str(config.stash[_FOLDER])
        os.environ["OPWELD_CACHE"] = str(config.stash[_FOLDER] / "cache")
        os.environ["OPWELD_CACHE_LIMIT"] = "2G"  # a run compiles 10 GB of models, nearly all of them once
    precompiled.keep(Path(os.environ[FOLDER], "precompiled"))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _FOLDER in config.stash:
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)


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


@pytest.fixture
def cache_without_models(cache_folder: Path) -> Path:
    """A cache for one test with what all models have in common."""
    shared_cache.copy(Path(os.environ[FOLDER], "common"), cache_folder)
    return cache_folder
