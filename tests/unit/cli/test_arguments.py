"""Options of the commands: each command that compiles has those that errors prescribe, and texts become values."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from opweld.cli.open import open_model
from opweld.errors import OptionError, UnspecifiedError
from opweld.options import Options


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
    made = Options.of_texts(
        {"lengths": ["xs=2", "o=none"], "ranks": ["x=3"], "constants": ["c=[1,2]"], "dim_hints": ["N=7"]}
    )
    assert (dict(made.lengths), dict(made.ranks)) == ({"xs": 2, "o": None}, {"x": 3})
    assert (dict(made.constants), dict(made.dim_hints)) == ({"c": [1, 2]}, {"N": 7})


@pytest.mark.parametrize(
    ("option", "flag"), [("lengths", "--length"), ("ranks", "--rank"), ("dim_hints", "--dim-hint")]
)
@pytest.mark.parametrize("text", ["x=-1", "x=two", "x=1.5", "x=\N{SUPERSCRIPT TWO}", f"x={'9' * 5000}"])
def test_a_text_that_is_no_number_is_refused(option: str, flag: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{flag} x="):
        Options.of_texts({option: [text]})


@pytest.mark.parametrize("option", ["dims", "dim_hints", "ranks"])
def test_none_is_a_length_and_nothing_else(option: str) -> None:
    with pytest.raises(OptionError, match="'x' is None, expected a whole number"):
        Options.of_texts({option: ["x=none"]})
