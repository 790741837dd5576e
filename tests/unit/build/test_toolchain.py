from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from opweld.build import toolchain
from opweld.build.cache import Cache
from opweld.build.toolchain import Compiler, Objects, build_shared, compile_objects
from opweld.errors import ToolchainError
from opweld.target import Target

HEADERS = {"export.h": '#define EXPORT __attribute__((visibility("default")))\n'}
NATIVE = Target.of("native")


def function(name: str, value: int) -> str:
    return f'#include "export.h"\nEXPORT int {name}(void) {{ return {value}; }}\n'


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were started, as they are."""
    commands: list[list[str]] = []
    real = subprocess.run

    def record(command: Any, **arguments: Any) -> Any:
        commands.append([str(part) for part in command])
        return real(command, **arguments)

    monkeypatch.setattr("subprocess.run", record)
    return commands


def test_sources_become_a_library(tmp_path: Path) -> None:
    out = tmp_path / "a.so"
    sources = {"one.c": function("one", 1), "two.c": function("two", 2)}
    seen: list[tuple[int, int]] = []
    build_shared(
        sources,
        out,
        target=NATIVE,
        headers=HEADERS,
        cache=Cache(tmp_path / "cache"),
        progress=lambda *p: seen.append(p),
    )
    library = ctypes.CDLL(str(out))
    assert (library.one(), library.two()) == (1, 2)
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".so"] == ["a.so"]


def test_objects_begin_before_all_sources_are_there(tmp_path: Path, runs: list[list[str]]) -> None:
    cache = Cache(tmp_path / "cache")
    sources = {"one.c": function("one", 1), "two.c": function("two", 2)}
    with Objects(target=NATIVE, headers=HEADERS, cache=cache) as objects:
        objects.add("one.c", sources["one.c"])
        while not runs:  # a compiler is at work
            time.sleep(0.001)
        found = objects.collect(sources)
    assert len(runs) == 2
    assert found == compile_objects(sources, target=NATIVE, headers=HEADERS, cache=cache)


def test_what_files_have_in_common_is_compiled_once(tmp_path: Path, runs: list[list[str]]) -> None:
    common = '#include "export.h"\n'
    sources = {"one.c": function("one", 1), "two.c": function("two", 2), "other.c": "int other(void) { return 3; }"}
    with Objects(target=NATIVE, headers=HEADERS, cache=Cache(tmp_path / "cache"), common=common) as objects:
        objects.prepare()
        objects.link(sources, tmp_path / "a.so")
    library = ctypes.CDLL(str(tmp_path / "a.so"))
    assert (library.one(), library.two()) == (1, 2)
    made = {run[run.index("-o") + 1]: run for run in runs}
    assert "c-header" in made["common.h.pch"] and len(runs) == 5
    with_it = [out for out, run in made.items() if "-include-pch" in run]
    assert sorted(with_it) == ["one.o", "two.o"]


def test_files_compile_without_what_they_have_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiler takes no precompiled header."""
    real = subprocess.run

    def refuse(command: Any, **arguments: Any) -> Any:
        return real(["false"] if "c-header" in command else command, **arguments)

    monkeypatch.setattr("subprocess.run", refuse)
    sources = {"one.c": function("one", 1)}
    cache, common = Cache(tmp_path / "cache"), '#include "export.h"\n'
    with Objects(target=NATIVE, headers=HEADERS, cache=cache, common=common) as objects:
        objects.link(sources, tmp_path / "a.so")
    assert ctypes.CDLL(str(tmp_path / "a.so")).one() == 1


@pytest.mark.parametrize("keep", [True, False])
def test_objects_that_another_process_removes_are_linked_all_the_same(
    tmp_path: Path, runs: list[list[str]], keep: bool
) -> None:
    cache = Cache(tmp_path / "cache")
    compile_objects({"one.c": function("one", 1)}, target=NATIVE, headers=HEADERS, cache=cache)  # found, the other made
    sources, cleared = {"one.c": function("one", 1), "two.c": function("two", 2)}, list[int]()

    def clear(done: int, of: int) -> None:
        if done == of and not cleared:
            cleared.append(done)
            cache.clear()

    build_shared(
        sources, tmp_path / "a.so", target=NATIVE, headers=HEADERS, cache=cache, progress=clear, keep=keep
    )
    assert cleared and ctypes.CDLL(str(tmp_path / "a.so")).two() == 2
    assert len([run for run in runs if "-c" in run]) == 2


