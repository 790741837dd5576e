"""`torch.compile(module, backend="opweld")`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import opweld.torch
from opweld.errors import UnsupportedError
from opweld.torch.callable import Compiled

pytestmark = pytest.mark.usefixtures("inference")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """The graphs that were compiled, each as often as it was."""
    found: list[Compiled] = []
    build = Compiled._build  # pyright: ignore[reportPrivateUsage]

    def noted(self: Compiled, *arguments: Any) -> None:
        found.append(self)
        build(self, *arguments)

    monkeypatch.setattr(Compiled, "_build", noted)
    return found


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="opweld", options={"strict": True, **options})


def close(found: Any, right: Any) -> None:
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_a_module_and_sizes_that_change(made: list[Compiled]) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).eval()
    run = compiled(module)
    for batch in (2, 3, 5, 9):
        x = torch.randn(batch, 8)
        close(run(x), module(x))
    assert len(made) == 2  # for the first size, and for any


def test_a_mean_whose_channels_are_innermost_and_a_batch_that_changes(made: list[Compiled]) -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(x.permute(0, 3, 1, 2) * 2, 1)

    run = compiled(pooled)
    for batch in (2, 3, 5):
        x = torch.randn(batch, 4, 5, 6)
        close(run(x), pooled(x))
    assert len(made) == 2


def test_parameters_are_packed_and_packed_again_when_they_change(made: list[Compiled]) -> None:
    module = torch.nn.Linear(8, 4).eval()
    run = compiled(module)
    x = torch.randn(2, 8)
    close(run(x), module(x))
    assert made[0].model is not None
    assert len(made[0].model.inputs) == 1
    module.weight.mul_(2)
    close(run(x), module(x))
    module.load_state_dict(torch.nn.Linear(8, 4).state_dict())
    close(run(x), module(x))
    module.weight.data = torch.ones(4, 8)
    close(run(x), module(x))
    assert len(made) == 4
    close(run(x), module(x))
    assert len(made) == 4


def test_inputs_that_are_written() -> None:
    def step(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[:, 1] = x
        return cache.sum(0)

    own, right, x = torch.zeros(3, 4), torch.zeros(3, 4), torch.randn(3)
    close(compiled(step)(own, x), step(right, x))
    close(own, right)


def test_sizes_that_may_be_nothing() -> None:
    def longer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.new_ones(y.item())])  # type: ignore[arg-type]

    with torch._dynamo.config.patch(capture_scalar_outputs=True):  # pyright: ignore[reportPrivateUsage]
        run = compiled(longer)
        for count in (0, 3):
            close(run(torch.ones(2), torch.tensor(count)), torch.ones(2 + count))


def test_numbers_of_symbolic_sizes() -> None:
    def counted(x: torch.Tensor) -> tuple[Any, ...]:
        half = x.shape[0] / 4
        return x * half, x.double() * (half / 3), round(half), math.trunc(half), math.ceil(half)

    run = torch.compile(counted, backend="opweld", options={"strict": True}, dynamic=True)
    for count in (6, 10):
        x = torch.randn(count)
        torch.testing.assert_close(run(x), counted(x))


def test_sums_of_symbolic_sizes() -> None:
    def padded(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x, y, z])
        length: Any = torch.sym_sum([x.shape[0], y.shape[0], z.shape[0]])
        return joined * torch.ones(length)

    for sizes in ((2, 3, 4), (3, 4, 5), (5, 7, 6)):
        given = [torch.randn(size) for size in sizes]
        close(compiled(padded)(*given), padded(*given))


def test_parts_of_symbolic_sizes() -> None:
    run = torch.compile(lambda x: x.chunk(3), backend="opweld", options={"strict": True}, dynamic=True)
    for count in (6, 12, 11):
        x = torch.randn(count)
        close(run(x), x.chunk(3))


def test_views_of_inputs_lie_where_they_do_in_eager_mode() -> None:
    def views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y.mul_(2)
        return x[3 : x.shape[0]], x[1:].t(), x.sum(0), y[2:]

    run = torch.compile(views, backend="opweld", options={"strict": True}, dynamic=True)
    for count in (6, 9):
        x, y = torch.randn(count, 4), torch.randn(count)
        right = views(x, y.clone())
        found = run(x, y)
        close(found, right)
        assert found[0].data_ptr() == x[3:].data_ptr()
        assert found[3].data_ptr() == y[2:].data_ptr()
        assert [own.stride() for own in found] == [own.stride() for own in right]


def test_outputs_that_share_memory_do_so() -> None:
    def made(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        part = y[0:1].squeeze()
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        y[0] = 7
        return part

    x = torch.randn(3)
    close(compiled(made)(x), torch.tensor(7.0))


def test_outputs_that_share_what_is_no_output_share_memory() -> None:
    def made(x: torch.Tensor) -> torch.Tensor:
        whole = x * 2
        part, first = whole[0:2], whole[0:1].squeeze()
        part[0] = 1
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        part[0] = 7
        return first

    close(compiled(made)(torch.randn(3)), torch.tensor(7.0))


def test_what_a_program_asserts_of_its_data_is_checked() -> None:
    def four(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.size(0) == 4)
        return found + 3

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):  # pyright: ignore[reportPrivateUsage]
        run = compiled(four)
        x = torch.tensor([0, 1, 3, 4, 2, 0])
        close(run(x), four(x))
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            run(x.clamp_max(0))


def test_assertions_with_and_without_a_message_are_checked() -> None:
    def positive(x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_async((x > 0).all())
        torch.ops.aten._assert_async.default((x != 3).all())
        torch.ops.aten._assert_async((x < 5).all(), "less than five")
        return x * 2

    run = compiled(positive)
    close(run(torch.ones(3)), torch.full((3,), 2.0))
    for number, message in ((-1.0, "single nonzero value"), (3.0, "single nonzero value"), (7.0, "less than five")):
        with pytest.raises(RuntimeError, match=message):
            run(torch.full((3,), number))


@pytest.mark.filterwarnings("ignore:opweld leaves")
def test_constants_that_are_no_names_in_python() -> None:
    def made(x: torch.Tensor) -> torch.Tensor:
        return torch.log1p(torch.fill(x, complex(math.nan, math.inf)) * x)

    x = torch.randn(3, dtype=torch.complex64)
    found, right = torch.compile(made, backend="opweld")(x), made(x)
    assert torch.equal(found.isnan(), right.isnan())


@pytest.mark.filterwarnings("ignore:opweld leaves")
def test_numbers_that_eager_mode_makes() -> None:
    def parts(sizes: torch.Tensor, x: torch.Tensor) -> Any:
        first, second = sizes.tolist()
        return torch.ops.aten.split_with_sizes.default(torch.linalg.inv_ex(x)[0][0], [first, second])

    with torch._dynamo.config.patch(capture_scalar_outputs=True):  # pyright: ignore[reportPrivateUsage]
        x = torch.randn(5, 5) + 5 * torch.eye(5)
        close(torch.compile(parts, backend="opweld")(torch.tensor([2, 3]), x), parts(torch.tensor([2, 3]), x))


def test_strides_over_memory_with_holes_stay_in_eager_mode() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(torch.as_strided((x * 2)[:, :5], (3, 4), (8, 2), 1), (2, 2), (16, 4)) + 1

    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match="as_strided"):
        close(torch.compile(twice, backend="opweld")(x), twice(x))


def test_strides_over_symbolic_sizes_are_compiled() -> None:
    def overlapping(x: torch.Tensor) -> torch.Tensor:
        blocks = (x * 2).unflatten(1, (-1, 4)).contiguous()
        (batch, count, *rest), (first, step, *steps) = blocks.shape, blocks.stride()
        return blocks.as_strided((batch, 2 * count - 1, *rest), (first, step // 2, *steps)) + 1

    run = torch.compile(overlapping, backend="opweld", dynamic=True, options={"strict": True})
    for shape in ((2, 8, 3), (3, 20, 5)):
        x = torch.randn(shape)
        close(run(x), overlapping(x))


def test_strides_over_an_input_of_symbolic_sizes_are_a_view_of_it() -> None:
    def overlapping(x: torch.Tensor) -> torch.Tensor:
        (batch, count, *rest), (first, step, *steps) = x.shape, x.stride()
        return x.as_strided((batch, 2 * count - 1, *rest), (first, step // 2, *steps))

    run = torch.compile(overlapping, backend="opweld", dynamic=True, options={"strict": True})
    for batch, count, width in ((2, 3, 5), (3, 4, 7)):
        for x in (
            torch.randn(batch, count, 4, width),
            torch.randn(4, batch, count, width).permute(1, 2, 0, 3),
            torch.randn(batch + 1, count, 4, width)[1:],
        ):
            found, right = run(x), overlapping(x)
            close(found, right)
            assert found.stride() == right.stride() and found.data_ptr() == right.data_ptr()


def test_what_is_written_in_place_may_be_returned() -> None:
    own, right, y = torch.ones(2, 3, 4).mT, torch.ones(2, 3, 4).mT, torch.randn(2, 4, 1)
    found = compiled(lambda x, y: x.add_(y))(own, y)
    assert found.data_ptr() == own.data_ptr()
    close(found, right.add_(y))
    close(own, right)


def test_what_is_returned_may_be_an_input_a_number_or_nothing() -> None:
    def odd(x: torch.Tensor) -> tuple[Any, ...]:
        return x, 3, None, x + 1, x.shape[0]

    x = torch.randn(4)
    found, right = compiled(odd)(x), odd(x)
    assert found[1:3] == right[1:3] and found[4] == right[4]
    close(found[0], right[0])
    close(found[3], right[3])


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 2, lambda x: (x + 1).transpose(1, 2), lambda x: x.mean(1).mT],
    ids=["channels last", "transposed", "a matrix"],
)
def test_strides_are_those_of_eager_mode(function: Callable[..., Any]) -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    found, right = compiled(function)(x), function(x)
    assert found.stride() == right.stride()
    close(found, right)


def test_strides_with_holes_are_those_of_eager_mode() -> None:
    def spread(x: torch.Tensor) -> torch.Tensor:
        found = torch.empty_strided((4, 3), (8, 2))
        found[:] = x + x
        return found

    x = torch.randn(4, 3)
    found = compiled(spread)(x)
    assert found.stride() == (8, 2)
    close(found, x + x)


def test_bfloat16_goes_in_and_comes_out() -> None:
    x = torch.randn(4, 8).bfloat16()
    found = compiled(lambda x: torch.relu(x) * 2)(x)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, torch.relu(x) * 2)


@pytest.mark.filterwarnings("ignore:opweld leaves")
@pytest.mark.parametrize("pool", [torch.nn.AdaptiveAvgPool2d(5), torch.nn.AdaptiveMaxPool2d(5)])
def test_adaptive_pools_of_integers_raise_what_eager_mode_raises(pool: torch.nn.Module) -> None:
    run = torch.compile(lambda x: pool(x.argmax(1)), backend="opweld")
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"), torch.no_grad():
        run(torch.zeros(1, 2, 5, 5))


def test_modes_are_those_of_inductor() -> None:
    with pytest.raises(Exception, match="mode='max-autotune' is one of Inductor; opweld has options"):
        torch.compile(torch.relu, backend="opweld", mode="max-autotune")(torch.ones(2))


def test_nodes_that_opweld_does_not_have_stay_in_eager_mode_and_are_named() -> None:
    def solved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv_ex(a.relu() + torch.eye(3))[0] @ b.sigmoid()

    a, b = torch.rand(3, 3), torch.randn(3, 2)
    with pytest.warns(UserWarning, match=r"leaves 1 nodes in eager mode \(aten.linalg_inv_ex.default\)"):
        close(torch.compile(solved, backend="opweld")(a, b), solved(a, b))
    torch.compiler.reset()
    with pytest.raises(Exception, match="linalg_inv_ex") as caught:
        compiled(solved)(a, b)
    causes = [caught.value, caught.value.__cause__, getattr(caught.value, "inner_exception", None)]
    assert any(isinstance(cause, UnsupportedError) for cause in causes)


def test_training_stays_in_eager_mode_and_says_so() -> None:
    module = torch.nn.Linear(4, 2)
    with torch.enable_grad(), pytest.warns(UserWarning, match="opweld compiles for inference"):
        torch.compile(module, backend="opweld")(torch.randn(3, 4)).sum().backward()
    assert module.weight.grad is not None


def test_nothing_is_said_where_all_is_compiled() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        close(torch.compile(lambda x: x.softmax(-1), backend="opweld")(torch.ones(2, 3)), torch.full((2, 3), 1 / 3))


def test_explain_says_where_a_graph_breaks_and_what_stays_in_eager_mode() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        return torch.linalg.inv_ex(y + torch.eye(3))[0].softmax(-1)

    told = opweld.torch.explain(broken, torch.rand(3, 3))
    assert [sorted(graph.eager) for graph in told.graphs] == [[], ["linalg_inv_ex"]]
    assert len(told.breaks) == 1
    assert "test_backend.py" in told.breaks[0]
    text = str(told)
    assert "2 graphs, 1 break between them" in text
    assert "aten.linalg_inv_ex.default" in text


def test_explain_reads_tensors_that_a_function_holds() -> None:
    told = opweld.torch.explain(lambda x: x * torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))
    assert [graph.eager for graph in told.graphs] == [{}]


def test_complex_numbers_of_which_there_are_none() -> None:
    for shape in ((0,), (3, 0), (0, 2)):
        z = torch.randn(shape, dtype=torch.complex64)
        close(compiled(lambda z: z * 2)(z), z)


def test_a_size_that_guards_settle_is_that_number() -> None:
    def attended(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        # The third axis is one batch by another: PyTorch has found out that it is 1 where the mask is broadcast.
        heads = mask.repeat_interleave(2, dim=0).view(q.shape[0], 2, -1, mask.shape[-1])
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=heads)

    run = compiled(attended)
    for batch in (2, 3, 5):
        q, k, mask = torch.randn(batch, 2, 48, 8), torch.randn(batch, 2, 5, 8), torch.randn(batch, 1, 5)
        close(run(q, k, mask), attended(q, k, mask))
