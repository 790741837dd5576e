"""`torch.compile(backend="opweld")` and `OnGpu` for CUDA tensors, without a GPU.

Graphs have fake CUDA tensors, captured so or made such afterwards; their kernels run in Triton's interpreter on tensors
of the CPU."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import opweld
from opweld.errors import InputError, OptionError, UnsupportedError
from opweld.frontend.torch.devices import device_of
from opweld.torch import backend
from opweld.torch.callable import Compiled
from opweld.torch.on_gpu import OnGpu
from opweld.torch.parts import Part

pytestmark = pytest.mark.usefixtures("inference")


def captured(
    function: Callable[..., Any], *tensors: torch.Tensor, devices: str | Sequence[str] = "cuda"
) -> fx.GraphModule:
    """The graph of a function for such tensors on other devices."""
    names = [devices] * len(tensors) if isinstance(devices, str) else devices
    with FakeTensorMode():
        fakes = [torch.empty(t.shape, dtype=t.dtype, device=d) for t, d in zip(tensors, names, strict=True)]
        return make_fx(function)(*fakes)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Has `torch.compile` take graphs for ones of CUDA tensors: those that were compiled."""
    found: list[Any] = []
    compiled = backend._compiled  # pyright: ignore[reportPrivateUsage]

    def moved(graph: fx.GraphModule, *arguments: Any) -> Any:
        for node in graph.graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, FakeTensor):
                value.fake_device = torch.device("cuda", 0)
        run = compiled(graph, *arguments)
        found.append(run)
        return run

    monkeypatch.setattr(backend, "_compiled", moved)
    return found


def close(found: Any, right: Any) -> None:
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_a_graph_of_cuda_tensors_is_compiled_for_the_gpu_and_runs_on_them() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        y = torch.relu(x @ w + b)
        return [y.t(), y.sum(1)]

    tensors = torch.randn(5, 8), torch.randn(8, 6), torch.randn(6)
    graph = captured(function, *tensors)
    run = Compiled(graph, {1: tensors[1], 2: tensors[2]}, {})
    assert is_on_gpu(run) and run.model is not None
    assert [info.name for info in run.model.inputs] == ["x_1"]
    found, right = run(list(tensors)), function(*tensors)
    close(found[0], right[0])
    close(found[1], right[1])
    assert found[0].stride() == right[0].stride()


def test_what_is_written_and_what_is_a_view(made: list[Compiled]) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        return x.view(4, 3), x + 1

    x = torch.randn(3, 4)
    mine, right = x.clone(), x.clone()
    run = torch.compile(function, backend="opweld", options={"strict": True})
    found, expected = run(mine), function(right)
    close(mine, right)
    close(found, expected)
    assert found[0].data_ptr() == mine.data_ptr()
    assert [is_on_gpu(compiled) for compiled in made] == [True]


