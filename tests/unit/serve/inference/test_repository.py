"""Models that are found, loaded, replaced and taken away while calls run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from opweld.build.artifact import read
from opweld.errors import ArtifactError, ClosedError, InputError, LateError, MissingModelError, ModelError, OptionError
from opweld.serve.inference import repository as repository_module
from opweld.serve.inference.loaded import LoadedModel
from opweld.serve.inference.model import Call, Repository, Run
from opweld.serve.inference.repository import ModelRepository
from opweld.serve.inference.settings import Settings
from opweld.serve.refusal import Refusal
from tests.patience import PATIENCE_S
from tests.unit.serve.inference.small import plus, saved

X = np.zeros((2, 3), np.float32)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models that add 1, and 2."""
    folder = tmp_path_factory.mktemp("artifacts")
    return [saved(plus(number), folder / f"{number}.opweld") for number in (1, 2)]


@pytest.fixture
def folder(artifacts: list[Path], tmp_path: Path) -> Iterator[Path]:
    """A repository: `plus` with versions 1 and 2, and `damaged`."""
    for version, artifact in enumerate(artifacts, 1):
        shutil.copytree(artifact, tmp_path / "plus" / str(version))
    (tmp_path / "damaged/1").mkdir(parents=True)
    (tmp_path / "damaged/1/manifest.json").write_text("{}")
    yield tmp_path


async def first(repository: Repository, name: str = "plus", version: str = "") -> float:
    """What the first element of an answer is."""
    return float((await repository.get(name, version).infer({"x": X}, Call()))["y"][0, 0])


def opened(*paths: Path) -> ModelRepository:
    repository = ModelRepository([(None, path) for path in paths])
    repository.load_all()
    return repository


def test_the_newest_version_is_served(folder: Path) -> None:
    async def scenario() -> None:
        repository: Repository = opened(folder)
        assert [(one.name, one.version, one.state) for one in repository.index()] == [
            ("damaged", "1", "UNAVAILABLE"), ("plus", "1", "UNAVAILABLE"), ("plus", "2", "READY"),
        ]  # fmt: skip
        assert (
            "manifest.json has format None" in repository.index()[0].reason
            and "opweld.toml" in repository.index()[1].reason
        )
        assert await first(repository) == 2 and repository.versions("plus") == ["2"]
        with pytest.raises(
            Refusal, match=r"^failed to get model version from specified version string '1': of 'plus' .* loaded: 2$"
        ):
            repository.get("plus", "1")
        with pytest.raises(Refusal, match="'damaged' is not loaded"):
            repository.get("damaged")
        with pytest.raises(Refusal, match=r"^Request for unknown model: there is no model 'none'; there are 'plus'$"):
            repository.get("none")
        await repository.close()

    asyncio.run(scenario())


def test_load_and_unload(folder: Path, artifacts: list[Path]) -> None:
    async def scenario() -> None:
        repository = opened(folder)
        before = repository.get("plus")
        (folder / "plus/opweld.toml").write_text('versions = "all"')
        shutil.copytree(artifacts[0], folder / "plus/10")
        await repository.load("plus")
        assert repository.versions("plus") == ["1", "2", "10"]
        assert await first(repository) == 1 and await first(repository, version="2") == 2
        with pytest.raises(ClosedError, match="'plus' is being unloaded"):
            await before.infer({"x": X}, Call())

        (folder / "plus/opweld.toml").write_text("versions = []")
        with pytest.raises(OptionError, match="versions is"):
            await repository.load("plus")
        assert await first(repository) == 1

        await repository.unload("plus")
        with pytest.raises(Refusal, match="'plus' is not loaded"):
            repository.get("plus")
        assert {one.reason for one in repository.index() if one.name == "plus"} == {"unloaded"}
        with pytest.raises(Refusal, match=r"^failed to load 'none': there is no such model$"):
            await repository.load("none")
        await repository.close()

    asyncio.run(scenario())


