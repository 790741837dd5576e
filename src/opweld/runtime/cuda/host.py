"""Functions of the processor among the launches of a GPU: what no expression says, as `tensor.externs` defines it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opweld.errors import OpweldError, RunError
from opweld.runtime.cuda.bound import Bound
from opweld.runtime.cuda.program import Launch
from opweld.runtime.plan import Array


def call_host(step: Launch, bound: Bound, memory: Sequence[Array]) -> None:
    """Fills the results of a step from its operands, both flat arrays. Raises RunError naming the node where an operand
    is out of range."""
    from opweld.tensor.externs import EXTERNS  # only models that sort, scatter or select need it

    function, numbers = EXTERNS[step.function], [bound.size(size) for size in step.numbers]
    operands = int(step.offsets[0])
    whole, sizes = function.whole(operands, len(memory) - operands), function.parts(numbers)
    for result in memory[operands:]:
        result[...] = np.zeros((), result.dtype)
    for row in range(bound.size(step.rows)):
        starts = [0 if position in whole else row * size for position, size in enumerate(sizes)]
        parts = [a[i : i + n] for a, i, n in zip(memory, starts, sizes, strict=True)]
        try:
            function.compute(parts[:operands], parts[operands:], numbers)
        except OpweldError as error:
            raise RunError(f"{', '.join(step.origin)}: {error}") from error
