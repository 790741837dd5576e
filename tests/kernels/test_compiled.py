"""What the interpreter does not see: kernels as Triton compiles them, and launches that go into a graph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

# Sizes of 1 are constants to Triton, which have no methods.
SIZES_OF_ONE = """
from opweld.codegen.triton.binary import compile_kernel
from opweld.kernels.linear import variants
from opweld.kernels.linear_int4 import variants as int4
from opweld.kernels.layer_norm import variants as norms

SIZES = {"M", "N", "K", "rows", "columns", "groups", "x_stride", "out_stride", "residual_stride", "dy_stride"}
seen = set()
for of in (variants, int4, norms):
    for one in of(90):
        if one.kernel.__name__ in seen:
            continue
        seen.add(one.kernel.__name__)
        ones = {name: 1 for name in SIZES & set(one.signature) if one.signature[name] != "constexpr"}
        signature = {name: kind for name, kind in one.signature.items() if name not in ones}
        compile_kernel(one.kernel, signature, {**one.constants, **ones}, warps=one.warps, stages=one.stages, arch=90)
print(sorted(seen))
"""

# No GPU is asked for anything but its architecture while a graph is made.
TRACED = """
import torch
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from opweld import kernels

class Driver:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

driver.set_active(Driver())

def launches(function, *shapes):
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = [torch.empty(shape, dtype=torch.bfloat16, device="cuda") for shape in shapes]
    graph = aot_export_joint_simple(function, tensors, trace_joint=False).graph
    return sum("triton_kernel" in str(node.target) for node in graph.nodes)

print(launches(lambda x, w, r: kernels.layer_norm(x, w, residual=r), (64, 256), (256,), (64, 256)),
      launches(lambda x, w: (kernels.linear(x, w, activation="gelu"),), (4096, 512), (8192, 512)),
      launches(lambda x, w: (kernels.linear(x, w),), (4, 4096), (64, 4096)),
      launches(lambda a, b: (kernels.swiglu(a, b),), (4, 512), (4, 512)))
"""


def python(code: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environment
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


@pytest.mark.slow
def test_sizes_of_one_compile() -> None:
    assert "'combine'" in python(SIZES_OF_ONE)


def test_graphs_hold_the_launches() -> None:
    assert python(TRACED).split() == ["1", "1", "2", "1"]
