"""Graphs that NNSmith draws: its own choice of operators, shapes and dtypes, solved to be valid.

Jiawei Liu et al., "NNSmith: Generating Diverse and Valid Test Cases for Deep Learning Compilers", ASPLOS 2023.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch

from tests.random.evaluate import OPSET
from tests.random.generate import Case

NODES = 10
ELEMENTS = 1 << 14
SOLVER_MS = 10_000
MAX_DRAWS = 100
"""Some draws are no ONNX model: torch cannot export them, or onnx cannot bring them to the opset of the oracle."""


def case_of(seed: int) -> Case:
    """The case of a seed."""
    chance = np.random.default_rng(seed)
    for draw in range(MAX_DRAWS):
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            model = _model_of(int(np.random.default_rng([seed, draw]).integers(2**31)))
            return Case(seed, model, [{value.name: _fed(chance, value) for value in model.graph.input}])
    raise RuntimeError(f"NNSmith makes no model of seed {seed}")


def _model_of(seed: int) -> onnx.ModelProto:
    from nnsmith.graph_gen import model_gen

    kind, operators = _smith()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    drawn = model_gen(
        opset=operators,
        method="symbolic-cinit",
        seed=seed,
        max_nodes=NODES,
        timeout_ms=SOLVER_MS,
        max_elem_per_tensor=ELEMENTS,
    )
    made = kind.from_gir(drawn.make_concrete())
    made.refine_weights()
    model = onnx.version_converter.convert_version(made.native_model, OPSET)
    onnx.checker.check_model(model, full_check=True)
    if any(attribute.HasField("g") for node in model.graph.node for attribute in node.attribute):
        raise ValueError("the judge knows the values of nodes one by one, not those of bodies")
    return model


@cache
def _smith() -> tuple[Any, Any]:
    """NNSmith's ONNX models, and the operators it can draw; it was written for an older torch and onnx."""
    logging.disable(logging.INFO)
    onnx._serialize = lambda model: model.SerializeToString()  # pyright: ignore[reportAttributeAccessIssue]
    export: Any = torch.onnx.export
    torch.onnx.export = lambda *values, **options: export(*values, **(options | {"dynamo": False}))
    from nnsmith.abstract.extension import activate_ext
    from nnsmith.materialize import Model
    from nnsmith.narrow_spec import auto_opset

    with contextlib.redirect_stdout(io.StringIO()):
        kind = Model.init("onnx")
        kind.add_seed_setter()
        operators = auto_opset(kind, None, vulops=False)
        activate_ext(opset=operators, factory=None)
    return kind, operators


def _fed(chance: np.random.Generator, value: onnx.ValueInfoProto) -> np.ndarray[Any, Any]:
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if dtype.kind == "f":
        return chance.uniform(-2, 2, shape).astype(dtype)
    return chance.integers(0 if dtype.kind in "ub" else -5, 2 if dtype.kind == "b" else 6, shape).astype(dtype)
