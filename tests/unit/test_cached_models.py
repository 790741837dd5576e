"""Compiling twice: what the cache holds is checked before it is run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opweld
from opweld import cached
from opweld.backends.c_forms import FORMS
from opweld.build import artifact
from opweld.errors import InputError, ModelError
from opweld.options import Options
from tests.patience import PATIENCE_S
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import normal


def product() -> bytes:
    return model_of([node("MatMul", ["x", "w"], "y")], {"x": [2, 8]}, ["y"], {"w": normal(8, 8)}).SerializeToString()


def test_a_damaged_entry_of_the_cache_is_made_anew(cache_without_models: Path) -> None:
    x = normal(2, 8, seed=1)
    path = opweld.compile(product()).path
    for name in (artifact.WEIGHTS, artifact.MODULE):
        data = bytearray((path / name).read_bytes())
        # Not in place: the code of the open session is mapped from the file.
        (path / name).unlink()
        (path / name).write_bytes(bytes(len(data)))
        model = opweld.compile(product())
        assert (model.path / name).read_bytes() == data
        np.testing.assert_allclose(model.run({"x": x})["y"], x @ normal(8, 8), rtol=1e-5, atol=1e-5)


def test_a_damaged_entry_is_restored(cache_without_models: Path) -> None:
    path = opweld.compile(product()).path
    key, files = cached.kept(path)
    (path / artifact.WEIGHTS).write_bytes(b"")
    assert cached.restored(key, files) == path
    assert (path / artifact.WEIGHTS).read_bytes() == files[artifact.WEIGHTS]


def test_a_sound_entry_is_not_read_again(cache_without_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opweld.compile(product()).path

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("hashlib.file_digest", refuse)
    assert opweld.compile(product()).path == first


@pytest.mark.parametrize("variable", ["OPWELD_DUMP", "OPWELD_DEBUG"])
def test_stages_that_are_to_be_seen_run_though_the_cache_holds_the_model(
    cache_without_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    first = opweld.compile(product()).path
    before = first.stat().st_ino, (first / artifact.MODULE).read_bytes()
    verified = list[object]()
    monkeypatch.setitem(FORMS, "assemble", replace(FORMS["assemble"], verify=lambda *a: verified.append(a)))
    monkeypatch.setenv(variable, str(tmp_path / "dump") if variable == "OPWELD_DUMP" else "1")
    again = opweld.compile(product())
    if variable == "OPWELD_DUMP":
        assert {file.suffix for file in (tmp_path / "dump").iterdir()} >= {".lowered", ".tiles", ".c"}
    else:
        assert verified
    assert again.path == first
    assert (first.stat().st_ino, (first / artifact.MODULE).read_bytes()) == before, "who opens it is not disturbed"


@pytest.mark.parametrize("library", cached.LIBRARIES)
def test_another_version_of_what_shapes_code_is_another_model(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, library: str
) -> None:
    def version(name: str) -> str:
        if name == library:
            raise metadata.PackageNotFoundError
        return installed(name)

    first, installed = opweld.compile(product()).path, metadata.version
    request.addfinalizer(cached.library_versions.cache_clear)
    monkeypatch.setattr(metadata, "version", version)
    cached.library_versions.cache_clear()
    assert opweld.compile(product()).path != first


def test_opening_a_cached_model_imports_nothing_of_what_compiles_it(cache_without_models: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(product())
    path = opweld.compile(model).path
    code = (
        "import sys, opweld\n"
        f"assert str(opweld.compile({str(model)!r}).path) == {str(path)!r}\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'onnx', 'onnx_ir', 'ml_dtypes'}))"
    )
    environment = os.environ | {"OPWELD_CACHE": str(cache_without_models)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_a_file_that_no_model_can_be_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "m.onnx").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(ModelError, match="2 GB"):
        opweld.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize("feeds", [None, 3, [np.zeros((2, 8), np.float32)], "x"])
def test_feeds_that_are_no_dict_are_refused(feeds: object) -> None:
    with pytest.raises(InputError, match="dict of arrays"):
        opweld.compile(product()).run(feeds)  # pyright: ignore[reportArgumentType]


def test_who_compiles_the_same_waits_and_says_for_whom(
    cache_without_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two compiles until the second one waits for it."""
    begun, waits, told, built = threading.Event(), threading.Event(), list[str](), list[object]()
    build = cached._built

    def slowly(*arguments: Any) -> Any:
        built.append(arguments)
        begun.set()
        assert waits.wait(PATIENCE_S)
        return build(*arguments)

    def progress(stage: str, done: int, total: int) -> None:
        told.append(stage)
        waits.set()

    monkeypatch.setattr(cached, "_built", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cached.compile_model, product(), Options())
        assert begun.wait(PATIENCE_S)
        second = pool.submit(cached.compile_model, product(), Options(), progress)
        assert first.result() == second.result()
    assert len(built) == 1
    assert told[0].startswith("waiting for another thread (since ")


def test_compiling_prints_nothing(cache_without_models: Path, capfd: pytest.CaptureFixture[str]) -> None:
    opweld.compile(product())
    assert capfd.readouterr() == ("", "")
