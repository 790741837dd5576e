"""A decoder, whose queries are one in most runs, is compiled for one as well; weights are stored once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.explanation import describe
from opweld.ledger import Alternative, Crossover, Ledger
from opweld.options import Options
from opweld.pipeline import dry_run
from opweld.runtime.session import Session
from opweld.target import Target

Array = np.ndarray[Any, Any]

HEADS, SIZE = 4, 32
WIDTH = HEADS * SIZE


def decoder(queries: int | str = "n") -> onnx.ModelProto:
    """Attention of new tokens over cached keys and values and their own, as exporters write it; a product by weights
    before it."""
    heads = [1, HEADS, "past", SIZE]
    inputs = {"x": [1, queries, WIDTH], "keys": heads, "values": heads}
    weights = np.random.default_rng(7).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Reshape", ["h", "split"], ["r"]),
        helper.make_node("Transpose", ["r"], ["q"], perm=[0, 2, 1, 3]),
        helper.make_node("Concat", ["keys", "q"], ["k"], axis=2),
        helper.make_node("Concat", ["values", "q"], ["v"], axis=2),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, HEADS, size, SIZE])
            for name, size in (("y", queries), ("k", "total"), ("v", "total"))
        ],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array([1, -1, HEADS, SIZE]), "split"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def with_biases(model: onnx.ModelProto) -> onnx.ModelProto:
    """The decoder whose keys and values are products of their own, with biases: with one query these are computed where
    they are stored, so that other values are computed of the weights first."""
    random = np.random.default_rng(8)
    nodes = {output: node for node in model.graph.node for output in node.output}
    for name in ("k", "v"):
        weights, bias = random.standard_normal((WIDTH, WIDTH)) / 16, random.standard_normal(WIDTH)
        for suffix, array in (("w", weights), ("b", bias)):
            model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name + suffix))
        position = list(model.graph.node).index(nodes["q"]) + 1
        own = [
            helper.make_node("MatMul", ["x", f"{name}w"], [f"{name}_product"], f"{name}_product"),
            helper.make_node("Add", [f"{name}_product", f"{name}b"], [f"{name}_sum"], f"{name}_sum"),
            helper.make_node("Reshape", [f"{name}_sum", "split"], [f"{name}_heads"]),
            helper.make_node("Transpose", [f"{name}_heads"], [f"{name}_own"], perm=[0, 2, 1, 3]),
        ]
        for node in reversed(own):
            model.graph.node.insert(position, node)
        nodes[name].input[1] = f"{name}_own"
    return model


def feeds(queries: int, past: int) -> dict[str, Array]:
    random = np.random.default_rng(queries + past)
    shapes = {"x": (1, queries, WIDTH), "keys": (1, HEADS, past, SIZE), "values": (1, HEADS, past, SIZE)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def computed(model: onnx.ModelProto, fed: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Keys, values and results in float64."""
    weights = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    x, keys, values = (fed[name].astype(np.float64) for name in ("x", "keys", "values"))
    q = (x @ weights).reshape(1, -1, HEADS, SIZE).transpose(0, 2, 1, 3)
    k, v = np.concatenate([keys, q], 2), np.concatenate([values, q], 2)
    scores = np.exp((s := q @ k.transpose(0, 1, 3, 2)) - s.max(-1, keepdims=True))
    return k, v, scores / scores.sum(-1, keepdims=True) @ v


def decided(target: str, **options: Any) -> dict[str, str]:
    """What `version.size` took, by the symbol and the size that it is about."""
    ledger = dry_run(decoder(), Options(**options), Target.of(target)).ledger
    return {d.subject: d.taken for d in ledger if d.rule == "version.size"}


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_one_query_is_a_variant_of_its_own(target: str) -> None:
    assert decided(target) == {"n > 1": "apart"}
    assert decided(target, disable=["version.size"]) == {"n > 1": "one"}


@pytest.mark.parametrize("hints", [{"n": 1}, {"n": 64}])
def test_where_the_number_of_queries_is_told_there_is_one_variant(hints: dict[str, int]) -> None:
    assert decided("x86-64-v4", dim_hints=hints) == {}


def test_queries_that_are_their_own_keys_are_no_reason() -> None:
    """An encoder: one token has one key."""
    model = decoder()
    for node in model.graph.node:
        if node.op_type == "Concat":
            node.op_type, node.input[:] = "Identity", node.input[1:]
            del node.attribute[:]
    del model.graph.input[1:]
    ledger = dry_run(model, Options(), Target.of("x86-64-v4")).ledger
    assert not [d for d in ledger if d.crossovers]


