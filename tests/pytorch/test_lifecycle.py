"""What becomes of a compiled module when it is copied, pickled, loaded, forked, or called from many places."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.last = torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.nn.functional.gelu(self.first(x)))


X = torch.linspace(-2, 2, 64 * 16).reshape(64, 16)


pytestmark = pytest.mark.usefixtures("inference")


def compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function, backend="opweld", options={"strict": True})


def close(found: Any, right: Any) -> None:
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_a_copy_has_parameters_of_its_own() -> None:
    net = Net().eval()
    run = compiled(net)
    close(run(X), net(X))
    other = copy.deepcopy(run)
    for parameter in other.parameters():
        parameter.mul_(2)
    close(other(X), other._orig_mod(X))
    close(run(X), net(X))


def test_loaded_parameters_are_those_of_the_next_call() -> None:
    net, other = Net().eval(), Net().eval()
    run = compiled(net)
    close(run(X), net(X))
    net.load_state_dict(other.state_dict())
    close(run(X), other(X))


def test_hooks_are_part_of_what_is_compiled() -> None:
    net = Net().eval()

    def more(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output + 1

    net.first.register_forward_hook(more)
    close(compiled(net)(X), net(X))


def test_a_compiled_module_pickles() -> None:
    net = Net().eval()
    run = compiled(net)
    run(X)
    close(pickle.loads(pickle.dumps(run))(X), net(X))


def test_inference_mode() -> None:
    net = Net().eval()
    run = compiled(net)
    with torch.inference_mode():
        close(run(X), net(X))


def test_threads_call_it_at_once() -> None:
    net = Net().eval()
    run, right = compiled(net), net(X)
    run(X)

    def call(_: int) -> torch.Tensor:
        with torch.no_grad():
            return run(X)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(call, range(40)):
            close(found, right)


def test_the_child_of_a_fork_runs_it() -> None:
    net = Net().eval()
    run, right = compiled(net), net(X)
    run(X)
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if torch.allclose(run(X), right, rtol=1e-4, atol=1e-5) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


class Rows(Dataset[torch.Tensor]):
    """Rows that a compiled function makes, in whatever process."""

    def __init__(self, run: Callable[..., torch.Tensor]) -> None:
        self.run = run

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> torch.Tensor:
        with torch.no_grad():
            return self.run(X + place)


def test_workers_of_a_data_loader_run_it() -> None:
    net = Net().eval()
    run = compiled(net)
    run(X)
    right = torch.stack([net(X + place) for place in range(4)])
    loader = DataLoader(Rows(run), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=120)
    close(torch.cat(list(loader)), right)


def test_inputs_may_share_memory_and_be_written() -> None:
    def shifted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    memory, other = torch.arange(6.0), torch.arange(6.0)
    close(compiled(shifted)(memory[:4], memory[2:]), shifted(other[:4], other[2:]))
    close(memory, other)
