"""The CUDA backend without a GPU: kernels in Triton's interpreter beside compiled C; machine code ahead of time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.errors import OptionError, RunError
from opweld.runtime.cuda.sizes import evaluate
from tests.patience import PATIENCE_S
from tests.unit.frontend.models import model_of, node

Array = np.ndarray[Any, Any]


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def weights(**shapes: tuple[int, ...]) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def check(model: Any, feeds: dict[str, Array], tolerance: float = 2e-5, **options: Any) -> opweld.Model:
    """Compiles for both and compares: sums are of float32 in another order, so that they differ by some roundings."""
    compiled = opweld.compile(model, target="sm_90", **options)
    expected, found = opweld.compile(model, **options).run(feeds), compiled.run(feeds)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == expected[name].dtype and array.shape == expected[name].shape
        np.testing.assert_allclose(array, expected[name], tolerance, tolerance * max(1.0, np.abs(expected[name]).max()))
    return compiled


def steps_of(model: opweld.Model) -> list[dict[str, Any]]:
    variants = json.loads((model.path / "cuda.json").read_text())["variants"]
    return [step for variant in variants.values() for step in variant["steps"]]


def text_of(model: opweld.Model) -> str:
    return (model.path / "kernels.py").read_text(encoding="utf-8")


def test_a_product_with_its_epilogue_and_a_softmax_of_any_batch() -> None:
    nodes = (node("MatMul", ["x", "w"], "m"), node("Add", ["m", "b"], "a"), node("Softmax", ["a"], "y"))
    model = model_of(nodes, {"x": ("batch", 6)}, ("y",), weights(w=(6, 5), b=(5,)))
    random = np.random.default_rng(1)
    compiled = check(model, {"x": random.standard_normal((7, 6), np.float32)})
    again = compiled.run({"x": np.ones((1, 6), np.float32)})["y"]
    np.testing.assert_allclose(again.sum(), 1.0, 1e-6)
    assert text_of(compiled).count("@triton.jit") == 2


def test_convolutions_lie_channels_last_and_keep_their_edges() -> None:
    text = """g (float[2, 3, 11, 9] x) => (float[2, 32, 1, 1] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu (a) c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, v)
        d = MaxPool <kernel_shape = [2, 2], pads = [1, 0, 0, 1]> (c) e = Conv <group = 32> (d, u)
        y = GlobalAveragePool (e) }"""
    model = parsed(text)
    own = weights(w=(16, 3, 3, 3), v=(32, 16, 3, 3), u=(32, 1, 2, 2))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in own.items())
    compiled = check(model, {"x": np.random.default_rng(2).standard_normal((2, 3, 11, 9), np.float32)})
    assert "tap = k_first // 16" in text_of(compiled)


@pytest.mark.parametrize("length", [5, 37, 129])
def test_attention_is_one_kernel_without_scores_in_memory(length: int) -> None:
    shape = f"float[2, 3, {length}, 16]"
    text = f"""g ({shape} q, {shape} k, {shape} v, float[{length}, {length}] mask) => ({shape} y) {{
        t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, t) m = Add (s, mask) p = Softmax (m)
        y = MatMul (p, v) }}"""
    random = np.random.default_rng(3)
    feeds: dict[str, Array] = {name: random.standard_normal((2, 3, length, 16), np.float32) for name in "qkv"}
    feeds["mask"] = np.where(np.tri(length) > 0, 0, -np.inf).astype(np.float32)
    compiled = check(parsed(text), feeds)
    assert text_of(compiled).count("@triton.jit") == 1 and "Attention of" in text_of(compiled)


def test_layer_norm_and_rows_that_do_not_fit_registers() -> None:
    nodes = (node("LayerNormalization", ["x", "w", "b"], "y"),)
    model = model_of(nodes, {"x": (3, 300)}, ("y",), weights(w=(300,), b=(300,)))
    x = np.random.default_rng(4).standard_normal((3, 300), np.float32)
    assert "kept in registers" in text_of(check(model, {"x": x}))
    free = model_of((node("Softmax", ["x"], "y"),), {"x": ("rows", "columns")}, ("y",), {})
    compiled = check(free, {"x": np.random.default_rng(5).standard_normal((2, 5000), np.float32)})
    assert "passed over" in text_of(compiled)


def test_positions_of_extremes_with_nan() -> None:
    text = """g (float[2, 7] x) => (int64[2, 1] y, int64[2, 1] z) {
        y = ArgMax <axis = 1> (x) z = ArgMin <axis = 1, select_last_index = 1> (x) }"""
    x = np.array([[1, 5, 5, -2, -2, 0, 3], [1, np.nan, 9, np.nan, 0, 0, 0]], np.float32)
    check(parsed(text), {"x": x})


def test_a_recurrence_is_a_loop_of_launches() -> None:
    text = "g (float[4, 2, 3] x) => (float[4, 1, 2, 5] y, float[1, 2, 5] h) { y, h = GRU <hidden_size = 5> (x, w, r) }"
    model = parsed(text)
    own = weights(w=(1, 15, 3), r=(1, 15, 5))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in own.items())
    compiled = check(model, {"x": np.random.default_rng(6).standard_normal((4, 2, 3), np.float32)})
    steps = json.loads((compiled.path / "cuda.json").read_text())["variants"]
    assert any(step["kind"] == "loop" for variant in steps.values() for step in variant["steps"])


def test_what_the_processor_computes_in_between() -> None:
    text = """g (float[2, 9] x) => (float[2, 3] values, int64[2, 3] y) { k = Constant <value = int64[1] {3}> ()
        a = Mul (x, x) values, y = TopK (a, k) }"""
    check(parsed(text), {"x": np.random.default_rng(7).standard_normal((2, 9), np.float32)})


def test_operands_of_the_processor_lie_row_by_row() -> None:
    text = """g (float[N, W, 4] x) => (float[1, W, 4] y, int64[1, W, 4] at) { k = Constant <value = int64[1] {1}> ()
        a = HardSwish (x) y, at = TopK <axis = 0> (a, k) }"""
    check(parsed(text), {"x": np.random.default_rng(9).standard_normal((3, 5, 4), np.float32)})


def test_sizes_and_axes_have_names_of_their_own() -> None:
    text = """g (float[2, 8, W, W] x) => (float[2, 8, V, V] y) {
        y = ConvTranspose <group = 1, strides = [2, 2], kernel_shape = [2, 2]> (x, w) }"""
    model = parsed(text)
    own = weights(w=(8, 8, 2, 2))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in own.items())
    check(model, {"x": np.random.default_rng(10).standard_normal((2, 8, 5, 5), np.float32)})


def test_a_size_may_have_any_name() -> None:
    text = """g (float[step, 2, 3] x, float[max, 2] y) => (float[a, 1, 2, 5] z, float[max, 2] w) {
        z = GRU <hidden_size = 5, direction = "reverse"> (x, u, r) w = Neg (y) }"""
    model = parsed(text)
    own = weights(u=(1, 15, 3), r=(1, 15, 5))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in own.items())
    random = np.random.default_rng(11)
    check(model, {"x": random.standard_normal((4, 2, 3), np.float32), "y": random.standard_normal((3, 2), np.float32)})


def test_weights_that_the_processor_reads_too_lie_row_by_row() -> None:
    text = """g (float[3, 4] x, int64[1, 8] i, float[1, 8] u) => (float[3, 8] y, float[4, 8] z) {
        y = MatMul (x, w) z = ScatterElements <axis = 0> (w, i, u) }"""
    model = parsed(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights(w=(4, 8))["w"], "w"))
    random = np.random.default_rng(12)
    feeds: dict[str, Array] = {
        name: random.standard_normal(s, np.float32) for name, s in (("x", (3, 4)), ("u", (1, 8)))
    }
    check(model, feeds | {"i": random.integers(0, 4, (1, 8))})


@pytest.mark.parametrize("columns", [7, 2500])
def test_the_last_extreme_of_a_row_of_the_least_exists(columns: int) -> None:
    text = f"""g (float[2, {columns}] x) => (int64[2, 1] y, int64[2, 1] z) {{
        y = ArgMax <axis = 1, select_last_index = 1> (x) z = ArgMax <axis = 1> (x) }}"""
    x = np.full((2, columns), -np.inf, np.float32)
    x[1, 3] = 1
    check(parsed(text), {"x": x})


def test_positions_that_are_values_have_64_bits() -> None:
    text = """g (int64 n) => (int64[k] y, int64[k] z) { zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> () big = Constant <value = int64 {5000000000}> ()
        r = Range (zero, n, one) y = Mul (r, big) s = Mul (r, r) z = Mul (s, r) }"""
    check(parsed(text), {"n": np.array(3000)})


def test_a_bool_is_compared_with_a_constant() -> None:
    text = """g (bool[3] x) => (bool[3] y) { one = Constant <value = int32 {1}> () c = Cast <to = 9> (one)
        y = Equal (x, c) }"""
    check(parsed(text), {"x": np.array([True, False, True])})


def test_masked_attention_keeps_nan() -> None:
    import torch

    class Attention(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 16).unbind()
    mask = torch.ones(5, 5).tril().bool()
    mask[1] = False
    q[0, 0, 0, 3] = torch.nan
    compiled = opweld.compile(Attention().eval(), (q, k, v, mask), target="sm_90")
    feeds = dict(zip(compiled.session.input_names, (t.numpy() for t in (q, k, v, mask)), strict=True))
    (found,) = compiled.run(feeds).values()
    np.testing.assert_allclose(found, Attention()(q, k, v, mask).numpy(), 1e-5, 1e-5)
    assert "Attention of" in text_of(compiled)


CAUSAL = "c = LessOrEqual (j, i)"
WINDOW = """a = LessOrEqual (j, i) five = Constant <value = int64 {5}> () f = Add (j, five) b = Greater (f, i)
    c = And (a, b)"""


def masked_attention(mask: str) -> onnx.ModelProto:
    """Attention in which the row i sees the column j where `mask` says c."""
    shape = "float[1, 2, length, 16]"
    text = f"""g ({shape} q, {shape} k, {shape} v) => ({shape} y) {{
        first = Constant <value = int64[1] {{0}}> () second = Constant <value = int64[1] {{1}}> ()
        zero = Constant <value = int64 {{0}}> () one = Constant <value = int64 {{1}}> ()
        two = Constant <value = int64 {{2}}> () s = Shape (q) n = Gather (s, two) r = Range (zero, n, one)
        i = Unsqueeze (r, second) j = Unsqueeze (r, first) {mask}
        t = Transpose <perm = [0, 1, 3, 2]> (k) p = MatMul (q, t) w = Where (c, p, low) h = Softmax (w)
        y = MatMul (h, v) }}"""
    model = parsed(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(-np.inf, np.float32), "low"))
    return model


@pytest.mark.parametrize(("mask", "begin"), [(CAUSAL, "0"), (WINDOW, "begin")])
def test_columns_that_a_mask_rules_out_are_not_visited(mask: str, begin: str) -> None:
    random = np.random.default_rng(14)
    feeds: dict[str, Array] = {name: random.standard_normal((1, 2, 100, 16), np.float32) for name in "qkv"}
    compiled = check(masked_attention(mask), feeds)
    assert f"for n_first in range({begin}, end, " in text_of(compiled)
    decided = [d for d in compiled.explain().decisions if d.rule == "schedule.masked"]
    assert [d.taken for d in decided] == ["skipped"]
    # What is under the mask of all rows of a block is not multiplied.
    feeds["v"][:, :, 99] = np.inf
    found = compiled.run(feeds)["y"]
    assert np.isfinite(found[:, :, :64]).all() and np.isinf(found[:, :, 99]).all()
    whole = opweld.compile(masked_attention(mask), target="sm_90", disable=["schedule.masked"])
    assert "for n_first in range(0, size" in text_of(whole)
    assert np.isnan(whole.run(feeds)["y"][:, :, :64]).all()


def test_a_mask_that_is_fed_hides_nothing() -> None:
    text = """g (float[1, 1, n, 16] q, float[n, n] mask) => (float[1, 1, n, 16] y) {
        t = Transpose <perm = [0, 1, 3, 2]> (q) p = MatMul (q, t) s = Add (p, mask) h = Softmax (s)
        y = MatMul (h, q) }"""
    compiled = opweld.compile(parsed(text), target="sm_90")
    (decided,) = [d for d in compiled.explain().decisions if d.rule == "schedule.masked"]
    assert decided.taken == "computed" and "no mask of minus infinity" in str(decided)
    assert "for n_first in range(0, size" in text_of(compiled)


def test_channels_of_weights_with_a_zero_point_are_not_padded() -> None:
    text = """g (int8[1, 3, 6, 6] x) => (int32[1, 4, 6, 6] y) { a = Constant <value = int8 {-44}> ()
        b = Constant <value = int8 {15}> () y = ConvInteger <pads = [1, 1, 1, 1]> (x, w, a, b) }"""
    model = parsed(text)
    random = np.random.default_rng(13)
    w = random.integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    check(model, {"x": random.integers(-128, 128, (1, 3, 6, 6)).astype(np.int8)}, 0.0)


def test_grids_have_one_dimension() -> None:
    text = """g (float[70000, 2, 2] x, float[70000, 2, 2] w) => (float[70000, 2, 2] y) { y = MatMul (x, w) }"""
    compiled = opweld.compile(parsed(text), target="sm_90")
    (variant,) = json.loads((compiled.path / "cuda.json").read_text())["variants"].values()
    assert [step["grid"] for step in variant["steps"]] == [["70000"]]


def test_what_stages_make_is_written_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_DUMP", str(tmp_path))
    monkeypatch.setenv("OPWELD_DEBUG", "1")
    text = """g (float[4, 2, 3] x, float[1, 5] a) => (float[4, 1, 2, 5] y, float[1, 5] values, int64[1, 5] at) {
        y = GRU <hidden_size = 5> (x, u, r) k = Constant <value = int64[1] {5}> () b = Relu (a)
        values, at = TopK (b, k) }"""
    model = parsed(text)
    own = weights(u=(1, 15, 3), r=(1, 15, 5))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in own.items())
    opweld.compile(model, target="sm_90")
    files = {path.suffix: path.read_text(encoding="utf-8") for path in sorted(tmp_path.iterdir())}
    assert files.keys() >= {".lowered", ".tensors", ".fused", ".padded", ".placed", ".written", ".steps", ".py"}
    assert files[".py"].startswith('"""Kernels that opweld generated.') and "@triton.jit" in files[".py"]
    for line in ("loop step to 4", "copy 40 bytes from", "on the host order", "grid 1, x0 = a, y1 = "):
        assert line in files[".steps"], files[".steps"]