def test_what_is_begun_in_vain_leaves_nothing(
    tmp_path: Path, runs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(KeyError), Objects(target=NATIVE, cache=Cache(tmp_path / "cache"), jobs=1) as objects:
        for number in range(8):
            objects.add(f"f{number}.c", f"int f{number}(void) {{ return nonsense; }}")
        raise KeyError
    assert len(runs) < 8
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_objects_are_compiled_once(tmp_path: Path, runs: list[list[str]]) -> None:
    cache = Cache(tmp_path / "cache")
    sources = {"one.c": function("one", 1), "two.c": function("two", 2), "same.c": function("two", 2)}
    first = compile_objects(sources, target=NATIVE, headers=HEADERS, cache=cache)
    assert first[1] == first[2] != first[0]
    assert len(runs) == 2
    assert compile_objects(sources, target=NATIVE, headers=HEADERS, cache=cache) == first
    assert len(runs) == 2
    compile_objects(sources, target=NATIVE, headers={"export.h": HEADERS["export.h"] + "\n"}, cache=cache)
    assert len(runs) == 4, "a header is part of what an object is made of"
    compile_objects({"one.c": sources["one.c"]}, target=NATIVE, headers=HEADERS, flags=["-g"], cache=cache)
    assert len(runs) == 5
    compile_objects({"one.c": sources["one.c"]}, target=Target.of("aarch64"), headers=HEADERS, cache=cache)
    assert len(runs) == 6


def test_damaged_objects_are_compiled_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    (place,) = compile_objects({"one.c": function("one", 1)}, target=NATIVE, headers=HEADERS, cache=cache)
    right = place.read_bytes()
    place.write_bytes(right[:100])
    assert compile_objects({"one.c": function("one", 1)}, target=NATIVE, headers=HEADERS, cache=cache) == [place]
    assert place.read_bytes() == right


def test_objects_do_not_depend_on_where_they_were_compiled(tmp_path: Path) -> None:
    objects = [
        compile_objects({"a.c": function("one", 1)}, target=NATIVE, headers=HEADERS, cache=Cache(tmp_path / place))[0]
        for place in ("here", "there")
    ]
    assert objects[0] != objects[1]
    assert objects[0].read_bytes() == objects[1].read_bytes()


def test_errors_carry_the_compilers_words(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"failed on bad\.c:(?s:.*)undeclared identifier 'nonsense'"):
        build_shared({"bad.c": "int f(void) { return nonsense; }"}, tmp_path / "a.so", target=NATIVE)
    assert list(tmp_path.iterdir()) == []


def test_undefined_symbols_are_found_when_linking(tmp_path: Path) -> None:
    text = '#include "export.h"\nextern int absent(void);\nEXPORT int f(void) { return absent(); }\n'
    with pytest.raises(ToolchainError, match="undefined symbol: absent"):
        build_shared({"a.c": text}, tmp_path / "a.so", target=NATIVE, headers=HEADERS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_needs_the_compiler_runtime_gets_it(tmp_path: Path) -> None:
    # 128-bit division is a function of the compiler's runtime.
    text = '#include "export.h"\nEXPORT long f(long a, long b) { return (long)(((__int128)a << 64) / b); }\n'
    build_shared({"a.c": text}, tmp_path / "a.so", target=NATIVE, headers=HEADERS)
    f = ctypes.CDLL(str(tmp_path / "a.so")).f
    f.restype, f.argtypes = ctypes.c_long, (ctypes.c_long, ctypes.c_long)
    assert f(3, 2**62) == 12


def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path) -> None:
    for name in ("../a.c", "a b.c", "-o.c", "a.py", "ä.c"):
        with pytest.raises(ToolchainError, match="is no name for a C file"):
            compile_objects({name: ""}, target=NATIVE, cache=Cache(tmp_path))


def test_signed_overflow_wraps_and_nan_is_a_value(tmp_path: Path) -> None:
    text = """#include "export.h"
    EXPORT int wraps(int x) { return x + 1 < x; }
    EXPORT int is_nan(float x) { return x != x; }
    """
    build_shared({"a.c": text}, tmp_path / "a.so", target=NATIVE, headers=HEADERS)
    library = ctypes.CDLL(str(tmp_path / "a.so"))
    library.is_nan.argtypes = (ctypes.c_float,)
    assert library.wraps(2**31 - 1) == 1
    assert library.is_nan(float("nan")) == 1


@pytest.mark.parametrize(("name", "machine"), [("aarch64", 183), ("x86-64-v3", 62), ("x86-64-v4", 62)])
def test_cross_compilation_makes_code_for_the_target(name: str, machine: int, tmp_path: Path) -> None:
    out = tmp_path / "a.so"
    build_shared({"a.c": function("one", 1)}, out, target=Target.of(name), headers=HEADERS)
    header = out.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == machine


def test_an_unwritable_cache_does_not_stop_compiling(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    build_shared(
        {"a.c": function("one", 1)}, tmp_path / "a.so", target=NATIVE, headers=HEADERS, cache=Cache(tmp_path / "file")
    )
    assert ctypes.CDLL(str(tmp_path / "a.so")).one() == 1


def test_a_damaged_zig_cache_is_worked_around(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    build_shared({"a.c": function("one", 1)}, tmp_path / "a.so", target=NATIVE, headers=HEADERS, cache=cache)
    for file in (cache.root / "zig").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\0damaged")
    build_shared({"b.c": function("two", 2)}, tmp_path / "b.so", target=NATIVE, headers=HEADERS, cache=cache)
    assert ctypes.CDLL(str(tmp_path / "b.so")).two() == 2


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the machine has no gcc to name in OPWELD_CC")
def test_another_compiler_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_CC", "gcc")
    assert not Compiler.find().is_zig
    build_shared({"a.c": function("one", 1)}, tmp_path / "a.so", target=NATIVE, headers=HEADERS)
    assert ctypes.CDLL(str(tmp_path / "a.so")).one() == 1


def test_a_compiler_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_CC", "false")
    with pytest.raises(ToolchainError, match="does not answer --version"):
        Compiler.find()


def test_without_any_compiler_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain._zig.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match="pip install ziglang"):
        Compiler.find()
    toolchain._zig.cache_clear()


def test_a_shared_object_that_is_kept_is_linked_once(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"a.c": "int kept(void) { return 7; }\n"}
    build_shared(sources, tmp_path / "first.so", target=NATIVE, keep=True)
    monkeypatch.setattr(toolchain, "_run", None)
    build_shared(sources, tmp_path / "second.so", target=NATIVE, keep=True)
    assert (tmp_path / "first.so").read_bytes() == (tmp_path / "second.so").read_bytes()
    (kept,) = (cache_folder / "shared").rglob("*.so")
    kept.write_bytes(b"damaged")
    monkeypatch.undo()
    monkeypatch.setenv("OPWELD_CACHE", str(cache_folder))
    build_shared(sources, tmp_path / "third.so", target=NATIVE, keep=True)
    assert (tmp_path / "first.so").read_bytes() == (tmp_path / "third.so").read_bytes()