def test_a_module_and_sizes_that_change(made: list[Compiled]) -> None:
    first = torch.nn.Linear(8, 16)
    module = torch.nn.Sequential(first, torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()
    run = torch.compile(module, backend="opweld", options={"strict": True})
    for batch in (2, 3, 5):
        x = torch.randn(batch, 8)
        close(run(x), module(x))
    first.weight.mul_(2)
    close(run(x), module(x))
    assert [is_on_gpu(compiled) for compiled in made] == [True, True]  # for the first size, and for any


def is_on_gpu(compiled: Compiled) -> bool:
    return compiled.model is not None and compiled.model.session.manifest.backend == "cuda"


def test_parts_of_a_graph_are_compiled_for_the_gpu(made: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x @ x.t()) * 2

    x = torch.randn(3, 3)
    with pytest.warns(UserWarning, match="leaves 1 nodes in eager mode"):
        found = torch.compile(function, backend="opweld")(x)
    close(found, function(x))
    parts = [part._compiled for part in made[0]._run.modules() if isinstance(part, Part)]  # pyright: ignore[reportPrivateUsage]
    assert [is_on_gpu(part) for part in parts] == [True, True]


def test_numbers_of_the_host_and_sizes_that_elements_tell() -> None:
    def function(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * scale

    x, scale = torch.randn(3, 4), torch.tensor(2.5)
    run = Compiled(captured(function, x, scale, devices=("cuda", "cpu")), {}, {})
    close(run([x, scale])[0], x * 2.5)


def test_complex_numbers_and_bfloat16() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x * x.conj() + 1, y * 2]

    x, y = torch.randn(3, 4, dtype=torch.complex64), torch.randn(3).bfloat16()
    run = Compiled(captured(function, x, y), {}, {})
    for found, right in zip(run([x, y]), function(x, y), strict=True):
        assert found.dtype == right.dtype
        close(found, right)


def test_control_flow_by_data_goes_through_the_host() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[k] x) => (int64[r, n] at, float[k] y) {'
    compiled = opweld.compile(text_model(f"{text} at = NonZero (x) y = Relu (x) }}"), target="sm_90")
    at, y = OnGpu(compiled)(torch.tensor([0.0, 1, -2, 0, 3]))
    assert at.tolist() == [[1, 2, 4]] and y.tolist() == [0, 1, 0, 0, 3]


def test_sizes_that_elements_tell_are_read() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3] x, int64[2] s) => (float[a, b] y) {'
    compiled = opweld.compile(text_model(f"{text} y = Reshape (x, s) }}"), target="sm_90")
    x = torch.arange(6.0).reshape(2, 3)
    for shape in ([3, 2], [1, 6]):
        (found,) = OnGpu(compiled)(x, torch.tensor(shape))
        assert found.tolist() == x.reshape(shape).tolist()


def text_model(text: str) -> Any:
    import onnx

    return onnx.parser.parse_model(text)


RELU = '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Relu (x) }'


def test_tensors_that_do_not_fit_are_named() -> None:
    call = OnGpu(opweld.compile(text_model(RELU), target="sm_90"))
    with pytest.raises(InputError, match=r"input 'x' must be a tensor of float32 on cpu.*torch\.int64"):
        call(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="expected 1 tensors, got 2"):
        call(torch.zeros(3), torch.zeros(3))
    with pytest.raises(InputError, match=r"input 'x': expected shape \[3\], got \[4\]"):
        call(torch.zeros(4))
    with pytest.raises(InputError, match="compile it with target='cuda'"):
        OnGpu(opweld.compile(text_model(RELU)))


def test_a_graph_is_of_one_device() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x + 1, y + 1]

    def devices(*names: str) -> torch.device:
        return device_of(captured(function, torch.ones(2), torch.ones(2), devices=names).graph, {0: "x", 1: "self.y"})

    assert devices("cuda", "cuda") == torch.device("cuda", 0)
    assert devices("cpu", "cpu") == torch.device("cpu")
    with pytest.raises(UnsupportedError, match=r"x is on cuda:0 and self\.y on cpu; move one of them"):
        devices("cuda", "cpu")
    with pytest.raises(UnsupportedError, match=r"x is on cuda:0 and self\.y on cuda:1"):
        devices("cuda:0", "cuda:1")
    with pytest.raises(UnsupportedError, match=r"self\.y is on the device xpu"):
        devices("cpu", "xpu")


def test_tensors_on_two_devices_are_called_as_in_the_program(
    made: list[Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(graph: fx.Graph, sources: dict[int, str]) -> torch.device:
        first = next(node for node in graph.nodes if node.op == "placeholder")
        first.meta["val"].fake_device = torch.device("cpu")
        return device_of(graph, sources)

    monkeypatch.setattr("opweld.frontend.torch.graphs.device_of", at)
    with pytest.warns(UserWarning, match="leaves a graph of 1 nodes in eager mode: .* but left is on cpu and right on"):
        torch.compile(lambda left, right: left + right, backend="opweld")(torch.ones(2), torch.ones(2))


def test_a_graph_without_inputs_is_where_its_outputs_are() -> None:
    graph = captured(lambda: [torch.arange(5, device="cuda") * 2])
    run = Compiled(graph, {}, {})
    assert is_on_gpu(run)
    assert run([])[0].tolist() == [0, 2, 4, 6, 8]


def test_an_output_that_is_moved_to_the_host() -> None:
    graph = captured(lambda x: [(x * 2).cpu(), x + 1], torch.ones(3))
    run = Compiled(graph, {}, {})
    layouts = [layout for _, layout in run._convention.made]  # pyright: ignore[reportPrivateUsage]
    assert [layout.moved for layout in layouts] == [torch.device("cpu"), None]
    assert run([torch.ones(3)])[0].tolist() == [2, 2, 2]


def test_another_target_than_that_of_the_tensors() -> None:
    graph = captured(lambda x: [x + 1], torch.ones(3))
    with pytest.raises(OptionError, match="target='native', but the tensors are on cuda:0"):
        Compiled(graph, {}, {"target": "native"})
    run = Compiled(graph, {}, {"target": "sm_80"})
    assert run.model is not None and run.model.session.manifest.target == "sm_80"


def test_a_graph_for_the_gpu_is_saved_and_loaded() -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 4)
    run = Compiled(captured(lambda x, w: [x @ w], x, w), {1: w}, {})
    loaded: Compiled = pickle.loads(pickle.dumps(run))
    close(loaded([x, w])[0], x @ w)
    assert is_on_gpu(loaded)
    other = torch.randn(4, 4)
    close(loaded([x, other])[0], x @ other)


def test_arrays_of_the_host_are_numbers_of_the_declared_type() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, int32 n) => (float[3] y) {'
    compiled = opweld.compile(text_model(f"{text} f = Cast <to = 1> (n) y = Mul (x, f) }}"), target="sm_90")
    (found,) = OnGpu(compiled).run([torch.ones(3), np.asarray(3)])
    assert found.tolist() == [3, 3, 3]
