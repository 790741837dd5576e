"""Which device a graph of PyTorch computes on."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import elements

KINDS = ("cpu", "cuda")
"""Devices that graphs are compiled for."""


def device_of(graph: fx.Graph, sources: Mapping[int, str] | None = None) -> torch.device:
    """The device of a graph's inputs and parameters; of its outputs where it has none; the CPU where it has neither.

    Numbers, tensors of the CPU without axes, may be beside tensors of a GPU, as PyTorch has it.

    Args:
        sources: what inputs are called in the program, by position, where their nodes have other names.

    Raises UnsupportedError naming two tensors on different devices, or one on a device of another kind."""
    holes = [node for node in graph.nodes if node.op == "placeholder"]
    fed = {_name(node, i, sources or {}): node.meta.get("val") for i, node in enumerate(holes)}
    tensors = {name: value for name, value in fed.items() if isinstance(value, torch.Tensor)}
    (end,) = (node for node in graph.nodes if node.op == "output")
    made = [node.meta.get("val") for node in elements(end.args[0]) if isinstance(node, fx.Node)]
    if not tensors:
        tensors = {f"output {i}": value for i, value in enumerate(made) if isinstance(value, torch.Tensor)}
    for name, value in tensors.items():
        if value.device.type not in KINDS:
            raise UnsupportedError(
                f"{name} is on the device {value.device}: graphs are compiled for {' and '.join(KINDS)}"
            )
    devices: dict[torch.device, str] = {}
    for name, value in tensors.items():
        if value.dim() or value.device.type != "cpu":
            devices.setdefault(value.device, name)
    if len(devices) > 1:
        (first, name), (second, other) = list(devices.items())[:2]
        raise UnsupportedError(
            f"a graph is compiled for one device, but {name} is on {first} and {other} on {second}; move one of them"
        )
    return next(iter(devices), torch.device("cpu"))


def _name(node: fx.Node, position: int, sources: Mapping[int, str]) -> str:
    """What an input is called in the program: AOTAutograd tells which of its caller's it is."""
    own = getattr(node.meta.get("desc"), "idx", position)
    return sources.get(own, node.name)