def test_both_variants_are_right_and_share_their_weights(tmp_path: Path) -> None:
    model = decoder()
    sizes: dict[str, int] = {}
    for name, disabled in {"apart": (), "one": ("version.size",)}.items():
        opweld.compile(model, disable=disabled).save(tmp_path / name)
        sizes[name] = (tmp_path / name / "weights.bin").stat().st_size
        session = Session(tmp_path / name)
        for queries, past in ((1, 1), (1, 40), (5, 3), (1, 7), (33, 1)):
            fed = feeds(queries, past)
            # Sums of some hundred float32 terms near 1.
            np.testing.assert_allclose(session.run(fed)[0], computed(model, fed)[-1], rtol=1e-4, atol=1e-5)
    assert sizes["apart"] == sizes["one"]


def test_weights_are_shared_where_other_values_are_computed_of_them_first(tmp_path: Path) -> None:
    sizes: set[int] = set()
    for name, disabled in {"apart": (), "one": ("version.size",)}.items():
        model = opweld.compile(with_biases(decoder()), disable=disabled)
        model.save(tmp_path / name)
        sizes.add((tmp_path / name / "weights.bin").stat().st_size)
        assert len(model.session.manifest.variants) == (2 if name == "apart" else 1)
    assert len(sizes) == 1


def test_a_hint_may_be_said_by_the_name_that_the_model_has() -> None:
    model = decoder("queries.of\u00fcs")
    ledger = dry_run(model, Options(dim_hints={"queries.of\u00fcs": 1}), Target.of("x86-64-v4")).ledger
    assert not [d for d in ledger if d.rule == "version.size"]


def test_a_decoder_whose_keys_and_values_are_states(tmp_path: Path) -> None:
    model = opweld.compile(decoder(), states={"keys": "k", "values": "v"})
    state = model.new_state(capacity=64)
    fed = feeds(1, 0)
    for queries in (5, 1, 1, 3, 1):
        x = feeds(queries, 1)["x"]
        found = model.session.run({"x": x}, state=state)[0]
        keys, values, exact = computed(decoder(), {**fed, "x": x})
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
        fed = {"x": x, "keys": keys, "values": values}


def test_a_version_is_dumped_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_DUMP", str(tmp_path))
    monkeypatch.setenv("OPWELD_DEBUG", "1")
    opweld.compile(decoder())
    texts = {path.name[4:]: path.read_text() for path in tmp_path.iterdir() if path.suffix == ".tensors"}
    assert texts.keys() == {"main.tensors", "main_n_1.tensors"}
    assert "input x f32[1, n, 128]" in texts["main.tensors"] and "input x f32[1, 1, 128]" in texts["main_n_1.tensors"]


def test_a_size_that_no_variant_takes_is_told_as_without_versions(tmp_path: Path) -> None:
    said: list[str] = []
    for disabled in ((), ("version.size",)):
        model = opweld.compile(decoder(), disable=disabled)
        fed = feeds(1, 3)
        fed["keys"] = fed["keys"][:, :, :, :-1]
        with pytest.raises(opweld.OpweldError) as error:
            model.run(fed)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_crossovers_are_told_and_kept() -> None:
    ledger = Ledger()
    at = Crossover("n", 1, "strided", 1e-6, 5e-6)
    ledger.decide(
        rule="place.pack",
        site=("node",),
        subject=("a", "b"),
        alternatives=(Alternative("strided", seconds=9e-6), Alternative("copy", seconds=7e-6)),
        reason="a test",
        crossovers=lambda taken: [at] if taken == "copy" else [],
    )
    (decision,) = Ledger.loads(ledger.dumps())
    assert decision.crossovers == (at,)
    assert "strided where n is 1 (1 us instead of 5 us)" in describe(decision)[1]


def test_what_is_stored_is_decided_as_in_the_variant_that_is_followed() -> None:
    """By the constant, whatever is computed of it; else by the subject."""
    ledger = Ledger()

    def vectors(value: str, prefer: str, constant: str = "") -> str:
        return ledger.decide(
            rule="schedule.vectors",
            site=(),
            subject=(value,),
            alternatives=(Alternative("1"), Alternative("2"), Alternative("4")),
            prefer=prefer,
            reason="a test",
            constant=constant,
        )

    ledger.variant("main", {})
    vectors("product", "2", "w")
    vectors("other", "4", "u")
    vectors("none", "4")
    ledger.variant("main_n_1", {}, follows="main")
    assert vectors("sum", "1", "w") == "2"
    assert vectors("product", "1", "u") == "4"
    assert vectors("none", "1") == "4"
    assert vectors("new", "1", "x") == "1"