def test_dynamic_control_flow_and_sizes_that_data_decide() -> None:
    text = "g (float[k] x) => (int64[r, found] at, float[k] y) { at = NonZero (x) y = Relu (x) }"
    check(parsed(text), {"x": np.array([0, 1, -2, 0, 3], np.float32)})


def test_a_bad_index_names_its_node() -> None:
    model = parsed("g (float[4, 3] w, int64[2] x) => (float[2, 3] y) { y = Gather (w, x) }")
    compiled = opweld.compile(model, target="sm_90")
    with pytest.raises(RunError, match=r"Gather.*not in \[0, 4\)"):
        compiled.run({"w": np.ones((4, 3), np.float32), "x": np.array([0, 4], np.int64)})


def test_bfloat16_by_permission() -> None:
    nodes = (node("MatMul", ["x", "w"], "m"), node("Relu", ["m"], "y"))
    model = model_of(nodes, {"x": (32, 64)}, ("y",), weights(w=(64, 48)))
    x = np.random.default_rng(8).standard_normal((32, 64), np.float32)
    compiled = opweld.compile(model, target="sm_90", precision="bf16")
    expected = opweld.compile(model).run({"x": x})["y"]
    found = compiled.run({"x": x})["y"]
    # Two operands rounded to 8 bits, and the interpreter truncates.
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)
    assert "narrow_product" in text_of(compiled).split("@triton.jit", 1)[1]


