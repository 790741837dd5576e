"""The families of timm through both of PyTorch's doors: python -m tests.pytorch.families [FAMILY...]

Of each family its smallest model, with random weights, on a batch of two pictures, through `torch.compile` and through
`opweld.compile`: *right* where the answer is as close to eager mode as float32 lets it be, *in part* where nodes stayed
in eager mode. timm is not among what the tests install: pip install --no-deps timm torchvision.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import opweld
from tests.pytorch.opinfo import left_in_eager, said

TOLERANCE = 1e-3
"""Of the largest element. Networks with random weights amplify rounding: by float64, eager mode itself is off by 2e-4
in the worst of them (gemma4_vit)."""


def timm() -> Any:
    """The package. A torchvision that was built for another torch lacks operators, which timm does not need."""
    register = torch.library.register_fake

    def registered(operator: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(operator, str) and operator.startswith("torchvision::"):
            return lambda function: function  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
        return register(operator, *arguments, **keywords)

    torch.library.register_fake = registered
    try:
        import timm as found  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise SystemExit(f"{error}: pip install --no-deps timm torchvision") from None
    finally:
        torch.library.register_fake = register
    return found


def families(package: Any) -> dict[str, list[str]]:
    """The names of models, by the module that they come from."""
    found: dict[str, list[str]] = {}
    for name in package.list_models():
        module = str(package.models.model_entrypoint(name).__module__)
        found.setdefault(module.rpartition(".")[2], []).append(name)
    return found


def smallest(package: Any, names: Sequence[str]) -> tuple[str, tuple[int, ...]] | None:
    """The model with the least parameters times pixels, and the shape of its picture."""
    sized: list[tuple[int, str, tuple[int, ...]]] = []
    for name in names[:40]:
        try:
            with torch.device("meta"):
                model = package.create_model(name, pretrained=False, num_classes=10)
        except Exception:  # noqa: BLE001 - a model that needs what is not installed
            continue
        shape = tuple((getattr(model, "pretrained_cfg", None) or {}).get("input_size", (3, 224, 224)))
        sized.append((sum(p.numel() for p in model.parameters()) * shape[1] * shape[2], name, shape))
    return min(sized)[1:] if sized else None


def by_torch(module: torch.nn.Module, x: torch.Tensor) -> Any:
    """Through `torch.compile`."""
    torch.compiler.reset()
    return torch.compile(module, backend="opweld")(x)


def by_opweld(module: torch.nn.Module, x: torch.Tensor) -> Any:
    """Through `opweld.compile`."""
    model = opweld.compile(module, (x,))
    return [torch.from_numpy(array) for array in model.run({model.inputs[0].name: x.numpy()}).values()]


DOORS: dict[str, Callable[[torch.nn.Module, torch.Tensor], Any]] = {
    "torch.compile": by_torch,
    "opweld.compile": by_opweld,
}


def judged(module: torch.nn.Module, x: torch.Tensor) -> Iterator[tuple[str, str, str]]:
    """(door, verdict, what there is to say) of each door."""
    with torch.no_grad():
        right = [own for own in pytree.tree_leaves(module(x)) if isinstance(own, torch.Tensor)]
        for door, run in DOORS.items():
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    found = list(pytree.tree_leaves(run(module, x)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
                yield door, "failed", said(error)
                continue
            told = left_in_eager(caught)
            worst = max((_error(*pair) for pair in zip(found, right, strict=True)), default=0.0)
            verdict = "wrong" if not worst <= TOLERANCE else "in part" if told else "right"
            yield door, verdict, told[0] if told else f"{worst:.1e}"


def _error(found: torch.Tensor, right: torch.Tensor) -> float:
    if found.shape != right.shape:
        return float("inf")
    return float((found.double() - right.double()).abs().max() / right.double().abs().max().clamp_min(1e-30))


def main() -> int:
    """Prints a line for each family and door, and counts; the status is 1 where anything is wrong or failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.pytorch.families", description=__doc__)
    parser.add_argument("families", nargs="*", help="modules of timm.models; all where none is named")
    given = parser.parse_args()
    package = timm()
    counts: collections.Counter[str] = collections.Counter()
    for family, names in families(package).items():
        if given.families and family not in given.families:
            continue
        chosen = smallest(package, names)
        if chosen is None:
            print(f"{family:24} cannot be made here", flush=True)
            continue
        name, shape = chosen
        torch.manual_seed(0)
        module = package.create_model(name, pretrained=False, num_classes=10).eval()
        for door, verdict, what in judged(module, torch.randn(2, *shape)):
            counts[verdict] += 1
            print(f"{family:24} {name:32} {door:16} {verdict:8} {what}", flush=True)
    print(dict(counts))
    return 1 if counts["wrong"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
