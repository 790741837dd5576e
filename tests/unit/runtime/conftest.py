"""The runtime and a module written by hand, compiled once a test session, and artifacts of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from opweld.build import artifact
from opweld.build.artifact import Manifest
from opweld.build.toolchain import build_shared
from opweld.runtime.build import build_runtime
from opweld.runtime.library import c_headers, c_sources, public_headers
from opweld.runtime.session import Session
from opweld.target import Target
from tests.unit.runtime.fake_model import MANIFEST, SOURCE, WEIGHTS, Build
from tests.unit.runtime.files import files_in


def roomy_sources() -> dict[str, str]:
    """The runtime's sources, with eight processors wherever they count them."""
    sources = c_sources()
    counted = sources["processors.c"].replace("int32_t opw_processors", "int32_t counted_processors")
    told = "".join(f"int32_t opw_processors{who}(void) {{ return 8; }}\n" for who in ("", "_of_caller"))
    sources["processors.c"] = counted + told
    return sources


def steady(sources: dict[str, str]) -> dict[str, str]:
    """The sources of a runtime whose runs have several threads however late these are: for tests of such runs."""
    decides = "if (after <= 0) return;"
    assert decides in sources["alone.c"]
    return {**sources, "alone.c": sources["alone.c"].replace(decides, "return;")}


@pytest.fixture(scope="session")
def runtime_so(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runtime.so, as it is compiled for products, but steady."""
    folder = tmp_path_factory.mktemp("runtime")
    for name, text in {**c_headers(), **steady(c_sources())}.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opweld.runtime.library.SOURCE_FOLDER", folder)
        build_runtime(folder / "runtime.so", Target.native())
    return folder / "runtime.so"


@pytest.fixture(scope="session")
def roomy_runtime_so(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime as on a machine of eight processors, wherever the tests run."""
    out = tmp_path_factory.mktemp("roomy") / "runtime.so"
    build_shared(
        steady(roomy_sources()), out, target=Target.native(), headers=c_headers(), flags=('-DOPW_VERSION="0"',)
    )
    return out


@pytest.fixture(scope="session")
def module_so(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles fake_model.c with macros, once for each set of them."""
    cache: dict[tuple[tuple[str, object], ...], Path] = {}

    def build(**macros: object) -> Path:
        key = tuple(sorted(macros.items()))
        if key not in cache:
            out = tmp_path_factory.mktemp("module") / "module.so"
            flags = ("-Wall", "-Wextra", "-Werror", *(f"-D{name}={value}" for name, value in key))
            source = {"fake_model.c": SOURCE.read_text()}
            build_shared(source, out, target=Target.native(), headers=c_headers(), flags=flags)
            cache[key] = out
        return cache[key]

    return build


@pytest.fixture(scope="session")
def write_artifact(module_so: Build, runtime_so: Path) -> Build:
    """Writes an artifact of the module, with macros, at a path."""

    def write(
        folder: Path,
        *,
        weights: bytes = WEIGHTS,
        manifest: Manifest = MANIFEST,
        runtime: Path = runtime_so,
        **macros: object,
    ) -> Path:
        folder.parent.mkdir(parents=True, exist_ok=True)
        artifact.write(
            folder,
            manifest=manifest,
            files=files_in(folder.parent, module_so(**macros), runtime, {"fake_model.c": "int x;\n"}, public_headers()),
            weights=[weights[:10], memoryview(weights)[10:]],
            ledger_json="[]",
        )
        return folder

    return write


@pytest.fixture(scope="session")
def folder(write_artifact: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact that no test changes."""
    return write_artifact(tmp_path_factory.mktemp("artifact") / "fake.opweld")


@pytest.fixture(scope="session")
def roomy_folder(write_artifact: Build, roomy_runtime_so: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with a runtime that believes in eight processors."""
    return write_artifact(tmp_path_factory.mktemp("roomy") / "fake.opweld", runtime=roomy_runtime_so)


@pytest.fixture(scope="session")
def session(folder: Path) -> Session:
    """A session of it."""
    return Session(folder)