def test_products_of_any_number_of_rows_have_blocks_for_few_and_for_many() -> None:
    model = model_of((node("MatMul", ["x", "w"], "y"),), {"x": ("batch", 64)}, ("y",), weights(w=(64, 256)))
    compiled = opweld.compile(model, target="sm_90", precision="bf16")
    products = [step for step in steps_of(compiled) if step["code"].startswith("contraction")]
    assert len(products) == 2 and products[0]["code"] != products[1]["code"]
    x = np.random.default_rng(9).standard_normal((200, 64), np.float32)
    few, many = (compiled.run({"x": x[:count]})["y"] for count in (5, 200))
    np.testing.assert_allclose(few, many[:5], rtol=1e-5, atol=1e-5)
    for count in (1, 32, 33, 200):
        grids = [evaluate(step["grid"][0], {"batch": count}) for step in products]
        assert [programs > 0 for programs in grids] == [count <= 32, count > 32]


def test_tf32_by_permission() -> None:
    nodes = (node("MatMul", ["x", "w"], "m"), node("Relu", ["m"], "y"))
    model = model_of(nodes, {"x": (256, 256)}, ("y",), weights(w=(256, 256)))
    x = np.random.default_rng(15).standard_normal((256, 256), np.float32)
    compiled = opweld.compile(model, target="sm_90", precision="tf32")
    decided = [d for d in compiled.explain().decisions if d.rule == "fuse.precision"]
    assert [d.taken for d in decided] == ["tf32"]
    assert 'input_precision="tf32"' in text_of(compiled)
    exact = opweld.compile(model, target="sm_90", precision="tf32", disable=["fuse.precision"])
    assert 'input_precision="ieee"' in text_of(exact)
    expected, found = exact.run({"x": x})["y"], compiled.run({"x": x})["y"]
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 1e-5 < error < 2e-3  # two operands of 10 bits, of which the interpreter cuts the rest off
    small = opweld.compile(
        model_of(nodes, {"x": (1, 64)}, ("y",), weights(w=(64, 48))), target="sm_90", precision="tf32"
    )
    assert 'input_precision="ieee"' in text_of(small)  # memory takes as long


