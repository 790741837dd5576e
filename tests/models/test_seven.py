"""The seven models answer right, for every example of the zoo, from compiled code alone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import onnx
import pytest

from opweld.build import artifact
from opweld.verification.compare import compare, relative_error
from opweld.verification.reference import onnxruntime_outputs
from tests.models.conftest import Served
from tests.models.float64 import Reference

pytestmark = pytest.mark.models

DYNAMIC = ("ppocrv4-det", "minilm", "silero-vad", "magika")

PEER_IS_NEAR = 1e-2
"""Of an output's scale. A peer further from float64 is wrong there, and would make any answer tolerable."""


def test_right_for_every_example(model: Served, capsys: pytest.CaptureFixture[str]) -> None:
    reference = Reference(model.source)
    names = [info.name for info in artifact.read(model.artifact, verify=True).outputs]
    problems: list[str] = []
    for example in model.examples:
        if not example.valid:
            continue
        assert example.label not in model.refused, f"{example.label}: {model.refused[example.label]}"
        right = reference.run(example.feeds)
        peer = onnxruntime_outputs(model.source, example.feeds)
        outputs = model.outputs[example.label, 2]
        assert len(outputs) == len(right) == len(peer) == len(names)
        for name, output, exact, other in zip(names, outputs, right, peer, strict=True):
            assert output.dtype == other.dtype
            peer_error = relative_error(other, exact)[0]
            result = compare(name, output, exact, other if peer_error < PEER_IS_NEAR else None)
            with capsys.disabled():
                sys.stdout.write(
                    f"\n{model.name}, {example.label}, {name}: error {result.error:.1e}, "
                    f"ONNX Runtime's {peer_error:.1e}, tolerated {result.tolerance:.1e}"
                )
            if not result.passed:
                problems.append(f"{example.label}, {name}: {result.problem}")
    assert not problems, "\n".join(problems)


def test_nothing_was_compiled_for_a_new_shape(model: Served) -> None:
    assert model.after == model.before
    assert "module.so" in model.after


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_models_ran_at_three_shapes_or_more(name: str, serve: Callable[[str], Served]) -> None:
    model = serve(name)
    shapes = {
        tuple(array.shape for array in example.feeds.values())
        for example in model.examples
        if example.label not in model.refused
    }
    assert len(shapes) >= 3
    assert len(model.examples) == len(model.refused) + sum(threads == 2 for _, threads in model.outputs)


def test_refuses_what_the_model_refuses(model: Served) -> None:
    assert set(model.refused) == {example.label for example in model.examples if not example.valid}


def test_as_many_threads_as_one_likes_same_bytes(model: Served) -> None:
    labels = {label for label, _ in model.outputs}
    assert labels
    for label in labels:
        for one, two in zip(model.outputs[label, 1], model.outputs[label, 2], strict=True):
            assert one.dtype == two.dtype and one.shape == two.shape
            assert one.tobytes() == two.tobytes(), f"{label}: two threads answer otherwise than one"


def test_a_violated_assumption_is_answered_by_another_variant(serve: Callable[[str], Served]) -> None:
    """The detector adds maps whose sizes agree for multiples of 32 only, and for a few other sizes by rounding."""
    variants = serve("ppocrv4-det").variants
    usual = variants.pop("640 x 480")
    assert variants.pop("dims agree by rounding: 94 x 159") != usual
    assert set(variants.values()) == {usual}


INVALID = {
    "ppocrv4-det": ("not divisible: 330 x 250", "x", (330, 250)),
    "silero-vad": ("chunk too long: 1600", "input", (1600,)),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_shape_that_cannot_be_is_refused_by_name(name: str, serve: Callable[[str], Served]) -> None:
    label, feed, sizes = INVALID[name]
    error = serve(name).refused[label]
    assert error["kind"] == "AssumptionError"
    assert feed in error["text"]
    assert any(str(size) in error["text"] for size in sizes)
    nodes = node_names(serve(name))
    assert any(node in error["text"] for node in nodes), "names no node"


def node_names(model: Served) -> set[str]:
    found: set[str] = set()
    graphs = [onnx.load(model.source).graph]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            found.add(node.name)
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return found - {""}
