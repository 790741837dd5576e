"""`opweld.compile(module, example_inputs)` and of a program of torch.export."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import opweld
from opweld.errors import InputError, ModelError, ModelTypeError, OptionError, RunError, UnsupportedError
from opweld.frontend.torch.dtypes import as_array


class Net(torch.nn.Module):
    """A convolution, its normalisation, and two answers by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.relu_(self.norm(self.conv(x))).mean((2, 3))
        logits = self.head(hidden)
        return {"logits": logits, "best": logits.argmax(-1)}


class Counter(torch.nn.Module):
    """Writes a buffer."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def right(model: opweld.Model, module: torch.nn.Module, x: torch.Tensor) -> None:
    found, expected = model.run({"x": x.numpy()}), module(x)
    assert list(found) == list(expected)
    for name, own in found.items():
        np.testing.assert_allclose(own, expected[name].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_module_with_a_dynamic_batch(net: Net) -> None:
    model = opweld.compile(net, (torch.randn(2, 3, 8, 8),), dynamic_shapes={"x": {0: "batch"}})
    assert [(info.name, info.shape) for info in model.inputs] == [("x", ("batch", 3, 8, 8))]
    for batch in (1, 2, 7):
        right(model, net, torch.randn(batch, 3, 8, 8))
    assert model.verify({"x": np.random.default_rng(0).standard_normal((4, 3, 8, 8), np.float32)}).passed
    with pytest.raises(InputError, match="x"):
        model.run({"x": np.zeros((2, 3, 9, 8), np.float32)})


def test_example_inputs_by_name_fix_the_sizes(net: Net) -> None:
    model = opweld.compile(net, {"x": torch.randn(2, 3, 8, 8)})
    assert model.inputs[0].shape == (2, 3, 8, 8)
    right(model, net, torch.randn(2, 3, 8, 8))


def test_a_program_is_a_model_and_a_dim_without_a_name_is_called_by_its_place(net: Net) -> None:
    dim = torch.export.Dim.DYNAMIC
    program = torch.export.export(net, (torch.randn(2, 3, 8, 8),), dynamic_shapes={"x": {0: dim}})
    model = opweld.compile(program)
    assert model.inputs[0].shape == ("x_dim0", 3, 8, 8)
    right(model, net, torch.randn(5, 3, 8, 8))


def test_explain_names_modules_operators_and_lines(net: Net) -> None:
    told = str(opweld.compile(net, (torch.randn(2, 3, 8, 8),)).explain())
    assert "aten." in told
    assert "head/" in told
    assert "test_modules.py:" in told


def test_a_compiled_module_pickles_and_other_weights_are_another_model(net: Net) -> None:
    example = (torch.randn(2, 3, 8, 8),)
    model = opweld.compile(net, example)
    again = pickle.loads(pickle.dumps(model))
    assert again.path == model.path
    assert again.verify().passed
    other = Net().eval()
    assert opweld.compile(other, example).path != model.path


def test_a_saved_artifact_runs_without_torch(net: Net, tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    folder = opweld.compile(net, (x,)).save(tmp_path / "net.opweld")
    np.save(tmp_path / "x.npy", x.numpy())
    program = (
        "import sys, numpy, opweld\n"
        f"found = opweld.load({str(folder)!r}).run({{'x': numpy.load({str(tmp_path / 'x.npy')!r})}})\n"
        f"numpy.save({str(tmp_path / 'y.npy')!r}, found['logits'])\n"
        "assert 'torch' not in sys.modules and 'onnx' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), net(x)["logits"].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_buffer_that_is_written_is_an_input_and_an_output_and_may_be_a_state() -> None:
    module = Counter().eval()
    model = opweld.compile(module, (torch.ones(3),))
    assert [info.name for info in model.inputs] == ["total", "x"]
    found = model.run({"total": np.full(3, 2, np.float32), "x": np.ones(3, np.float32)})
    np.testing.assert_array_equal(found["total.next"], [3, 3, 3])
    np.testing.assert_array_equal(found["output"], [6, 6, 6])
    kept = opweld.compile(module, (torch.ones(3),), states={"total": "total.next"})
    state = kept.new_state()
    for count in (1, 2, 3):
        answer = kept.run({"x": np.ones(3, np.float32)}, state)
        np.testing.assert_array_equal(answer["output"], np.full(3, 2.0 * count))


def test_outputs_of_a_class_that_was_registered_without_names() -> None:
    class Answer(dict[str, torch.Tensor]):
        pass

    class Answers(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {"first": Answer(one=x + 1, two=x + 2), "second": x * 3}

    pytree.register_pytree_node(
        Answer, lambda own: (list(own.values()), list(own)), lambda values, keys: Answer(zip(keys, values, strict=True))
    )
    model = opweld.compile(Answers().eval(), (torch.ones(3),))
    assert [info.name for info in model.outputs] == ["first.one", "first.two", "second"]


def test_arguments_that_are_no_tensors_are_constants_of_the_program() -> None:
    class Switched(torch.nn.Module):
        def forward(self, x: torch.Tensor, scale: float, how: str, bias: Any = None) -> torch.Tensor:
            y = x * scale if how == "times" else x + scale
            return y if bias is None else y + bias

    model = opweld.compile(Switched().eval(), {"x": torch.ones(3), "scale": 2.5, "how": "times", "bias": None})
    assert [info.name for info in model.inputs] == ["x"]
    np.testing.assert_array_equal(model.run({"x": np.arange(3, dtype=np.float32)})["output"], [0, 2.5, 5])
    assert model.verify().passed


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda net: opweld.compile(net), ModelTypeError, "give it example inputs"),
        (lambda net: opweld.compile(Net(), (torch.ones(1, 3, 4, 4),)), ModelError, "module.eval"),
        (lambda net: opweld.compile(net, (torch.ones(1, 4),)), ModelError, "cannot trace Net"),
        (lambda net: opweld.compile("x.onnx", (torch.ones(1),)), ModelTypeError, "PyTorch module"),
        (lambda net: opweld.compile(b"", dynamic_shapes={}), OptionError, "dynamic_shapes"),
    ],
)
def test_errors_say_what_to_do(net: Net, call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(net)


def test_what_is_not_supported_is_named_with_its_line() -> None:
    class Inverse(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv_ex(x)[0]

    with pytest.raises(UnsupportedError, match=r"linalg_inv_ex.*test_modules\.py:\d+"):
        opweld.compile(Inverse().eval(), (torch.eye(3),))


def test_checks_of_the_tracer_need_no_rows_and_steps_in_floats_no_fixed_sizes() -> None:
    class Positions(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            size = x.shape[0]
            torch._check(torch.ops.aten.sym_storage_offset.default(x[1:]) >= 0)  # pyright: ignore[reportPrivateUsage]
            return torch.arange(size, -size, -1.0, dtype=torch.int64) + x.sum()

    module = Positions().eval()
    model = opweld.compile(module, (torch.randn(4),), dynamic_shapes={"x": {0: "n"}})
    for size in (3, 4, 7):
        x = torch.randn(size)
        np.testing.assert_allclose(model.run({"x": x.numpy()})["output"], module(x).numpy(), rtol=1e-5)


def test_floats_are_counted_up_to_sizes_that_change() -> None:
    class Counted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.arange(1, x.shape[0] + 1, dtype=torch.float32) / x.shape[0] + x

    module = Counted().eval()
    model = opweld.compile(module, (torch.zeros(4),), dynamic_shapes={"x": {0: "n"}})
    for size in (1, 4, 7):
        x = torch.zeros(size)
        np.testing.assert_allclose(model.run({"x": x.numpy()})["output"], module(x).numpy(), rtol=1e-6)


class Positive(torch.nn.Module):
    """Asserts of its data, with messages and without."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch.ops.aten._assert_async((x > 0).all())
        torch.ops.aten._assert_async.default((x != 3).all())
        torch.ops.aten._assert_async((x < 5).all(), "less than five")
        return x * 2, x.sum()


