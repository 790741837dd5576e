"""precision=bf16, from the option to answers: products of random shapes, with bounds that follow from the rounding of
their operands, and what the option is told by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opweld
from opweld.build import artifact
from opweld.errors import OptionError
from opweld.onnxruntime import SessionOptions

ROUNDED = 2 * 2.0**-9 + 2.0**-18
"""How far a product of two numbers is off that are each rounded to 8 bits, as a part of its size."""


def product(seed: int) -> tuple[bytes, np.ndarray]:
    """A matrix product or a convolution of a random shape, and what is fed to it."""
    draw = np.random.default_rng(seed)
    channels, filters = 2 * int(draw.integers(1, 20)), int(draw.integers(1, 40))
    if seed % 2:
        rows = int(draw.integers(1, 30))
        shape, weights = (2, rows, channels), (channels, filters)
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    else:
        kernel, groups = int(draw.integers(1, 4)), 2 if seed % 4 else 1
        shape = (2, groups * channels, int(draw.integers(4, 12)), int(draw.integers(4, 12)))
        weights = (groups * filters, channels, kernel, kernel)
        strides, pads = [int(n) for n in draw.integers(1, 3, 2)], [kernel // 2] * 4
        node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups, strides=strides, pads=pads)
    w = draw.standard_normal(weights).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape[1:]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "product", [x], [y], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString(), draw.standard_normal(shape).astype(np.float32)


def in_float64(model: bytes, x: np.ndarray, absolute: bool = False) -> np.ndarray:
    """The answer of the model, or of the magnitudes of everything in it, in float64."""
    loaded = onnx.load_from_string(model)
    w = numpy_helper.to_array(loaded.graph.initializer[0]).astype(np.float64)
    loaded.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.abs(w) if absolute else w, "w"))
    loaded.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    loaded.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    wide = x.astype(np.float64)
    return np.asarray(ReferenceEvaluator(loaded).run(None, {"x": np.abs(wide) if absolute else wide})[0])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seed", range(8))
def test_products_are_off_by_the_rounding_of_their_operands(seed: int) -> None:
    model, x = product(seed)
    found = opweld.compile(model, precision="bf16", pins=pins(model)).run({"x": x})["y"]
    bound = (ROUNDED + 2.0**-14) * in_float64(model, x, absolute=True)
    assert (np.abs(found - in_float64(model, x)) <= bound).all()


def pins(model: bytes) -> dict[str, str]:
    """Every product in bfloat16, whatever is predicted for the processor that this runs on."""
    decisions = opweld.explain(model, precision="bf16").to_json()["decisions"]
    legal = [d for d in decisions if d["rule"] == "fuse.precision" and "bf16" not in d["failed"]]
    return {d["id"]: "bf16" for d in legal}


def test_the_manifest_and_the_account_tell_it(tmp_path: Path) -> None:
    model, _ = product(1)
    compiled = opweld.compile(model, precision="bf16")
    compiled.save(tmp_path / "m.opweld")
    assert artifact.read(tmp_path / "m.opweld").precision == "bf16"
    assert "bf16" in repr(compiled) and "bf16" not in repr(opweld.compile(model))


def test_integers_need_data() -> None:
    with pytest.raises(OptionError, match=r"needs data.*opweld quantize"):
        opweld.compile(b"", precision="int8")  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="precision is 'fp8', expected one of fp32, bf16"):
        opweld.compile(b"", precision="fp8")  # pyright: ignore[reportArgumentType]


def test_sessions_take_it_as_a_configuration_entry() -> None:
    options = SessionOptions()
    options.add_session_config_entry("opweld.precision", "bf16")
    assert options.compile_options().get("precision") == "bf16"
