"""What a user misspells is refused before anything is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

from opweld import accounts, cached
from opweld.cli.main import application
from opweld.errors import InputError, ModelError, OptionError, OpweldError
from opweld.verification import reference

OPWELD = application()

RUN_HERE = ("run", "verify", "bench", "profile", "bisect", "report")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("asked")
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[batch, 3] x, float[?, 3] a) => (float[batch, 3] y) { y = Relu(x) }""")
    onnx.save(model, made / "anonymous.onnx")
    del model.graph.input[1]
    onnx.save(model, made / "m.onnx")
    np.save(made / "wide.npy", np.zeros((2, 5), np.float32))
    (made / "no.npy").write_text("no array")
    return made


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(*_: Any, **__: Any) -> None:
        raise InterruptedError("the model is compiled")

    for module, name in ((cached, "_compiled"), (accounts, "_found"), (reference, "float64_outputs")):
        monkeypatch.setattr(module, name, compiles)
    for where in ("pipeline", "experiments.attempts", "experiments.traced"):
        monkeypatch.setattr(f"opweld.{where}.build_artifact", compiles)
    monkeypatch.setattr("opweld.rewrite.optimize.optimize_as_asked", compiles)


def refuse(folder: Path, command: str, *texts: str, model: str = "m.onnx") -> OpweldError:
    output = ("-o", str(folder / "out.html")) if command == "report" else ()
    given = [text.replace("FOLDER", str(folder)) for text in texts]
    answer = CliRunner().invoke(OPWELD, [command, str(folder / model), *output, *given])
    assert isinstance(answer.exception, OpweldError), (answer.exception, answer.output)
    return answer.exception


@pytest.mark.parametrize("command", RUN_HERE)
@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("--input q=1", OptionError, "'q'"),
        ("--input x=FOLDER/missing.npy", InputError, "x="),
        ("--input x=FOLDER/no.npy", InputError, "x="),
        ("--input x=FOLDER/wide.npy", InputError, "'x'"),
        ("--input x=2x5", InputError, "'x'"),
        ("--input x=3x3x3", InputError, "rank 2"),
        ("--input x=axb", OptionError, "x=axb"),
        ("--dim btach=3", OptionError, "batch"),
        ("--seed -1", OptionError, "seed"),
    ],
)
def test_inputs(folder: Path, command: str, text: str, error: type[OpweldError], said: str) -> None:
    refused = refuse(folder, command, *text.split())
    assert isinstance(refused, error) and said in str(refused)


def test_sizes_of_an_analysis(folder: Path) -> None:
    assert "'btach'" in str(refuse(folder, "analyze", "--dim", "btach=3"))


@pytest.mark.parametrize("command", RUN_HERE)
def test_what_may_get_its_name_while_the_model_is_read_is_no_mistake(folder: Path, command: str) -> None:
    output = ("-o", str(folder / "out.html")) if command == "report" else ()
    asked = [
        command,
        str(folder / "anonymous.onnx"),
        *output,
        "--dim",
        "a_0=3",
        *(("--vs", "none") * (command == "bench")),
    ]
    assert not isinstance(CliRunner().invoke(OPWELD, asked).exception, OptionError)


def test_all_models_of_a_contest(folder: Path) -> None:
    assert isinstance(refuse(folder, "bench", str(folder / "missing.onnx")), ModelError)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        *((command, "--json") for command in ("run", "verify", "bench", "profile", "bisect", "explain", "analyze")),
        ("analyze", "--csv"), ("profile", "--csv"), ("profile", "--trace"), ("lock", "-o"), ("optimize", "-o"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_written(folder: Path, command: str, flag: str) -> None:
    for place in ("FOLDER", "FOLDER/missing/file", "FOLDER/m.onnx"):
        refused = refuse(folder, command, flag, place)
        assert isinstance(refused, OptionError) and ("cannot write there" in str(refused) or "itself" in str(refused))


@pytest.mark.parametrize(
    "texts",
    ["explain --rule fuse.epilog", "explain --disable fuse.epilog", "compile --pin fuse=x", "bench --vs onxruntime",
     "bench --levels al", "run --target x", "compile --target x", "run --level al", "compile --tune quik",
     "compile --dim-hint n=0", "compile --rank x=y", "compile --length x=y", "compile --constant x=[1",
     "compile --schedules FOLDER/missing.txt", "run --denormals no", "report --vs x", "profile --sort x",
     "analyze --sort x", "verify --rtol nan", "bisect --for x", "compile --threads -1"],
)  # fmt: skip
def test_names_of_everything_else(folder: Path, texts: str) -> None:
    command, *given = texts.split()
    if "--target" in given and command == "run":
        assert CliRunner().invoke(OPWELD, [command, str(folder / "m.onnx"), *given]).exit_code == 2  # no such flag
        return
    assert isinstance(refuse(folder, command, *given), OptionError)
