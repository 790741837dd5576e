"""Values as callers have them, of tensors."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import numpy as np

from opweld.interface import Argument, Mapped
from opweld.runtime.structure import Numbers, put_together

SCORES = Argument("probabilities", "seq(map(string,tensor(float)))", None, Mapped("scores", ("a", "b", "c")))


def maps_of(rows: int) -> list[dict[str, float]]:
    scores = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    (maps,) = put_together((SCORES,), {"scores": scores}, Numbers(()))
    return maps


def test_a_dict_a_row() -> None:
    assert maps_of(2) == [{"a": 0.0, "b": 1.0, "c": 2.0}, {"a": 3.0, "b": 4.0, "c": 5.0}]
    assert maps_of(0) == []


def test_many_dicts_take_no_more_steps_of_the_interpreter_than_few() -> None:
    def steps_of(rows: int) -> int:
        steps = 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal steps
            frame.f_trace_opcodes = True
            steps += event == "opcode"
            return trace

        before = sys.gettrace()
        gc.disable()  # a collection may call what others left to be called
        sys.settrace(trace)
        try:
            maps_of(rows)
        finally:
            sys.settrace(before)
            gc.enable()
        return steps

    assert steps_of(1000) == steps_of(10) > 0
