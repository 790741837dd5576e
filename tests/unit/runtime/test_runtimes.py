"""What opens an artifact: the runtime of the backend that its manifest names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from opweld.build import artifact
from opweld.errors import ArtifactError
from opweld.runtime.native import Native
from opweld.runtime.session import Session
from tests.unit.packages import installed
from tests.unit.runtime.fake_model import MANIFEST, Build, feeds_of

OTHER = dataclasses.replace(MANIFEST, backend="other")

RUNTIME = """
from opweld.runtime.opened import Opened

class Other(Opened):
    def run(self, arrays, shapes):
        return [arrays[0] * 2, arrays[2], arrays[3]]

    def fits(self, arrays):
        return True

def broken(folder, manifest, threads):
    return "nothing"

words = "nothing"
"""


def test_what_the_c_backend_wrote_is_opened_by_its_runtime(session: Session) -> None:
    assert session.manifest.backend == "c"
    assert isinstance(session._opened, Native)


def test_a_backend_that_is_not_installed_is_named(write_artifact: Build, tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "m.opweld", manifest=OTHER)
    with pytest.raises(ArtifactError, match=r"by the backend 'other', .* install the package of that backend"):
        Session(folder)


def test_the_runtime_of_an_installed_package_opens_it(write_artifact: Build, tmp_path: Path) -> None:
    folder, package = write_artifact(tmp_path / "m.opweld", manifest=OTHER), tmp_path / "package"
    package.mkdir()
    (package / "other_runtime.py").write_text(RUNTIME)
    with installed(package, {"opweld.runtimes": {"other": "other_runtime:Other"}}):
        session, feeds = Session(folder, threads=3), feeds_of(2)
        assert (session._opened.threads, session.has_dynamic_control_flow) == (3, False)
        assert (session.run(feeds)[0] == feeds["x"] * 2).all()
        into = feeds["x"].copy()
        made = session.run_into(feeds, {"total": into})
        assert made[0] is into and (into == feeds["x"] * 2).all()


@pytest.mark.parametrize(("value", "words"), [("broken", "returns 'nothing'"), ("words", "is not a function")])
def test_what_is_no_runtime_is_refused(write_artifact: Build, tmp_path: Path, value: str, words: str) -> None:
    folder, package = write_artifact(tmp_path / "m.opweld", manifest=OTHER), tmp_path / "package"
    package.mkdir()
    (package / "other_runtime.py").write_text(RUNTIME)
    entry_points = {"opweld.runtimes": {"other": f"other_runtime:{value}"}}
    with installed(package, entry_points), pytest.raises(ArtifactError, match=words):
        Session(folder)


def test_an_artifact_without_a_backend_is_of_c(folder: Path) -> None:
    text = (folder / artifact.MANIFEST).read_text()
    assert '"backend": "c"' in text
    assert artifact.Manifest.from_json(text.replace('"backend": "c",', "")).backend == "c"
