"""The text itself: golden files, names from models, other compilers."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from opweld.codegen.c.literals import comment_text, integer_literal, number_literal
from opweld.codegen.c.module import KernelFiles, render_module
from opweld.codegen.c.operators import MEMORY
from opweld.codegen.c.render import render_body, render_kernel
from opweld.errors import UnsupportedError
from opweld.runtime.library import c_headers
from opweld.tensor.dim import Axis, Symbol, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import load, unary
from opweld.tile.loops import tune_loops
from opweld.tile.module import Launch, Module, ModuleVariant
from opweld.tile.text import print_kernel as signature
from opweld.tile.tile import Buffer, Kernel, Store, Tile
from tests.unit.codegen.compiled import Runner, aligned, machine, source, with_gcc
from tests.unit.codegen.hand_written import F32, conv3x3, gemm, layernorm

GOLDEN = Path(__file__).parents[2] / "golden/c"
M = Symbol("m")
EVIL = 'x*/ "; system("rm"); //\\\n#include <evil.h>\u202e??/' + "y" * 5000

CASES = {
    "gemm": gemm(29, 40, 64, rows=4),
    "gemm_symbolic": gemm(M.dim, 32, 8, rows=4, sizes=(M,)),
    "conv": conv3x3(9, 9, 8, 32, rows=3),
    "layernorm": layernorm(3, 77),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """OPWELD_UPDATE_GOLDEN=1 rewrites the files."""
    path = GOLDEN / f"{name}.c"
    text = render_kernel(tune_loops(CASES[name], machine(16)), 16)
    if os.environ.get("OPWELD_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()


def copy(stem: str, letters: str = "t") -> Kernel:
    """y = exp(x), with every name made of `stem`."""
    size = Symbol(stem + "n")
    tile, lane = Axis(letters + "a", size.dim), Axis(letters + "b", 16)
    place = tile.dim * 16 + lane.dim
    store = Store(stem + "y", place, unary("exp", load(stem + "x", F32, (place,))))
    body = (Tile(lane, "lane", tile.dim * 16, (store,), size.dim * 16),)
    buffers = (Buffer(stem + "x", F32, "read"), Buffer(stem + "y", F32, "write"))
    return Kernel(stem, buffers, (size,), (tile,), body, origin=(stem,))


def test_names_from_models_stay_in_comments() -> None:
    text = render_kernel(copy(EVIL, EVIL), 16, "kernel")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("//"))
    assert "evil" not in code
    assert "system" not in code
    assert all(len(line) < 200 for line in text.splitlines())
    assert all(" " <= c <= "~" or c == "\n" for c in text)
    comments = [line for line in text.splitlines() if line.startswith("//")]
    assert comments
    assert not any(line.endswith("\\") for line in comments)
    Runner(copy(EVIL, EVIL), 16)


def test_comment_text_is_one_safe_line() -> None:
    assert comment_text("a\nb\\") == "a?b?"
    assert len(comment_text("z" * 1000)) == 150


def test_names_do_not_matter_to_the_text() -> None:
    one, other = copy("alpha"), copy("omega")
    assert render_body(one, 16, "k") == render_body(other, 16, "k")
    assert signature(one) == signature(other)


def test_signatures_tell_kernels_apart() -> None:
    kernels = [
        gemm(16, 32, 8),
        gemm(16, 32, 9),
        gemm(16, 33, 8),
        gemm(16, 32, 8, rows=4),
        layernorm(3, 77),
        layernorm(3, 78),
        conv3x3(9, 9, 8, 32),
        copy("alpha"),
    ]
    assert len({signature(kernel) for kernel in kernels}) == len(kernels)
    assert signature(gemm(16, 32, 8)) == signature(gemm(16, 32, 8))


def test_equal_kernels_are_rendered_once() -> None:
    kernels = [copy("alpha"), copy("omega"), gemm(16, 32, 8), gemm(16, 32, 8)]
    launches = tuple(
        Launch(k, tuple(range(len(k.buffers))), tuple(as_dim(1) for _ in k.sizes), as_dim(1)) for k in kernels
    )
    files = render_module(
        Module.straight((), (), (ModuleVariant("all", (), (), (), (), launches, ()),), 0, ()), machine(16)
    )
    assert len(re.findall(r"^void opw_", "".join(files.values()), re.MULTILINE)) == 2
    assert files["module.c"].count("OPW_DECLARE_KERNEL(") == 2
    for name in files:
        assert re.fullmatch(r"[a-z0-9_]+\.c", name)


def test_files_are_handed_on_while_others_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = tuple(
        Launch(k, tuple(range(len(k.buffers))), tuple(as_dim(1) for _ in k.sizes), as_dim(1))
        for k in (gemm(16, 32, depth) for depth in (8, 16, 24, 32, 40))
    )
    module = Module.straight((), (), (ModuleVariant("all", (), (), (), (), launches, ()),), 0, ())
    for characters, count in ((1, 5), (100_000, 2)):
        monkeypatch.setattr("opweld.codegen.c.module._FILE_CHARACTERS", characters)
        names: list[str] = []
        texts: list[str] = []

        def seen(name: str, text: str, names: list[str] = names, texts: list[str] = texts) -> None:
            names.append(name)
            texts.append(text)

        files = render_module(module, machine(16), KernelFiles(machine(16), seen))
        assert dict(zip(names, texts, strict=True)) == files
        assert len(names) == count + 1 and names[-1] == "module.c"


def test_a_variant_hands_on_what_is_worth_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [gemm(16, 32, depth) for depth in (8, 16, 24, 32)]
    for fewest, first, second in ((1, 2, 3), (1_000_000, 0, 0)):
        monkeypatch.setattr("opweld.codegen.c.module._FEWEST_CHARACTERS", fewest)
        seen: list[str] = []
        files = KernelFiles(machine(16), lambda name, text, seen=seen: seen.append(text))
        files.add_all(kernels[:2])  # two halves, for two compilers
        assert len(seen) == first
        files.add_all(kernels)
        assert len(seen) == second
        assert len(re.findall(r"^void opw_", "".join(files.files("").values()), re.MULTILINE)) == 4


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_gcc_compiles_it_too() -> None:
    random = np.random.default_rng(0)
    kernel = gemm(29, 40, 64)
    a, b, bias = (random.standard_normal(s).astype(np.float32) for s in ((29, 64), (64, 40), (40,)))
    packed, out = aligned((2, 64, 32)), aligned((29, 40))
    packed[0], packed[1, :, :8] = b[:, :32], b[:, 32:]
    library = with_gcc(source(kernel, 16))
    assert Runner(kernel, 16, library)({"A": a, "B": packed, "bias": bias, "C": out}) == 0
    np.testing.assert_allclose(out, np.maximum(a @ b + bias, 0), 1e-4, 1e-4)


def test_integers_beyond_64_bits_are_refused() -> None:
    assert [integer_literal(n) for n in (0, 2**63 - 1, -(2**63))] == ["0", str(2**63 - 1), "INT64_MIN"]
    assert number_literal(2**64 - 1, DType.U64) == f"{2**64 - 1}u"
    for number in (2**63, -(2**63) - 1, 10**40):
        with pytest.raises(UnsupportedError, match="64-bit"):
            integer_literal(number)


def test_zeros_of_every_type() -> None:
    """What guards exclude is read from zeros of the type that is read: none is read as another one."""
    declared = set(re.findall(r"^    OPW_ZEROS\((\w+)\);$", c_headers()["opweld_kernel.h"], re.MULTILINE))
    assert declared == set(MEMORY.values())
    read = set(re.findall(r"opw_zeros\S*", render_kernel(tune_loops(CASES["conv"], machine(16)), 16)))
    assert read == {"opw_zeros.floats;"}
