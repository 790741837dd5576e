from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.errors import OptionError
from opweld.options import Environment, Options, available_cores


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


@pytest.mark.parametrize(
    "change",
    [
        {"target": "aarch64"},
        {"level": "none"},
        {"dims": {"batch": 1}},
        {"disable": ("fuse",)},
    ],
)
def test_digest_tells_apart_what_is_compiled_differently(change: dict[str, Any]) -> None:
    assert Options(**change).digest() != Options().digest()


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
    assert available_cores() == len(os.sched_getaffinity(0))