def test_what_a_program_asserts_of_its_data_is_checked_by_the_artifact(tmp_path: Path) -> None:
    program = torch.export.export(Positive(), (torch.ones(3),))
    opweld.compile(program).save(tmp_path / "positive.opweld")
    opened = opweld.load(tmp_path / "positive.opweld")
    np.testing.assert_array_equal(opened.run({"x": np.ones(3, np.float32)})["output.0"], np.full(3, 2, np.float32))
    for number, message in ((-1, "single nonzero value"), (3, "single nonzero value"), (7, "less than five")):
        with pytest.raises(RunError, match=rf"{message}.*: what the model asserts of its data does not hold"):
            opened.run({"x": np.full(3, number, np.float32)})
    with pytest.raises(RuntimeError, match="single nonzero value"):
        program.module()(torch.full((3,), -1.0))  # the caller's program is as it was


class Four(torch.nn.Module):
    """Asserts how much it finds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.size(0) == 4)
        return found + 3


def test_what_a_program_asserts_of_sizes_that_data_tells_is_checked() -> None:
    model = opweld.compile(Four().eval(), (torch.tensor([0, 1, 3, 4, 2, 0]),))
    assert model.run({"x": np.array([0, 1, 3, 4, 2, 0])})["output"].tolist() == [[4], [5], [6], [7]]
    for few in ([0, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1]):
        with pytest.raises(RunError, match="does not hold"):
            model.run({"x": np.array(few)})


class Outside(torch.nn.Module):
    """Asserts two things of how much it finds, one or the other of which holds."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.nonzero().size(0)
        torch._check((size < 2) | (size > 3))  # pyright: ignore[reportArgumentType]
        return x + size


