"""What a launch passes to a kernel, by the types of its arguments."""

from __future__ import annotations

import pytest

from opweld.codegen.triton.parameters import check_parameters, parameters_of
from opweld.errors import ToolchainError

SCRATCH = [("global_scratch", 8), ("profile_scratch", 8)]


def passed(signature: dict[str, str], *, maps: bool = False) -> list[tuple[str, int]]:
    return [(parameter.name, parameter.bytes) for parameter in parameters_of("k", signature, maps=maps)]


def test_constants_are_not_passed_and_scratch_memory_is_last() -> None:
    signature = {"x_ptr": "*bf16", "BLOCK": "constexpr", "n": "i32", "flag": "i1", "scale": "fp16"}
    assert passed(signature) == [("x_ptr", 8), ("n", 4), ("flag", 1), ("scale", 2), *SCRATCH]


def test_a_descriptor_is_a_map_with_sizes_and_strides() -> None:
    sizes = [("x.shape[0]", 4), ("x.shape[1]", 4), ("x.stride[0]", 8), ("x.stride[1]", 8)]
    assert passed({"x": "tensordesc<bf16[16, 64]>"}, maps=True) == [("x", 128), *sizes, *SCRATCH]


def test_a_descriptor_without_maps_is_a_pointer_with_sizes_and_strides_twice() -> None:
    once = [("x.shape[0]", 8), ("x.stride[0]", 8), ("x.padded_with_nan", 1)]
    again = [("x.shape[0]", 4), ("x.stride[0]", 8)]
    assert passed({"x": "tensordesc<fp16[32]>"}) == [("x", 8), *once, *again, *SCRATCH]


def test_a_type_that_cannot_be_passed_is_named() -> None:
    with pytest.raises(ToolchainError, match="the kernel k cannot be launched: its argument x has the type 'bf17'"):
        parameters_of("k", {"x": "bf17"}, maps=False)


PTX = """
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u32 k_param_1,
	.param .align 2 .b8 k_param_2[2],
	.param .align 64 .b8 k_param_3[128],
	.param .u64 .ptr .global .align 1 k_param_4,
	.param .u64 .ptr .global .align 1 k_param_5
)
"""


def test_parameters_are_those_of_the_machine_code() -> None:
    signature = {"x_ptr": "*fp32", "n": "i32", "scale": "bf16", "map": "tensordesc<fp16[]>"}
    parameters = parameters_of("k", signature, maps=True)
    without_sizes = tuple(parameter for parameter in parameters if "[" not in parameter.name)
    check_parameters("k", without_sizes, PTX)
    with pytest.raises(ToolchainError, match=r"the kernel k was compiled to take parameters of \[8, 4, 2, 128, 8, 8\]"):
        check_parameters("k", without_sizes[:-1], PTX)
