"""What `aot_compile` saves answers in another process, of other parameters too, and needs no compiler for its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from opweld.errors import ArtifactError
from opweld.torch import saved

HERE = Path(__file__).parents[2]


class Net(torch.nn.Module):
    """Parameters, a buffer, a complex buffer, an output that is a view of an input."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.last = torch.nn.Linear(32, 8)
        self.register_buffer("turns", torch.polar(torch.ones(8), torch.arange(8.0)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.last(self.norm(torch.nn.functional.gelu(self.first(x))))
        return y, torch.view_as_real(y * self.turns), x[:, 2:6]


X = torch.linspace(-2, 2, 24 * 16).reshape(24, 16)


def run(net: torch.nn.Module, x: torch.Tensor) -> object:
    """What is compiled: PyTorch saves functions, and takes modules as arguments."""
    return net(x)


def write(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Writes to its argument."""
    x.add_(1)
    return net(x)[0]


def in_part(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Has a node in its midst that opweld does not compile."""
    return torch.linalg.eigvals(net(x)[0][:8].abs() + torch.eye(8)).real.sort().values + net(x)[0].sum()


LOADS = """
import sys, torch
from pathlib import Path
from tests.pytorch.test_saved import X, net
torch._dynamo.config.disable = True  # nothing is traced
folder, answers = Path(sys.argv[1]), {}
with torch.no_grad():
    for path in folder.glob("*.function"):
        with path.open("rb") as file:
            function = torch.compiler.load_compiled_function(file)
        x = X.clone()
        answers[path.stem] = function(net(int(path.stem.rpartition("-")[2])), x), x
torch.save(answers, folder / "answers")
"""


pytestmark = pytest.mark.usefixtures("inference")


def net(seed: int) -> Net:
    """A network with parameters of its own."""
    torch.manual_seed(seed)
    return Net().eval()


def compiled(function: Callable[..., Any], owner: Net, x: torch.Tensor) -> Any:
    callee: Any = torch.compile(function, backend="opweld", fullgraph=True)
    return callee.aot_compile(((owner, x), {}))


def loaded(path: Path) -> Any:
    with path.open("rb") as file:
        return torch.compiler.load_compiled_function(file)


def close(found: object, right: object) -> None:
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:opweld leaves")
def test_another_process_answers_without_tracing_and_without_a_compiler(tmp_path: Path) -> None:
    for function in (run, write, in_part):
        compiled(function, net(0), X.clone()).save_compiled_function(str(tmp_path / f"{function.__name__}-0.function"))
    owner = net(0)
    changed = compiled(run, owner, X)
    owner.load_state_dict(net(1).state_dict())
    changed.save_compiled_function(str(tmp_path / "changed-1.function"))
    loaded(tmp_path / "run-0.function").save_compiled_function(str(tmp_path / "again-0.function"))
    environment = {**os.environ, "OPWELD_CACHE": str(tmp_path / "cache"), "OPWELD_CC": "false"}
    environment["PYTHONPATH"] = f"{HERE}/src{os.pathsep}{HERE}"
    subprocess.run([sys.executable, "-c", LOADS, str(tmp_path)], check=True, cwd=HERE, env=environment, timeout=900)
    answers = torch.load(tmp_path / "answers")
    assert len(answers) == 5
    close(answers["run-0"][0], net(0)(X))
    close(answers["again-0"][0], net(0)(X))
    close(answers["changed-1"][0], net(1)(X))
    close(answers["in_part-0"][0], in_part(net(0), X))
    found, x = answers["write-0"]
    close(found, net(0)(X + 1)[0])
    close(x, X + 1)


def test_other_parameters_are_compiled_again(tmp_path: Path) -> None:
    compiled(run, net(0), X).save_compiled_function(str(tmp_path / "run"))
    function = loaded(tmp_path / "run")
    close(function(net(1), X), net(1)(X))
    close(function(net(0), X), net(0)(X))


def test_sizes_that_change(tmp_path: Path) -> None:
    x = X.clone()
    torch._dynamo.mark_dynamic(x, 0)
    compiled(run, net(0), x).save_compiled_function(str(tmp_path / "run"))
    function = loaded(tmp_path / "run")
    for rows in (3, 24, 65):
        y = torch.linspace(-1, 1, rows * 16).reshape(rows, 16)
        close(function(net(0), y), net(0)(y))


def test_what_another_version_saved_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(run, net(0), X)
    with monkeypatch.context() as other:
        other.setattr(saved, "__version__", "0.0.7")
        made.save_compiled_function(str(tmp_path / "run"))
    with pytest.raises(ArtifactError, match=r"saved by opweld 0\.0\.7, this is "):
        loaded(tmp_path / "run")