def test_calls_end_on_what_they_began_with(folder: Path) -> None:
    async def scenario() -> None:
        repository = opened(folder)
        calls = [asyncio.create_task(first(repository)) for _ in range(20)]
        await asyncio.sleep(0)
        await repository.unload("plus")
        assert await asyncio.gather(*calls) == [2] * 20
        await repository.close()

    asyncio.run(scenario())


def test_an_artifact_that_was_damaged_is_not_loaded(folder: Path, cache_folder: Path) -> None:
    async def scenario() -> None:
        repository = opened(folder)
        with (folder / "plus/2/module.so").open("r+b") as file:
            file.write(b"no")
        with pytest.raises(ArtifactError, match="another content than when it was written"):
            await repository.load("plus")
        assert await first(repository) == 2
        (folder / "plus/2/weights.bin").write_bytes(b"")
        os.truncate(folder / "plus/2/module.so", 100)
        with pytest.raises(ArtifactError, match=r"module.so has 100 bytes"):
            await repository.load("plus")
        assert await first(repository) == 2  # it runs what nobody else can change
        (entry,) = [one for one in repository.index() if (one.name, one.version) == ("plus", "2")]
        assert entry.state == "READY"
        await repository.close()

    asyncio.run(scenario())


def test_what_does_not_fit_is_refused(artifacts: list[Path]) -> None:
    async def scenario() -> None:
        repository = opened(artifacts[0])
        model = repository.get("1")
        for feeds, words in (
            ({}, "input 'x' is missing; there are 'x'"),
            ({"x": X.astype(np.float64)}, "expected dtype float32, got float64"),
            ({"x": X[0]}, r"expected shape \[N, 3\], got \[3\]"),
            ({"x": X, "z": X}, "'z' is no input"),
        ):
            with pytest.raises(InputError, match=words):
                await model.infer(feeds, Call())
        with pytest.raises(InputError, match="'z' is no output of '1'; there are 'y'"):
            await model.infer({"x": X}, Call(outputs=["z"]))
        with pytest.raises(LateError):
            await model.infer({"x": X}, Call(deadline=time.monotonic() - 1))
        await model.infer({"x": X}, Call(outputs=["y"]))
        told = model.statistics
        assert (told.calls, told.refused, told.waiting, told.running) == (1, 1, 0, 0)
        assert told.computed_ns > 0 and told.last_ns > 0
        await repository.close()

    asyncio.run(scenario())


class Watching:
    """An observer."""

    def __init__(self, wants_kernels: bool) -> None:
        self.wants_kernels = wants_kernels
        self.runs: list[Run] = []

    def ran(self, run: Run) -> None:
        self.runs.append(run)


@pytest.mark.parametrize("kernels", [False, True])
def test_a_call_is_observed(kernels: bool, artifacts: list[Path]) -> None:
    async def scenario() -> None:
        repository = opened(artifacts[0])
        model, observer = repository.get("1"), Watching(kernels)
        assert model.artifact is not None and read(model.artifact) == read(artifacts[0])
        call = Call(observer=observer)
        assert (await model.infer({"x": X}, call))["y"].tolist() == [[1] * 3] * 2
        (run,) = observer.runs
        assert list(run.calls) == [call] and run.begun < run.ended and bool(run.kernels) == kernels
        await repository.close()

    asyncio.run(scenario())


def test_as_many_threads_as_settings_say(artifacts: list[Path], tmp_path: Path) -> None:
    """Whatever it was compiled for."""
    path = shutil.copytree(artifacts[0], tmp_path / "plus.opweld")
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "threads": 1}))
    model = opened(path).get("plus")
    assert isinstance(model, LoadedModel) and model._tensors._session.threads == 0


def test_what_cannot_be_opened(folder: Path, artifacts: list[Path]) -> None:
    with pytest.raises(OptionError, match="two models are named 'plus'"):
        ModelRepository([("plus", artifacts[1]), (None, folder), ("plus", artifacts[0])])
    with pytest.raises(MissingModelError, match="there is no"):
        ModelRepository([(None, folder / "nothing")])
    shutil.rmtree(folder / "plus")
    with pytest.raises(ModelError, match="no model could be loaded"):
        opened(folder)


