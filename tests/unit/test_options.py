from __future__ import annotations

import dataclasses
import inspect
import os
import pickle
import re
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import opweld
from opweld.cli import arguments
from opweld.cli.main import app
from opweld.errors import OptionError
from opweld.options import CompileOptions, Environment, Options, available_cores


def test_defaults_are_native_everything_on_all_cores() -> None:
    options = Options()
    assert (options.target, options.level) == ("native", "all")
    assert options.threads == 0
    assert options.dims == {}
    assert options.disable == ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target": "riscv"}, "target is 'riscv', expected one of native, x86-64-v3, x86-64-v4, aarch64"),
        ({"level": "max"}, "level is 'max', expected one of none, basic, extended, all"),
        ({"target": ["native"]}, "target is ['native'], expected one of"),
        ({"threads": -1}, "threads is -1, expected a whole number from 0 to 1024"),
        ({"threads": True}, "threads is True"),
        ({"threads": 2.0}, "threads is 2.0"),
        ({"dims": {"batch": -1}}, "dim 'batch' is -1, expected a whole number from 0"),
        ({"dims": {"batch": np.zeros(2, int)}}, "dim 'batch' is array([0, 0]), expected a whole number"),
        ({"dim_hints": {"batch": 0}}, "dim hint 'batch' is 0, expected a whole number from 1"),
        ({"disable": 3}, "disable is 3, expected a list"),
        ({"pins": {"a": 1}}, "pins holds 'a': 1"),
        ({"dims": {"batch": 2**63}}, "dim 'batch' is 9223372036854775808"),
        ({"dims": {"": 1}}, "dims has the key ''"),
        ({"dims": [("batch", 1)]}, "expected sizes by name of symbolic dim"),
        ({"disable": "fuse"}, "disable is the text 'fuse', expected a list"),
        ({"disable": ("",)}, "disable holds ''"),
        ({"schedules": 3}, "schedules is 3, expected the path of a schedules file"),
        ({"schedules": "no/such.txt"}, "schedules 'no/such.txt': cannot be read"),
        ({"schedules_text": "x"}, "unknown option 'schedules_text'"),
        ({"levle": "all"}, "unknown option 'levle'; the options are target, level, threads, dims, disable"),
    ],
)
def test_bad_values_are_refused_with_the_valid_ones(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        Options.of(**values)


def test_numbers_of_numpy_are_numbers() -> None:
    options = Options(threads=np.int32(2), dims={"n": np.int64(0)})  # pyright: ignore[reportArgumentType]
    assert options == Options(threads=2, dims={"n": 0})
    assert type(options.threads) is int and type(options.dims["n"]) is int


def test_options_cannot_be_changed_not_even_through_their_dims() -> None:
    dims = {"batch": 1}
    options = Options(dims=dims)
    dims["batch"] = 2
    assert options.dims == {"batch": 1}
    with pytest.raises(TypeError):
        options.dims["batch"] = 3  # pyright: ignore[reportIndexIssue]


CHANGES: dict[str, dict[str, Any]] = {
    "target": {"target": "aarch64"},
    "level": {"level": "none"},
    "dims": {"dims": {"batch": 1}},
    "disable": {"disable": ("fuse",)},
    "pins": {"pins": {"fuse.epilogue:a": "apart"}},
    "dim_hints": {"dim_hints": {"batch": 1}},
    "lengths": {"lengths": {"x": None}},
    "ranks": {"ranks": {"x": 2}},
    "constants": {"constants": {"x": [1, 2]}},
    "tune": {"tune": "quick"},
    "denormals": {"denormals": "zero"},
}
"""By option, another value; `ASIDE` are no part of a model's key, or have a test of their own."""

ASIDE = {"threads", "schedules", "rules"}


@pytest.mark.parametrize("change", CHANGES.values(), ids=str)
def test_digest_tells_apart_what_is_compiled_differently(change: dict[str, Any]) -> None:
    assert Options(**change).digest() != Options().digest()


def test_every_option_is_part_of_a_key() -> None:
    assert CHANGES.keys() == FIELDS - ASIDE


def test_digest_tells_threads_apart_where_they_are_tuned_for() -> None:
    assert Options(threads=1, tune="quick").digest() != Options(threads=2, tune="quick").digest()


# An option is stated where it is checked, where it is passed on, where it is documented, and on the command line.

FIELDS = {entry.name for entry in dataclasses.fields(Options) if entry.init}


def test_every_option_is_a_keyword_of_python() -> None:
    parameters = inspect.signature(opweld.compile).parameters
    assert {name for name, value in parameters.items() if value.kind is value.KEYWORD_ONLY} - {"progress"} == FIELDS
    assert set(CompileOptions.__annotations__) == FIELDS


def test_python_has_the_defaults_of_the_options() -> None:
    for name, parameter in inspect.signature(opweld.compile).parameters.items():
        if name in FIELDS:
            assert (parameter.default or None) == (getattr(Options(), name) or None), name


@pytest.mark.parametrize("documented", [opweld.compile, Options], ids=["compile", "Options"])
def test_every_option_is_documented(documented: Any) -> None:
    lines = (inspect.getdoc(documented) or "").splitlines()
    told = {name for line in lines if line.startswith("    ") for name in line.partition(":")[0].strip().split(", ")}
    assert told >= FIELDS


COMMANDS = cast("dict[str, click.Command]", vars(typer.main.get_command(app))["commands"])
SHARED = set(inspect.signature(arguments.options).parameters)


@pytest.mark.parametrize("field", sorted(FIELDS - {"rules"}))
def test_every_option_is_a_flag_of_compile(field: str) -> None:
    """By the name of the field, or by its singular where it is repeated: --dim of dims."""
    flags = {flag for parameter in COMMANDS["compile"].params for flag in parameter.opts}
    name = "--" + field.replace("_", "-")
    assert flags & {name, name.removesuffix("s")}


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if "disable" in {p.name for p in one.params}])
def test_what_a_command_takes_it_passes_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that a command declares and forgets would be ignored in silence."""
    passed = set[str]()

    def record(**given: Any) -> None:
        passed.update(given)
        raise InterruptedError

    monkeypatch.setattr(arguments, "options", record)
    model = tmp_path / "m.onnx"
    model.touch()
    arrival = ["-o", str(tmp_path / "out")] if name in ("report", "optimize") else []
    CliRunner().invoke(app, [name, str(model), *arrival])
    declared = {parameter.name for parameter in COMMANDS[name].params} & SHARED
    aside = {"dims", "level"}  # bench takes --levels, and --dim is often the size of an input
    assert passed and declared - aside == passed - aside


def test_digest_tells_contents_of_schedules_apart(tmp_path: Path) -> None:
    file = tmp_path / "schedules.txt"
    file.write_text("variant a\n")
    first = Options(schedules=file)
    assert first.digest() != Options().digest()
    (tmp_path / "other.txt").write_text("variant a\n")
    assert Options(schedules=tmp_path / "other.txt").digest() == first.digest(), "the name does not count"
    file.write_text("variant b\n")
    assert Options.of(schedules=str(file)).digest() != first.digest()
    assert first.schedules_text == "variant a\n", "read once"
    assert pickle.loads(pickle.dumps(Options(schedules=file))) == Options(schedules=file)


def test_digest_ignores_threads_and_order() -> None:
    assert Options(threads=1).digest() == Options(threads=2).digest()
    assert Options(dims={"a": 1, "b": 2}).digest() == Options(dims={"b": 2, "a": 1}).digest()
    assert Options(disable=("x", "y")).digest() == Options(disable=("y", "x", "y")).digest()


def test_options_pickle() -> None:
    options = Options(level="basic", threads=3, dims={"n": 4}, disable=("fuse",))
    assert pickle.loads(pickle.dumps(options)) == options


def test_environment_is_empty_by_default() -> None:
    assert Environment.read({}) == Environment(False, None, None, None)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("4096", 4096), ("500M", 500 << 20), ("1.5GiB", 3 << 29), ("2 kB", 2048), ("1T", 1 << 40), ("7B", 7)],
)
def test_bytes_are_written_as_people_write_them(text: str, count: int) -> None:
    assert Environment.read({"OPWELD_CACHE_LIMIT": text}).cache_limit == count


def test_environment_reads_all_four(tmp_path: Path) -> None:
    environment = Environment.read(
        {
            "OPWELD_DEBUG": "1",
            "OPWELD_DUMP": str(tmp_path / "new" / "dump"),
            "OPWELD_CACHE": str(tmp_path),
            "OPWELD_CC": "sh",
        }
    )
    assert environment.debug
    assert environment.dump == tmp_path / "new" / "dump"
    assert environment.cache == tmp_path
    assert environment.compiler is not None and environment.compiler.name == "sh" and environment.compiler.is_absolute()


def test_environment_folders_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Environment.read({"OPWELD_CACHE": "here"}).cache == tmp_path / "here"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OPWELD_DEBUG": "yes"}, "OPWELD_DEBUG is 'yes', expected 0 or 1"),
        ({"OPWELD_DUMP": "{file}"}, "is a file; name a folder"),
        ({"OPWELD_CACHE": "{file}/below"}, "is a file; name a folder"),
        ({"OPWELD_CACHE": "~nobody-of-this-name/x"}, "OPWELD_CACHE is"),
        ({"OPWELD_CACHE_LIMIT": "much"}, "OPWELD_CACHE_LIMIT is 'much', expected a number of bytes such as 500M"),
        ({"OPWELD_CACHE_LIMIT": "-1"}, "OPWELD_CACHE_LIMIT is '-1'"),
        ({"OPWELD_CC": "no-such-compiler"}, "no program; name a C compiler such as gcc"),
    ],
)
def test_bad_environment_is_refused(variables: dict[str, str], message: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OptionError, match=re.escape(message)):
        Environment.read({name: value.format(file=file) for name, value in variables.items()})


def test_available_cores_honours_affinity() -> None:
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))
