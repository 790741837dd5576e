"""A compiled model in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import opweld
from opweld.errors import RunError
from opweld.verification.apart import Apart


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artifact: the element of x at i."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"], name="lookup")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return opweld.compile(model).save(tmp_path / "m.opweld")


def test_it_answers_and_goes_on_after_errors_and_ends(folder: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    feeds = {"x": x, "i": np.array([4, 1])}
    with Apart() as apart:
        (y,) = apart.run(folder, 1, feeds)
        assert y.tolist() == [4, 1]
        with pytest.raises(RunError, match="lookup: an index is out of range"):
            apart.run(folder, 1, feeds | {"i": np.array([4, 7])})
        (child,) = multiprocessing.active_children()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSEGV)
        with pytest.raises(RunError, match="the run ended its process: SIGSEGV"):
            apart.run(folder, 1, feeds)
        (y,) = apart.run(folder, None, feeds)
        assert y.tolist() == [4, 1]
