from __future__ import annotations

import numpy as np
import pytest

from opweld.errors import ModelError, OpweldError
from tests.unit.ops.one_node import check, feeds_of, integers, make_model, normal, programs_of, run


@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("tail", [(), (3,)])
def test_reverse_sequence(time: int, tail: tuple[int, ...]) -> None:
    shape = (5, 4, *tail) if time == 0 else (4, 5, *tail)
    lengths = np.array([1, 5, 3, 0], np.int64)
    check("ReverseSequence", [normal(*shape), lengths], time_axis=time, batch_axis=1 - time)
    check("ReverseSequence", [integers(*shape), lengths], time_axis=time, batch_axis=1 - time)


def test_any_sizes() -> None:
    more = [[normal(t, b), np.arange(b, dtype=np.int64) % (t + 1)] for t, b in ((1, 1), (6, 3))]
    inputs = [normal(4, 2), np.array([3, 4], np.int64)]
    check("ReverseSequence", inputs, dims={0: ("t", "b"), 1: ("b",)}, more=more)


def test_what_does_not_fit() -> None:
    with pytest.raises(ModelError, match="time_axis"):
        programs_of(make_model("ReverseSequence", [normal(2, 3), np.array([1, 1, 1])], time_axis=1, batch_axis=1))
    inputs = [normal(2, 3), np.array([1, 3, 1])]
    with pytest.raises((OpweldError, IndexError)):
        run(programs_of(make_model("ReverseSequence", inputs)), feeds_of(inputs, ()))
