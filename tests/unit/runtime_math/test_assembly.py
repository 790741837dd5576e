"""What the compiler makes of the headers: full registers, no calls, one instruction for a broadcast."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from opweld.build.toolchain import Compiler
from opweld.target import Target
from tests.unit.runtime_math.conftest import HEADERS

_HOT = [
    "exp",
    "exp_below",
    "log",
    "log1p",
    "tanh",
    "erf",
    "sigmoid",
    "softplus",
    "gelu",
    "gelu_tanh",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "floor",
    "ceil",
    "round",
    "trunc",
]
_UNARY = """
#include "opweld_math.h"
#define UNARY(name) \\
    void name##_all(float *y, const float *x, int64_t n) { \\
        for (int64_t i = 0; i < n; i += OPW_LANES) opw_store_f32(y + i, opw_##name##_f32(opw_load_f32(x + i))); \\
    }
"""
_MEMORY = """
void splat_all(float *y, const float *x) { opw_store_f32(y, opw_splat_f32(x[0])); }
void relu_all(float *y, const float *x) { opw_store_f32(y, opw_max_f32(opw_splat_f32(0), opw_load_f32(x))); }
void partial_all(float *y, const float *x, int64_t n) { opw_store_partial_f32(y, opw_load_partial_f32(x, n), n); }
"""
_FORMATS = ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1"]
_CODES = """
#include "opweld_formats.h"
#define CODES(T) \\
    void decode_##T##_all(float *y, const uint8_t *x) { opw_store_f32(y, opw_convert_##T##_f32(opw_load_u8(x))); } \\
    void encode_##T##_all(uint8_t *y, const float *x) { opw_store_u8(y, opw_convert_f32_##T(opw_load_f32(x))); }
"""
_SOURCE = "\n".join(
    (_UNARY, *(f"UNARY({name})" for name in _HOT), _MEMORY, _CODES, *(f"CODES({name})" for name in _FORMATS))
)

_REGISTERS = {"x86-64-v4": "zmm", "x86-64-v3": "ymm"}


@pytest.fixture(scope="module", params=list(_REGISTERS))
def functions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The instructions of each function of `_SOURCE`, and the kind of register under `registers`."""
    folder: Path = tmp_path_factory.mktemp("assembly")
    (folder / "source.c").write_text(_SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPWELD_CC", raising=False)
        compiler = Compiler.find()
        flags = compiler.flags(Target.of(request.param))
    command = [*compiler.command, *flags, f"-I{HEADERS}", "-S", "source.c", "-o", "source.s"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    found: dict[str, list[str]] = {"registers": [_REGISTERS[request.param]]}
    instructions: list[str] = []
    for line in (folder / "source.s").read_text().splitlines():
        if match := re.match(r"(\w+)_all:", line):
            instructions = found.setdefault(match[1], [])
        elif re.match(r"\s+[a-z]", line):
            instructions.append(line.strip())
    return found


@pytest.mark.parametrize("name", _HOT)
def test_hot_functions_call_nothing_and_fill_registers(functions: dict[str, list[str]], name: str) -> None:
    instructions = functions[name]
    assert len(instructions) > 5
    assert not [line for line in instructions if line.startswith("call")]
    register = functions["registers"][0]
    if register == "zmm":  # 16 registers are too few for the constants of the longest
        assert not [line for line in instructions if "Spill" in line]
    packed = [line for line in instructions if re.match(r"v\w+ps\b", line) and not re.match(r"v(broadcast|xor)", line)]
    assert packed
    assert not [line for line in packed if register not in line]


def test_exp_is_short(functions: dict[str, list[str]]) -> None:
    loop = [line for line in functions["exp"] if re.match(r"v(min|max|mul|rndscale|round|f[n]?madd|scalef)\w*ps", line)]
    assert len(loop) <= 14


def test_a_broadcast_is_one_instruction(functions: dict[str, list[str]]) -> None:
    vector = [line for line in functions["splat"] if line.startswith("v") and not line.startswith("vzeroupper")]
    assert [line.split()[0] for line in vector] == ["vbroadcastss", "vmovups"]


def test_relu_is_one_maximum(functions: dict[str, list[str]]) -> None:
    names = [line.split()[0] for line in functions["relu"] if line.startswith("v")]
    assert names.count("vmaxps") == 1
    assert not [name for name in names if name.startswith(("vcmp", "vblend"))]


def test_partial_vectors_have_no_loop(functions: dict[str, list[str]]) -> None:
    assert not [line for line in functions["partial"] if re.match(r"(j[a-z]+|call)", line)]


@pytest.mark.parametrize("name", [f"{way}_{name}" for way in ("decode", "encode") for name in _FORMATS])
def test_codes_are_converted_in_whole_vectors(functions: dict[str, list[str]], name: str) -> None:
    instructions = functions[name]
    assert 5 < len(instructions) < 50
    assert not [
        line for line in instructions if re.match(r"(call|j[a-z]+|vpextr|vpinsr|v(add|mul|sub|cvt\w+)ss\b)", line)
    ]
