"""Kernels of Triton of small programs, and the steps that launch them: what fusion, placement and templates make for
sm_90."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from opweld.backends.cuda import CudaStages
from opweld.ledger import Ledger
from opweld.schedule.expected import expected_sizes
from opweld.stages import Watched
from opweld.target import GPUS
from opweld.tensor.intern import compilation
from opweld.tensor.label import labels
from opweld.tensor.parse import parse_program
from opweld.tensor.simplify import simplify_program
from tests.unit.tile import programs
from tests.unit.tile.pipeline import with_data

ELEMENTWISE = """program elementwise
symbol n >= 1 = dim 0 of x
input x f32[n, 100]
input b f16[100]
tensor total f32[i0: n, i1: 100] from "Add"
  = add(x[i0, i1], f32(b[i1]))
tensor result f32[i0: n, i1: 100] from "Sigmoid"
  = mul(total[i0, i1], sigmoid(total[i0, i1]))
output y = result
"""

CAUSAL = """program causal
input q bf16[8, 4096, 64]
input k bf16[8, 4096, 64]
input v bf16[8, 4096, 64]
tensor scores f32[i0: 8, i1: 4096, i2: 4096] from "MatMul_0"
  over r0: 64
  = sum<r0>(mul(f32(q[i0, i1, r0]), f32(k[i0, i2, r0])))
tensor masked f32[i0: 8, i1: 4096, i2: 4096] from "Where"
  = select(le(index(i2), index(i1)), mul(scores[i0, i1, i2], 0.125), -inf)
tensor highest f32[i0: 8, i1: 4096] from "Softmax"
  over r0: 4096
  = max<r0>(masked[i0, i1, r0])
tensor powers f32[i0: 8, i1: 4096, i2: 4096] from "Softmax"
  = exp(sub(masked[i0, i1, i2], highest[i0, i1]))
tensor total f32[i0: 8, i1: 4096] from "Softmax"
  over r0: 4096
  = sum<r0>(powers[i0, i1, r0])
tensor shares f32[i0: 8, i1: 4096, i2: 4096] from "Softmax"
  = div(powers[i0, i1, i2], total[i0, i1])
tensor result bf16[i0: 8, i1: 4096, i2: 64] from "MatMul_1"
  over r0: 4096
  = bf16(sum<r0>(mul(shares[i0, i1, r0], f32(v[i0, r0, i2]))))
output y = result
"""

PROGRAMS: Mapping[str, tuple[str, str]] = {
    "elementwise": (ELEMENTWISE, "fp32"),
    "softmax": (programs.softmax(100, 1000), "fp32"),
    "layer_norm": (programs.layer_norm("rows", 384, programs.symbols(rows="0 of x")), "fp32"),
    "dense": (programs.dense(512, 256, 384), "fp32"),
    "dense_tf32": (programs.dense(4096, 1024, 1024), "tf32"),
    "causal_attention": (CAUSAL, "fp32"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(name: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    text, precision = PROGRAMS[name]
    with compilation():
        program = replace(simplify_program(with_data(parse_program(text), 0)), precision=precision)
        ledger = Ledger()
        ledger.variant(program.name, labels(program))
        names = [value.name for value in program.inputs]
        watched = Watched(tmp_path, debug=True, forms=CudaStages.forms)
        CudaStages().compile(
            program, names, GPUS["sm_90"], expected_sizes(program), ledger, lambda _, image: 0, watched
        )
    (steps,), (kernels,) = tmp_path.glob("*.steps"), tmp_path.glob("*.kernels.py")
    found = kernels.read_text(encoding="utf-8")
    golden(f"{name}.txt", steps.read_text(encoding="utf-8") + "\n\n" + found[found.index("@triton.jit") :])
