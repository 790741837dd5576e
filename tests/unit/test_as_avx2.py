"""Libraries that ask the processor what it has are told of AVX2 at most."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.as_avx2 import CPUID, TRAP, avx2_peers, trap

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("objdump") is None, reason="needs x86-64 and objdump"
)

ASKS = """#include <cpuid.h>
unsigned immediate(void) { return 0xa20fu; } /* the bytes of cpuid inside another instruction */
unsigned asks(unsigned leaf, unsigned subleaf, unsigned which) {
    unsigned r[4];
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    return r[which];
}
"""

PRINTS = """import asks
print(*(asks.library.asks(*question) for question in ((0, 0, 0), (7, 0, 1), (7, 0, 2), (7, 0, 3), (7, 1, 0))))
print(asks.library.immediate())
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a library that asks."""
    folder = tmp_path / "asks"
    folder.mkdir()
    (tmp_path / "asks.c").write_text(ASKS)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-O1", "-shared", "-fPIC"]
    subprocess.run([*compiler, "-o", folder / "asks.so", tmp_path / "asks.c"], check=True)
    (folder / "__init__.py").write_text(
        "import ctypes, pathlib\nlibrary = ctypes.CDLL(pathlib.Path(__file__).with_name('asks.so'))\n"
        "library.asks.restype = ctypes.c_uint\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_only_the_instruction_is_replaced(package: Path) -> None:
    library = package / "asks.so"
    before = library.read_bytes()
    assert trap(library) == 1
    after = library.read_bytes()
    (changed,) = (at for at in range(len(before) - 1) if before[at : at + 2] == CPUID and after[at : at + 2] == TRAP)
    assert after == before[:changed] + TRAP + before[changed + 2 :]
    assert ctypes.CDLL(str(library)).immediate() == 0xA20F


def test_what_comes_after_avx2_is_hidden(package: Path) -> None:
    with avx2_peers(["asks"]) as variables:
        told = subprocess.run(
            [sys.executable, "-c", PRINTS], env=os.environ | variables, capture_output=True, text=True, check=True
        )
    numbers = [int(word) for word in told.stdout.split()]
    leaves, ebx, ecx, edx, eax, immediate = numbers
    assert leaves >= 7 and immediate == 0xA20F
    assert not ebx & (1 << 16 | 1 << 17 | 1 << 30 | 1 << 31)  # AVX512F, DQ, BW, VL
    assert not ecx & (1 << 11) and not edx & (1 << 24) and not eax & (1 << 4 | 1 << 5)
    assert bool(ebx & 1 << 5) == ("avx2" in Path("/proc/cpuinfo").read_text().split())


def test_a_package_that_never_asks(package: Path) -> None:
    (package / "asks.so").unlink()
    with pytest.raises(RuntimeError, match="asks: no cpuid"), avx2_peers(["asks"]):
        pass
    with pytest.raises(RuntimeError, match="pip install"), avx2_peers(["no_such_package"]):
        pass
