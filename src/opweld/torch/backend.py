"""The backend of `torch.compile`: graphs of AOTAutograd, compiled for inference."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _python_dispatch as dispatch

from opweld.errors import ModelError, OptionError, UnsupportedError


def opweld(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Any:
    """Compiles what Dynamo traced; see docs/guides/pytorch.md.

    Args:
        options: `strict`: raise UnsupportedError where something would stay in eager mode; and those of
            `opweld.compile`, see docs/options.md.
        mode: those of `torch.compile` are presets of Inductor; any raises OptionError.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    from opweld.frontend.torch.assertions import messages_given
    from opweld.frontend.torch.decompositions import decompositions

    if mode is not None:
        raise OptionError(f"mode={mode!r} is one of Inductor; opweld has options={{...}}, see docs/options.md")
    given = dict(options or {})
    strict = bool(given.pop("strict", False))
    frozen = frozen_inputs(gm, example_inputs)
    sources = _sources(gm)

    def inference(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return _compiled(graph, frozen, given, strict, sources)

    def training(graph: fx.GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
        if strict:
            raise UnsupportedError("the graph is traced for training; call the module under torch.no_grad()")
        warnings.warn(
            "opweld compiles for inference: this graph needs gradients and stays in eager mode; "
            "call the module under torch.no_grad() or torch.inference_mode()",
            stacklevel=2,
        )
        return boxed_nop(graph, list(fakes))

    made = aot_autograd(
        fw_compiler=training,
        bw_compiler=boxed_nop,
        inference_compiler=inference,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )
    with messages_given(gm):
        return made(gm, example_inputs)


def frozen_inputs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    """The inputs that are parameters and buffers of modules, by position: Dynamo hands them in at every call.

    Parameters of a class that wraps others, as quantised ones, arrive as those: AOTAutograd takes them apart."""
    holes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    found: dict[int, torch.Tensor] = {}
    position = 0
    for node, example in zip(holes, example_inputs, strict=True):
        told: Mapping[str, Any] = node.meta.get("tensor_dict") or {}
        stored = isinstance(example, torch.nn.Parameter) or "_dynamo_static_input_type" in told
        parts = _wrapped(example)
        if stored and isinstance(example, torch.Tensor):
            found.update(enumerate(parts, position))
        elif len(parts) != 1 or parts[0] is not example:
            return {}  # sizes of an input that wraps others may be arguments of their own
        position += len(parts)
    return found


def _sources(gm: fx.GraphModule) -> dict[int, str]:
    """What inputs are called in the program, by position, as far as Dynamo tells: `L['x']` is x."""
    found: dict[int, str] = {}
    holes = (node for node in gm.graph.nodes if node.op == "placeholder")
    for position, node in enumerate(holes):
        source = getattr(node.meta.get("grapharg"), "source", None)
        if source is not None:
            name: Any = source.name
            text = str(name() if callable(name) else name)
            found[position] = re.sub(r"^[LG]\['(\w+)'\]", r"\1", text)
    return found


def _wrapped(value: Any) -> list[Any]:
    """The tensors that one wraps, in AOTAutograd's order; anything else alone."""
    if not dispatch.is_traceable_wrapper_subclass(value):
        return [value]
    names, _ = value.__tensor_flatten__()
    return [part for name in names for part in _wrapped(getattr(value, name))]


def _compiled(
    graph: fx.GraphModule,
    frozen: Mapping[int, torch.Tensor],
    options: Mapping[str, Any],
    strict: bool,
    sources: Mapping[int, str],
) -> Callable[..., Any]:
    """A graph as AOTAutograd calls it: wholly opweld's, or but for nodes that stay in eager mode."""
    from torch._dynamo.backends.debugging import boxed_nop

    from opweld.frontend.torch.graphs import refused_nodes
    from opweld.torch.callable import Compiled
    from opweld.torch.parts import in_parts

    with dispatch._disable_current_modes():  # pyright: ignore[reportPrivateUsage] - parameters are read: tracing is over
        try:
            try:
                return Compiled(graph, frozen, options, sources)
            except UnsupportedError:
                refused = {} if strict else refused_nodes(graph)  # which nodes, where it is not the graph as a whole
                if not refused:
                    raise
                return in_parts(graph, refused, frozen, options)
        except (ModelError, UnsupportedError) as error:
            if strict:
                raise
            count = sum(node.op == "call_function" for node in graph.graph.nodes)
            warnings.warn(f"opweld leaves a graph of {count} nodes in eager mode: {error}", stacklevel=2)
            return boxed_nop(graph, [])
