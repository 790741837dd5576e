from __future__ import annotations

import dataclasses
import inspect
import os
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import opweld
from opweld.cli import arguments
from opweld.cli.main import application
from opweld.errors import OptionError
from opweld.option import documented, entries, option, sizes
from opweld.options import CompileOptions, Environment, Options, available_cores

OPWELD = application()


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
        ({"dims": {"batch": -1}}, "dims 'batch' is -1, expected a whole number from 0"),
        ({"dims": {"batch": np.zeros(2, int)}}, "dims 'batch' is array([0, 0]), expected a whole number"),
        ({"dim_hints": {"batch": 0}}, "dim_hints 'batch' is 0, expected a whole number from 1"),
        ({"disable": 3}, "disable is 3, expected a list"),
        ({"pins": {"a": 1}}, "pins 'a' is 1"),
        ({"dims": {"batch": 2**63}}, "dims 'batch' is 9223372036854775808"),
        ({"dims": {"": 1}}, "dims has the key ''"),
        ({"dims": [("batch", 1)]}, "expected whole numbers by name of symbolic dim"),
        ({"disable": "fuse"}, "disable is 'fuse', expected a list"),
        ({"disable": ("",)}, "disable holds ''"),
        ({"schedules": 3}, "schedules is 3, expected the path of a schedules file"),
        ({"schedules": "no/such.txt"}, "schedules 'no/such.txt': cannot be read"),
        ({"schedules_text": "x"}, "unknown option 'schedules_text'"),
        ({"levle": "all"}, "unknown option 'levle'; the options are target, level, threads, dims, dim_hints, disable"),
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
    "precision": {"precision": "bf16"},
    "states": {"states": {"past": "present"}},
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


# An option is one line of the table. What an option added to it becomes, is what each of them is.

FIELDS = {entry.name for entry in entries(Options)}


def test_every_field_that_a_caller_gives_is_of_the_table() -> None:
    assert {entry.name for entry in dataclasses.fields(Options) if entry.init} == FIELDS


def test_type_checkers_know_the_keywords() -> None:
    assert set(CompileOptions.__annotations__) == FIELDS


@pytest.mark.parametrize("function", [opweld.compile, opweld.explain, opweld.analyze, opweld.InferenceSession.__init__])
def test_every_function_that_compiles_takes_and_tells_every_option(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert {entry.name: parameters[entry.name].default for entry in entries(Options)} == {
        entry.name: entry.default for entry in entries(Options)
    }
    told = " ".join((inspect.getdoc(function) or "").split())
    assert all(f"{entry.name}: {entry.option.documentation}" in told for entry in entries(Options))


COMMANDS = cast("dict[str, click.Command]", vars(typer.main.get_command(OPWELD))["commands"])
COMPILING = ("compile", "explain", "lock", "run", "verify", "profile", "bench", "bisect", "analyze", "report")
OWN = {"bench": {"--level"}, "bisect": {"--tune", "--schedules"}}
"""Flags that a command gives itself, or that would have no effect."""


@pytest.mark.parametrize("name", COMPILING)
def test_every_option_is_a_flag_of_every_command_that_compiles(name: str) -> None:
    flags = {flag for parameter in COMMANDS[name].params for flag in parameter.opts}
    wanted = {entry.option.flag for entry in entries(Options) if entry.option.flag}
    assert wanted - flags - OWN.get(name, set()) - {"--target"} == set()
    assert "--target" in flags or name in ("run", "verify", "profile", "bench", "bisect")  # which run it here
    assert OWN.get(name, set()) & flags == set()


def test_an_option_that_is_added_to_the_table_is_there_everywhere() -> None:
    @dataclass(frozen=True)
    class More(Options):
        speeds: Mapping[str, int] = option(
            {}, sizes(3), "how fast dims are", more="From 3 on.", flag="--speed", rewriting=True
        )

    assert More(speeds={"n": np.int64(4)}).speeds == {"n": 4}  # pyright: ignore[reportArgumentType]
    for refused in ({"n": 2}, {"": 3}, 3):
        with pytest.raises(OptionError, match="speeds"):
            More.of(speeds=refused)
    with pytest.raises(OptionError, match="--speed 'n' is 2"):
        More.of_texts({"speeds": ["n=2"]})
    assert More(speeds={"n": 4}).digest() != More(speeds={"n": 5}).digest()
    assert pickle.loads(pickle.dumps(Options(dims={"n": 4}))).dims == {"n": 4}

    @documented(More)
    def function(model: str, **options: Any) -> None:
        """Compiles.

        Args:
            options: see the table.
        """

    assert "speeds: how fast dims are. From 3 on." in (inspect.getdoc(function) or "")
    assert inspect.signature(function).parameters["speeds"].default == {}

    made = list[More]()

    @arguments.with_options(rewriting=True, table=More)
    def command(model: str, *, options: Options) -> None:
        """Compiles."""
        assert isinstance(options, More)
        made.append(options)

    program = typer.Typer(rich_markup_mode=None)
    program.command()(command)
    assert CliRunner().invoke(program, ["m.onnx", "--speed", "n=7", "--level", "none"]).exit_code == 0
    assert (made[0].speeds, made[0].level) == ({"n": 7}, "none")
    told = CliRunner().invoke(program, ["--help"]).output
    assert "--speed" in told and "How fast dims are; repeat for more." in told and "--tune" not in told


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
