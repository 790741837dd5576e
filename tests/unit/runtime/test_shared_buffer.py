"""One memory that is past and present at once: bound so, and as a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opweld
from opweld import onnxruntime
from opweld.errors import InputError
from opweld.runtime.session import Session
from tests.unit.frontend.models import model_of, node

Array = np.ndarray[Any, Any]

HEADS, KEY_HEADS, SIZE, CAPACITY = 4, 2, 8, 12


def grouped() -> onnx.ModelProto:
    """A GroupQueryAttention whose caches have a capacity, as language models for onnxruntime are exported."""
    names = ["q", "k", "v", "past_key", "past_value", "seqlens_k", "total"]
    attention = helper.make_node(
        "GroupQueryAttention",
        names,
        ["y", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=KEY_HEADS,
    )
    inputs: dict[str, Any] = {"q": [1, "s", HEADS * SIZE]} | {name: [1, "s", KEY_HEADS * SIZE] for name in "kv"}
    inputs |= {name: [1, KEY_HEADS, "past", SIZE] for name in ("past_key", "past_value")}
    inputs |= {"seqlens_k": [1], "total": []}
    kinds = {"seqlens_k": TensorProto.INT32, "total": TensorProto.INT32}
    model = model_of([attention], inputs, ["y", "present_key", "present_value"], kinds=kinds)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def steps() -> Iterator[dict[str, Array]]:
    """What is fed: three places, then one at a time."""
    random, total = np.random.default_rng(3), 0
    for count in (3, 1, 1, 1, 1):
        total += count
        shapes = {"q": HEADS, "k": KEY_HEADS, "v": KEY_HEADS}
        made = {n: random.standard_normal((1, count, h * SIZE)).astype(np.float32) for n, h in shapes.items()}
        yield made | {"seqlens_k": np.array([total - 1], np.int32), "total": np.array(total, np.int32)}


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Array]]:
    """What runs give whose caches are fed back."""
    model = opweld.compile(grouped())
    caches = {name: np.zeros((1, KEY_HEADS, CAPACITY, SIZE), np.float32) for name in ("past_key", "past_value")}
    made: list[dict[str, Array]] = []
    for feeds in steps():
        made.append(model.run({**feeds, **caches}))
        caches = {name: made[-1][name.replace("past", "present")] for name in caches}
    return made


def test_one_value_bound_as_past_and_present(answers: list[dict[str, Array]]) -> None:
    session = onnxruntime.InferenceSession(grouped().SerializeToString())
    zeros = np.zeros((1, KEY_HEADS, CAPACITY, SIZE), np.float32)
    caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(zeros.copy()) for name in ("key", "value")}
    for feeds, expected in zip(steps(), answers, strict=True):
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("y")
        for name, cache in caches.items():
            binding.bind_ortvalue_input(f"past_{name}", cache)
            binding.bind_ortvalue_output(f"present_{name}", cache)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], expected["y"], rtol=1e-5, atol=1e-6)
        for name, cache in caches.items():
            np.testing.assert_array_equal(cache.numpy(), expected[f"present_{name}"])


def test_as_a_state_it_is_written_in_place(answers: list[dict[str, Array]]) -> None:
    model = opweld.compile(grouped(), states={"past_*": "present_*"})
    taken = [d.taken for d in model.explain().account.ledger if d.rule == "place.state"]
    assert taken
    assert set(taken) == {"in-place"}
    state = model.new_state(dims={"past": CAPACITY})
    place = state.memory("past_key").ctypes.data
    for feeds, expected in zip(steps(), answers, strict=True):
        np.testing.assert_allclose(model.run(feeds, state)["y"], expected["y"], rtol=1e-5, atol=1e-6)
        for name in ("key", "value"):
            np.testing.assert_array_equal(state[f"past_{name}"], expected[f"present_{name}"])
    assert state.memory("past_key").ctypes.data == place
    assert state.plans == 2  # of three places, and of one, whatever the total is that is fed


def test_an_output_may_lie_where_an_input_does() -> None:
    turned = model_of([node("Slice", ["x", "a", "b", "c", "d"], "y")], {"x": ["n"]}, ["y"], turned_by())
    session = Session(opweld.compile(turned).path)
    memory = np.arange(9, dtype=np.float32)
    session.run_into({"x": memory}, {"y": memory})
    np.testing.assert_array_equal(memory, np.arange(9)[::-1])
    memory = np.arange(10, dtype=np.float32)
    session.run_into({"x": memory[:7]}, {"y": memory[3:]})
    np.testing.assert_array_equal(memory, [0, 1, 2, *range(7)[::-1]])
    with pytest.raises(InputError):
        session.run_into({"x": memory}, {"y": memory[1:]})
    np.testing.assert_array_equal(memory, [0, 1, 2, *range(7)[::-1]])


def turned_by() -> dict[str, Array]:
    """The arguments of a Slice that reverses."""
    return {"a": np.array([-1]), "b": np.array([-(2**40)]), "c": np.array([0]), "d": np.array([-1])}
