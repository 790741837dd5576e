"""Options of the commands: each command that compiles has those that errors prescribe, and texts become values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
import onnx
import pytest
import typer.main
from onnx import parser

from opweld.cli import arguments
from opweld.cli.main import app
from opweld.cli.open import open_model
from opweld.errors import OptionError, UnspecifiedError
from opweld.options import Options

COMPILING = ("compile", "run", "bench", "profile", "verify", "bisect", "explain", "analyze", "report", "lock")


def options_of(command: str) -> set[str]:
    group: Any = typer.main.get_command(app)
    parameters: list[click.Parameter] = group.commands[command].params
    return {option for parameter in parameters for option in parameter.opts}


@pytest.mark.parametrize("command", COMPILING)
def test_what_errors_prescribe_is_an_option_of_each_command_that_compiles(command: str) -> None:
    """`UnspecifiedError.option` names one of lengths, ranks, constants, dims."""
    assert {"--length", "--rank", "--constant", "--dim", "--dim-hint", "--disable", "--pin"} <= options_of(command)
    assert {"lengths", "ranks", "constants", "dims"} <= {field.name for field in dataclasses.fields(Options)}


def test_sizes_of_made_up_inputs_are_those_of_the_model_where_it_needs_them(tmp_path: Path) -> None:
    """How long a shape is that is fed decides how many dims there are."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[2, 3] x, int64[L] s) => (float y) { y = Reshape(x, s) }""")
    path = tmp_path / "reshape.onnx"
    onnx.save(model, path)
    with pytest.raises(UnspecifiedError, match="--dim L=N"):
        open_model(path, Options())
    opened = open_model(path, Options(), {"L": 2})
    assert [info.shape for info in opened.inputs] == [(2, 3), (2,)]


def test_texts_become_values() -> None:
    made = arguments.options(length=["xs=2", "o=none"], rank=["x=3"], constant=["c=[1,2]"], dim_hint=["N=7"])
    assert (dict(made.lengths), dict(made.ranks)) == ({"xs": 2, "o": None}, {"x": 3})
    assert (dict(made.constants), dict(made.dim_hints)) == ({"c": [1, 2]}, {"N": 7})


@pytest.mark.parametrize("option", ["length", "rank", "dim_hint"])
@pytest.mark.parametrize("text", ["x=-1", "x=two", "x=1.5", "x=\N{SUPERSCRIPT TWO}", f"x={'9' * 5000}"])
def test_a_text_that_is_no_number_is_refused(option: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"--{option.replace('_', '-')} x="):
        arguments.options(**{option: [text]})  # pyright: ignore[reportArgumentType]
