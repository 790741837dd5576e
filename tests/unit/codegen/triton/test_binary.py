"""Kernels are compiled ahead of time for GPUs that are not there, and the machine code tells what they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opweld.codegen.triton.binary import compile_kernel
from opweld.codegen.triton.sass import spilled_bytes
from opweld.errors import ToolchainError
from tests.unit.codegen.triton.compiling import run_compiling

COMPILE = """
import json, re, subprocess, tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from opweld.codegen.triton import binary
from opweld.errors import ToolchainError
from tests.unit.codegen.triton import sample

SCALE = {"x_ptr": "*fp16:16", "y_ptr": "*fp16", "factor": "fp32", "n": "i32", "half": "fp16"}
POINTERS = {"x_ptr": "*bf16:16", "y_ptr": "*bf16:16"}
CASES = {
    "scale": (sample.scale, SCALE, {"BLOCK": 1024, "DOUBLE": True}, ("y_ptr", "n")),
    "product": (sample.product, sample.PRODUCT, {"M": 64, "N": 64, "BK": 32}, ()),
    "spilling": (sample.product, sample.PRODUCT, {"M": 128, "N": 256, "BK": 32}, ()),
    "described": (sample.copy_described, {"x": "tensordesc<bf16[16, 64]>", "y_ptr": "*bf16:16"}, {"BLOCK": 64}, ()),
    "made": (sample.made_descriptor, POINTERS | {"n": "i32"}, {"BLOCK": 64}, ()),
}

def compiled(case):
    name, arch = case
    kernel, signature, constants, divisible = CASES[name]
    made = binary.compile_kernel(kernel, signature, constants, warps=4, stages=2, arch=arch, divisible=divisible)
    said = {key: dict(value) if key == "instructions" else value for key, value in vars(made).items()}
    said |= {"parameters": [parameter.name for parameter in made.parameters], "cubin": made.cubin.hex()}
    return f"{name} {arch}", said | {"tensor_core": made.tensor_core_instructions, "threads": made.threads}

def rejected(kernel, signature, constants):
    try:
        binary.compile_kernel(kernel, signature, constants, warps=4, stages=2, arch=80)
    except ToolchainError as error:
        return str(error)

with ThreadPoolExecutor(2) as pool:
    found = dict(pool.map(compiled, [(name, arch) for name in CASES for arch in (80, 90)]))
with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
    file.write(found["spilling 80"]["ptx"])
    file.flush()
    ptxas = [str(binary._tools()("ptxas")), "-v", "--gpu-name=sm_80", file.name, "-o", "/dev/null"]
    found["log"] = subprocess.run(ptxas, capture_output=True, text=True, check=True).stderr
found["errors"] = [
    rejected(sample.wrong, {"x_ptr": "*fp32"}, {"BLOCK": 16}),
    rejected(sample.scale, {"x_ptr": "*fp32"}, {"BLOCK": 16}),
    rejected(sample.scale, {"z": "*fp32"}, {}),
    rejected(print, {}, {}),
]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_compiling(COMPILE, tmp_path_factory.mktemp("compiled"))


@pytest.mark.parametrize("arch", [80, 90])
def test_what_a_launch_passes(compiled: dict[str, Any], arch: int) -> None:
    scale, product = compiled[f"scale {arch}"], compiled[f"product {arch}"]
    assert (scale["name"], scale["arch"], scale["threads"]) == ("scale", arch, 128)
    assert scale["parameters"] == ["x_ptr", "y_ptr", "factor", "n", "half", "global_scratch", "profile_scratch"]
    assert (scale["shared"], scale["scratch"]) == (0, [0, 1])
    assert product["shared"] >= 64 * 32 * 2 * 2
    assert bytes.fromhex(product["cubin"]).startswith(b"\x7fELF")
    assert f".target sm_{arch}" in product["ptx"]


