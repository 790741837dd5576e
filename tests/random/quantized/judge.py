"""What compiled code answers for a graph of quantised values: each value, given what was answered for codes before it.

Rounding to codes is a step: of two sums that differ in their last bit, one may lie below a tie and the other above it.
Such a code is off by one step of its scale, and whatever follows from it by as much as that makes of it. So an output
of codes is judged once, by what the model computes from the codes that were answered, and then taken as it was
answered. There it may be off by one step, and by no more, and only where a disturbance by the roundings of floats turns
the reference's own rounding the other way: a scale or a zero point that is wrong is off by a step as well. Where codes
are no outputs, ties among them are what disturbances find, too. Sums of integers must be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.verification.compare import compare
from tests.random.evaluate import WITHIN, evaluate
from tests.random.generate import Case
from tests.random.judge import TOSSES, Judge
from tests.random.quantized.generate import rounds

Array = NDArray[Any]


class StepJudge(Judge):
    """Knows what follows from the codes that were answered. ONNX Runtime is not asked: its sums of bytes saturate on
    some processors.

    A tie that is no output falls to one side or the other by half of all disturbances: floats need as many as integers
    do."""

    trials = TOSSES

    def __init__(self, case: Case) -> None:
        super().__init__(case, asks=False)
        nodes = case.model.graph.node
        self._rounded = {name for node in nodes if rounds(node) for name in node.output if name}
        # Whether no code is hidden that may be off.
        self._alone = self._rounded <= set(self.names) and not any(node.op_type in WITHIN for node in nodes)
        self._answered: dict[str, Array] = {}

    def all_values(self, choice: int, **disturbance: Any) -> dict[str, Array]:
        """Every value of the graph in float64, computed from the codes that were answered last."""
        told: dict[str, Any] = {"dtypes": {}, "answered": self._answered, **disturbance}
        return evaluate(self.steps(), self.known(choice), **told)

    def verdict(self, choice: int, outputs: Sequence[Array]) -> tuple[str, str]:
        """(outcome, what) of all outputs at one choice of sizes."""
        answered = dict(zip(self.names, outputs, strict=True))
        self._answered = {name: array for name, array in answered.items() if name in self._rounded}
        self.forget()
        outcome = ("right", "")
        for position, name in enumerate(self.names):
            mine, right = answered[name], self.right(choice)[position]
            if problem := self.declared_otherwise(position, mine):
                return "wrong", problem
            result = compare(name, mine, right)
            if result.passed:
                continue
            problem = self._steps_off(name, mine, right)
            if not problem and self.beyond_noise(choice, position, mine):
                problem = result.problem
            if problem:
                return "wrong", f"{name} ({self.maker(name)}) {problem}"
            outcome = ("noise", f"roundings move it as far: {self.maker(name)}")
        return outcome

    def _steps_off(self, name: str, mine: Array, right: Array) -> str:
        """How many steps codes are off, where that is more than a tie can do."""
        if not self._alone or name not in self._rounded or right.dtype.kind == "f" or mine.shape != right.shape:
            return ""
        away = int(np.abs(mine.astype(np.int64) - right.astype(np.int64)).max(initial=0))
        return f"is {away} steps off" if away > 1 else ""
