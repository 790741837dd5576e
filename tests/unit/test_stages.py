"""How stages are run: what is written, what is verified, what is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import compile_time
from benchmarks.sized_models import SHAPES
from opweld.backends.c import BEGINNINGS, FORMS
from opweld.stages import FORMS as COMMON
from opweld.stages import Form, Reported, Stage, Watched, plain
from opweld.tensor.intern import compilation

UNMET = {"version"}
"""Stages that this model does not meet: see tests/unit/test_versions.py."""


def names_of(level: str) -> list[str]:
    """The stages in order, as a model meets them."""
    met: list[str] = []

    def noted(name: str, run: Any, /, *args: Any, **kwargs: Any) -> Any:
        met.append(name)
        return run(*args, **kwargs)

    sources(noted, level)
    return met


def sources(stage: Stage, level: str = "all") -> Any:
    with compilation():
        return compile_time.compiled(SHAPES["mlp"](20), level, stage)


def test_every_form_is_that_of_a_stage() -> None:
    names = names_of("all")
    assert {*COMMON, *FORMS} - UNMET <= set(names) and names == names_of("none")


def test_watching_changes_nothing_and_writes_a_numbered_file_a_text(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert sources(Watched(folder, debug=True, forms=FORMS)) == sources(plain)
    files = sorted(path.name for path in folder.iterdir())
    assert [int(name[:3]) for name in files] == list(range(1, len(files) + 1))
    kinds = [Path(name).suffix for name in files if "-c-" not in name]
    placed = (".placed", ".packed", ".summed", ".reused")
    forms = (".lowered", ".tensors", ".fused", *placed, ".schedules", ".tiles", ".launches")
    assert tuple(kinds) == forms
    assert (folder / files[1]).read_text().startswith("program ")


def test_what_a_stage_makes_is_verified() -> None:
    met: list[str] = []
    forms = {
        name: Form(form.texts, lambda *_, name=name: met.append(name)) for name, form in {**COMMON, **FORMS}.items()
    }
    sources(Watched(None, debug=True, forms=forms))
    assert set(met) == set(forms) - UNMET
    met.clear()
    sources(Watched(None, debug=False, forms=forms))
    assert met == []


def test_progress_is_told_once_a_step() -> None:
    told: list[tuple[str, int, int]] = []
    stage = Reported(plain, lambda *what: told.append(what), BEGINNINGS, "compiling C")
    for name in ("load", "explore", "fuse", "fuse", "render"):
        assert stage(name, max, 1, 2) == 2
    stage.built(0, 2)
    stage.built(2, 2)
    assert [text for text, _, _ in told] == ["reading the model", "fusing", "generating C", *["compiling C"] * 2]
    assert [done for _, done, _ in told] == [0, 1, 2, 3, 5] and told[-1][2] == 5