def test_a_fault_of_one_model_is_not_of_others(folder: Path, artifacts: list[Path]) -> None:
    async def scenario() -> None:
        repository = opened(folder)
        shutil.copytree(artifacts[0], folder / "plus.opweld")
        os.symlink("loop", folder / "loop.onnx")
        with pytest.raises(ModelError, match="two models of the name 'plus'"):
            await repository.load("plus")
        assert await first(repository) == 2
        assert [(one.name, one.version, one.state) for one in repository.index()] == [
            ("damaged", "1", "UNAVAILABLE"), ("plus", "1", "UNAVAILABLE"), ("plus", "2", "READY"),
        ]  # fmt: skip
        assert "two models" in repository.index()[1].reason
        shutil.move(folder, folder.with_name("gone"))
        with pytest.raises(Refusal, match="failed to load 'plus': there is no such model"):
            await repository.load("plus")
        assert [one.name for one in repository.index()] == ["plus"] and await first(repository) == 2
        await repository.close()

    asyncio.run(scenario())


def test_a_model_whose_files_cannot_be_read_does_not_end_the_start(
    folder: Path, artifacts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_settings(file: Path, usual: Settings) -> Settings:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(repository_module, "read_settings", read_settings)
    (folder / "plus/opweld.toml").touch()
    told: list[str] = []
    repository = ModelRepository([(None, folder), (None, artifacts[0])], tell=told.append)
    repository.load_all()
    assert [model.name for model in repository] == ["1"]
    assert any(line.startswith("plus: cannot read the model: [Errno 13] Permission denied") for line in told)


def test_names_that_there_are_not_are_not_sought_again_and_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        repository = opened(folder)
        walks: list[None] = []
        walk = repository._walk
        monkeypatch.setattr(repository, "_walk", lambda: walks.append(None) or walk())
        monkeypatch.setattr(time, "monotonic", lambda: now)
        now = repository._walked
        for _ in range(9):
            with pytest.raises(Refusal):
                repository.get("none")
        assert not walks
        now += 2
        for _ in range(9):
            with pytest.raises(Refusal):
                repository.get("none")
        assert len(walks) == 1
        for n in range(9):
            for change in (repository.load, repository.unload):
                with pytest.raises(Refusal):
                    await change(f"none{n}")
        assert not repository._locks
        await repository.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_an_onnx_file_is_compiled_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        onnx.save(plus(3), tmp_path / "three.onnx")
        repository = opened(tmp_path)
        assert await first(repository, "three") == 3
        (tmp_path / "three.onnx").write_bytes(b"no model")
        with pytest.raises(ModelError):
            await repository.load("three")
        assert await first(repository, "three") == 3
        onnx.save(plus(4), tmp_path / "three.onnx")
        await repository.load("three")
        assert await first(repository, "three") == 4
        await repository.close()

    asyncio.run(scenario())


_FULL = """
import asyncio, os, resource, sys
from pathlib import Path
from opweld.errors import ShortageError
from opweld.serve.inference.repository import ModelRepository
from tests.unit.serve.inference.test_repository import first
async def scenario():
    folder = Path(sys.argv[1])
    repository = ModelRepository([(None, folder)])
    repository.load_all()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    os.rename(sys.argv[2], folder / "plus/3")
    try:
        await repository.load("plus")
    except ShortageError as error:
        print(error)
    assert await first(repository) == 2
    await repository.close()
asyncio.run(scenario())
"""


@pytest.mark.slow
def test_a_full_disk_keeps_a_model_from_being_loaded(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    new = saved(plus(9), tmp_path_factory.mktemp("new") / "model")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", _FULL, str(folder), str(new)],
        env=environment,
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert "a file would grow beyond what this process may write" in answer.stdout
