"""Predicted and measured verdicts on kernels of which it is known what bounds them.

    python -m benchmarks.bounds

A large product and a large convolution are bound by arithmetic, what only moves by the memory that holds it, what is
small by latency. Values are small enough that their memory is not asked for anew in each run. Ceilings are those of
`opweld machine`, measured first where it never was; run it on a quiet machine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

import opweld
from opweld.account.summary import seconds_text
from opweld.accounts import account_of
from opweld.analysis.alternate import Blocks
from opweld.analysis.ceilings import measure
from opweld.analysis.judge import judge_of
from opweld.analysis.machine import Machine
from opweld.analysis.profile import model_profile
from opweld.analysis.sample import sample


@dataclass(frozen=True)
class Case:
    """A model of one kernel that matters: its graph in ONNX's text form, stored tensors, and what must bound it."""

    name: str
    graph: str
    weights: Mapping[str, tuple[int, ...]]
    bound: str


CASES = (
    Case("matmul 768 x 768 x 768", "g (float[768, 768] x) => (float[768, 768] y) { y = MatMul(x, w) }",
         {"w": (768, 768)}, "compute"),
    Case("conv 3 x 3, 128 -> 128, 56 x 56",
         "g (float[1, 128, 56, 56] x) => (float[1, 128, 56, 56] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }",
         {"w": (128, 128, 3, 3)}, "compute"),
    Case("relu, 4 M elements", "g (float[4194304] x) => (float[4194304] y) { y = Relu(x) }", {}, "memory"),
    Case("concat, 2 x 2 M elements",
         "g (float[2097152] x, float[2097152] z) => (float[4194304] y) { y = Concat<axis = 0>(x, z) }",
         {}, "memory"),
    Case("relu, 8 x 8", "g (float[8, 8] x) => (float[8, 8] y) { y = Relu(x) }", {}, "latency"),
    Case("matmul 4 x 8 x 8", "g (float[4, 8] x) => (float[4, 8] y) { y = MatMul(x, w) }", {"w": (8, 8)}, "latency"),
)  # fmt: skip


def main() -> int:
    """Prints a row for each kernel; 1 where one is not bound by what it must be."""
    machine = Machine.remembered()
    if machine is None:
        machine = measure()
        machine.remember()
    print(f"ceilings of {machine.measured}, sure: {machine.sure}")
    print(f"{'kernel':34} {'time':>9} {'floor':>9} {'compute':>8} {'memory':>7}  {'predicted':26} {'measured':26}")
    wrong = 0
    for case in CASES:
        random = np.random.default_rng(0)
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {case.graph}')
        for name, shape in case.weights.items():
            model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape, np.float32), name))
        compiled = opweld.compile(model)
        feeds = {i.name: random.standard_normal(tuple(map(int, i.shape or ())), np.float32) for i in compiled.inputs}
        account = account_of(compiled.path)
        made = model_profile(sample(compiled.session, feeds, Blocks(5)), account)
        made = made.judged(judge_of(account, machine, {}))
        kernel = max(made.kernels, key=lambda k: k.seconds.median)
        measured, predicted = kernel.judgement.bound, kernel.judgement.predicted
        assert measured is not None and predicted is not None
        right = predicted.kind == measured.kind == case.bound
        wrong += not right
        print(
            f"{case.name:34} {seconds_text(kernel.seconds.median):>9} {seconds_text(measured.floor):>9} "
            f"{measured.compute:8.0%} {measured.bandwidth:7.0%}  {predicted.name:26} {measured.name:26}"
            f"{'' if right else f'  should be {case.bound}'}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