def test_what_is_divisible_is_loaded_in_vectors(compiled: dict[str, Any]) -> None:
    """x by the suffix of its type, y and n by the argument `divisible`."""
    instructions = compiled["scale 80"]["instructions"]
    assert (instructions["LDG.128"], instructions["STG.128"]) == (1, 1)
    assert "LDG.16" not in instructions


def test_tensor_cores_are_used_as_the_architecture_has_them(compiled: dict[str, Any]) -> None:
    assert compiled["product 80"]["tensor_core"].keys() == {"HMMA"}
    assert compiled["product 90"]["tensor_core"].keys() == {"HGMMA"}
    assert compiled["scale 90"]["tensor_core"] == {}


def test_registers_and_spills_are_those_of_ptxas(compiled: dict[str, Any]) -> None:
    spilling, log = compiled["spilling 80"], compiled["log"]
    stores = spilled_bytes({k: v for k, v in spilling["instructions"].items() if k.startswith("STL")})
    loads = spilling["spills"] - stores
    assert stores > 0
    assert f"{stores} bytes spill stores, {loads} bytes spill loads" in log
    assert f"Used {spilling['registers']} registers" in log
    assert compiled["product 80"]["spills"] == 0


def test_descriptors_are_passed_as_the_architecture_takes_them(compiled: dict[str, Any]) -> None:
    sizes = ["x.shape[0]", "x.shape[1]", "x.stride[0]", "x.stride[1]"]
    rest = [*sizes, "y_ptr", "global_scratch", "profile_scratch"]
    assert compiled["described 90"]["parameters"] == ["x", *rest]
    assert compiled["described 80"]["parameters"] == ["x", *sizes, "x.padded_with_nan", *rest]


def test_a_descriptor_that_a_kernel_makes_is_in_scratch_memory(compiled: dict[str, Any]) -> None:
    assert compiled["made 90"]["scratch"] == [128, 128]
    assert compiled["made 80"]["scratch"][0] == 0


def test_errors_name_the_kernel(compiled: dict[str, Any]) -> None:
    wrong, untyped, unknown, foreign = compiled["errors"]
    assert wrong.startswith("Triton rejects the kernel wrong for sm_80: at 3:4:")
    assert wrong.count("Expected pointer argument to have shape") == 1
    assert untyped == "the kernel scale is compiled without a type of its argument y_ptr"
    assert unknown == "the kernel scale has no argument 'z'; it has x_ptr, y_ptr, factor, n, half, BLOCK, DOUBLE"
    assert "expected a function of triton.jit" in foreign


def test_an_interpreted_kernel_is_not_compiled() -> None:
    from tests.unit.codegen.triton import sample

    with pytest.raises(ToolchainError, match=r"the kernel scale is a InterpretedFunction.*TRITON_INTERPRET"):
        compile_kernel(sample.scale, {}, {}, warps=4, stages=2, arch=80)


AT_ONCE = """
import ast, json, time
from concurrent.futures import ThreadPoolExecutor
from opweld.codegen.triton import binary
from tests.unit.codegen.triton import sample

parse, inside, most = ast.parse, 0, 0

def watched(*arguments, **options):
    global inside, most
    inside += 1
    most = max(most, inside)
    time.sleep(0.01)
    try:
        return parse(*arguments, **options)
    finally:
        inside -= 1

ast.parse = watched
POINTERS = {"x_ptr": "*fp32", "y_ptr": "*fp32", "factor": "fp32", "n": "i32", "half": "fp16"}

def compiled(block):
    constants = {"BLOCK": block, "DOUBLE": True}
    return len(binary.compile_kernel(sample.scale, POINTERS, constants, warps=4, stages=2, arch=80).cubin)

with ThreadPoolExecutor(4) as pool:
    sizes = list(pool.map(compiled, [32, 64, 128, 256]))
print(json.dumps([most, sizes]))
"""


def test_threads_do_not_parse_at_the_same_time(tmp_path: Path) -> None:
    most, sizes = run_compiling(AT_ONCE, tmp_path)
    assert most == 1 and all(sizes)