def test_what_is_asserted_may_be_one_or_another() -> None:
    model = opweld.compile(Outside().eval(), (torch.tensor([1, 1, 1, 1, 0]),))
    assert model.run({"x": np.array([1, 0, 0, 0, 0])})["output"].tolist() == [2, 1, 1, 1, 1]
    with pytest.raises(RunError, match="does not hold"):
        model.run({"x": np.array([1, 0, 0, 1, 1])})


class Ended(torch.nn.Module):
    """Asserts of each text that it ends as often as any other, and takes the last end of each."""

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        ends = ids.eq(2)
        torch._check(torch.unique_consecutive(ends.sum(1)).numel() == 1, lambda: "as many ends")
        chosen = x[ends, :]
        torch._check(chosen.shape[0] // x.shape[0] >= 1, lambda: "an end")
        return chosen.view(x.shape[0], -1, x.shape[-1])[:, -1]


def test_sizes_that_are_only_asserted_make_no_variants() -> None:
    x, ids = torch.randn(2, 5, 4), torch.tensor([[2, 1, 1, 1, 2], [1, 2, 1, 2, 1]])
    module = Ended().eval()
    model = opweld.compile(module, (x, ids), dynamic_shapes={"x": {0: "n", 1: "m"}, "ids": {0: "n", 1: "m"}})
    for own in (ids, torch.tensor([[1, 2], [2, 1], [2, 0]])):
        fed = torch.randn(*own.shape, 4)
        found = model.run({"x": fed.numpy(), "ids": own.numpy()})["output"]
        np.testing.assert_array_equal(found, module(fed, own).numpy())
    with pytest.raises(RunError, match="does not hold"):
        model.run({"x": torch.randn(2, 3, 4).numpy(), "ids": np.array([[2, 2, 2], [2, 1, 1]])})


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64])
def test_outputs_of_every_type_are_only_there_where_assertions_hold(dtype: torch.dtype) -> None:
    class Reversed(torch.nn.Module):
        def forward(self, x: torch.Tensor, fine: torch.Tensor) -> torch.Tensor:
            torch.ops.aten._assert_async(fine, "all is fine")
            return x.flip(0)

    x = torch.tensor([[0, 1], [1, 1]]).to(dtype)
    model = opweld.compile(Reversed().eval(), (x, torch.tensor(True)))
    fed = as_array(x)
    np.testing.assert_array_equal(model.run({"x": fed, "fine": np.array(True)})["output"], fed[::-1])
    with pytest.raises(RunError, match="all is fine"):
        model.run({"x": fed, "fine": np.array(False)})


def test_assertions_that_are_known_to_hold_cost_nothing() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    class Asserting(Twice):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.ops.aten._assert_async(torch.full((2,), 3).all(), "three is not zero")
            return super().forward(x)

    plain, asserting = (opweld.compile(kind().eval(), (torch.ones(4),)) for kind in (Twice, Asserting))
    assert asserting.session.manifest.kernels == plain.session.manifest.kernels == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_modules_of_two_bytes_are_verified(dtype: torch.dtype) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval().to(dtype)
    assert opweld.compile(module, (torch.ones(2, 8, dtype=dtype),)).verify().passed


class Tagged(torch.nn.Module):
    """Adds to the features that it is given, one of which is a text, as modules of sentence-transformers do."""

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        features.update(found=features["x"] * 2, cache=None)
        return features


def test_texts_and_none_among_features_are_neither_inputs_nor_outputs() -> None:
    shapes = ({"x": {0: "batch"}, "modality": None},)
    given = {"x": torch.ones(2, 4), "modality": "text"}
    model = opweld.compile(Tagged().eval(), (given,), dynamic_shapes=shapes)
    assert [own.name for own in model.inputs] == ["features_x"]
    feeds = {"features_x": np.ones((3, 4), np.float32)}
    found = model.run(feeds)
    assert list(found) == ["x", "found"]
    np.testing.assert_array_equal(found["found"], np.full((3, 4), 2.0))
    assert model.verify(feeds).passed