def test_attention_in_tf32() -> None:
    random = np.random.default_rng(16)
    feeds: dict[str, Array] = {name: random.standard_normal((1, 2, 100, 16), np.float32) for name in "qkv"}
    model = masked_attention(CAUSAL)
    compiled = opweld.compile(model, target="sm_90", precision="tf32", dim_hints={"length": 4096})
    assert text_of(compiled).count('input_precision="tf32"') == 2
    expected, found = opweld.compile(model).run(feeds)["y"], compiled.run(feeds)["y"]
    assert 1e-5 < np.linalg.norm(found - expected) / np.linalg.norm(expected) < 5e-3


def test_tf32_is_of_gpus() -> None:
    with pytest.raises(OptionError, match="precision is 'tf32', which tensor cores of GPUs multiply"):
        opweld.compile(model_of((node("Relu", ["x"], "y"),), {"x": (2,)}, ("y",), {}), precision="tf32")


AHEAD = """
import sys, numpy as np, onnx, opweld
from pathlib import Path
from tests.backends.test_cuda import parsed, weights
text = '''g (float16[2, 3, 64, 64] x) => (float16[2, 32, 16, 16] y) {
    a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w) b = Relu (a)
    c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, v) y = Relu (c) }'''
model = parsed(text)
own = weights(w=(64, 3, 3, 3), v=(32, 64, 3, 3))
model.graph.initializer.extend(onnx.numpy_helper.from_array(a.astype(np.float16), n) for n, a in own.items())
compiled = opweld.compile(model, target=sys.argv[1])
print(compiled.path)
try:
    compiled.run({"x": np.zeros((2, 3, 64, 64), np.float16)})
except opweld.errors.DeviceError as error:
    print(error)
"""


@pytest.mark.parametrize("architecture", [80, 90])
def test_machine_code_ahead_of_time(architecture: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", AHEAD, f"sm_{architecture}"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert not run.returncode, run.stderr
    path, *said = run.stdout.splitlines()
    found = json.loads((Path(path) / "cuda.json").read_text())
    assert found["architecture"] == architecture
    for code in found["codes"].values():
        assert code["spills"] == 0 and (Path(path) / code["cubin"]).read_bytes().startswith(b"\x7fELF")
        # Loads of later steps are on their way: shared memory has room for several, of 16-bit numbers, 32 x 32 or more.
        assert not code["name"].startswith("contraction") or code["shared"] >= 2 * 2 * (32 + 32) * 32
    if said:  # there is no GPU here
        assert "no NVIDIA driver" in said[0] or "no GPU" in said[0]
