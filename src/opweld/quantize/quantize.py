"""`opweld.quantize`: samples in, ranges measured, layers chosen, a quantised model out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from numpy.typing import NDArray

from opweld.compile import compile as compile_model
from opweld.errors import OptionError, UnsupportedError
from opweld.quantize.assign import Assignment, assign, ranges_by, unranged
from opweld.quantize.calibrate import Observed, Progress, observe
from opweld.quantize.correction import Precision, corrected_bias, unusable, weights_of
from opweld.quantize.data import Data, Sample, declared_inputs, random_samples, samples_of
from opweld.quantize.error import error_of
from opweld.quantize.friendliness import friendliness
from opweld.quantize.graph import Graph, Layer
from opweld.quantize.placement import MOVING, POINTWISE, Placement, needed, placed
from opweld.quantize.prepare import prepared
from opweld.quantize.ranges import METHODS, Method
from opweld.quantize.report import NodeReport, Quantized
from opweld.quantize.scales import Affine, Codes, Weights
from opweld.quantize.simulate import Simulation
from opweld.quantize.writing import Writer

if TYPE_CHECKING:
    from opweld.compile import OnnxModel

Array = NDArray[Any]
Ranges = Literal["best", "minmax", "percentile", "entropy", "mse"]


def quantize(
    model: OnnxModel,
    data: Data | None = None,
    *,
    precision: Precision = "int8",
    ranges: Ranges = "best",
    activations: Codes = "uint8",
    max_error: float | None = None,
    keep: Iterable[str] = (),
    random: int | None = None,
    progress: Progress | None = None,
) -> Quantized:
    """Quantises a trained model after training: standard ONNX with Q/DQ pairs, which any runtime loads.

    Args:
        model: a path, bytes or a ModelProto, left untouched.
        data: a folder of .npy or .npz files, one a sample, or an iterable of dicts of arrays by input. It is gone
            through once.
        precision: `int8`: weights by channel, activations by tensor, biases as int32. `int8-weights`, `int4-weights`:
            stored weights alone; these need no data, which then only measure the error.
        ranges: of activations: `minmax`, `percentile` (99.99), `entropy`, `mse`, or `best`, which measures all four.
        activations: `uint8` or `int8`, with a zero point in either case.
        max_error: what the outputs may lose, as the root of the squared differences' sum over that of the squared
            answers' sum; the nodes that lose most stay in float until it is kept.
        keep: names of nodes that stay in float.
        random: so many samples of random numbers instead of data. They are not what the model was trained for.
        progress: called with (what is being done, steps done, steps in all).

    Raises OptionError for a wrong option, InputError naming sample and input for data that the model does not take, for
    none, and for NaN and infinity; UnsupportedError where nothing can be quantised; what `compile` raises.
    """
    _check(precision, ranges, activations, max_error, data, random)
    graph = prepared(model, precision)
    inputs = declared_inputs(graph.model.graph)
    found, notes, refused = _layers(graph, tuple(keep))
    samples = _samples(data, random, inputs)
    if random is not None:
        notes.append("the samples are random numbers, as was asked: ranges and errors are not those of real data")
    if samples is None:
        if max_error is not None:
            raise OptionError("a budget of error needs data to measure it with: give a folder of samples")
        weights = {layer.node: weights_of(graph, layer, precision) for layer in found}
        made = Writer(graph, activations).write(found, weights, {}, None, {})
        plan = _Plan(found, None, None, {}, False, refused)
        return _report(model, graph, made, precision, plan, None, None, notes)
    observed, layers = _observed(graph, found, precision, samples, notes, refused, progress)
    methods = METHODS if ranges == "best" else (ranges,)
    integer = precision == "int8"
    placement = placed(graph, layers) if integer else None
    by_method: dict[Method, Mapping[str, Affine]] = {"minmax": {}}
    if placement is not None:
        by_method = {method: ranges_by(observed, placement, method, activations) for method in methods}
    weights = {layer.node: weights_of(graph, layer, precision) for layer in layers}
    biases = {layer.node: corrected_bias(graph, layer, weights[layer.node], observed) for layer in layers}
    corrected = {node: bias for node, bias in biases.items() if bias is not None}
    simulation = Simulation(graph, layers, weights, corrected, placement, observed, activations, progress)
    assignment = assign(simulation, layers, by_method, bool(corrected), max_error, progress)
    if not assignment.corrected:
        corrected = {}
    return _written(
        model, graph, layers, precision, activations, placement, by_method[assignment.method], weights, corrected,
        assignment, observed, max_error, notes, refused, progress,
    )  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """What is written: the layers that are integers, their pairs, and why others are not."""

    layers: list[Layer]
    placement: Placement | None
    ranges: Method | None
    alone: Mapping[int, float]
    corrected: bool
    refused: Mapping[int, str]


def _check(
    precision: str, ranges: str, activations: str, max_error: float | None, data: object, random: int | None
) -> None:
    for name, value, known in (
        ("precision", precision, get_args(Precision)),
        ("ranges", ranges, get_args(Ranges)),
        ("activations", activations, get_args(Codes)),
    ):
        if value not in known:
            raise OptionError(f"{name} is {value!r}, expected {', '.join(known)}")
    if max_error is not None and not 0 <= max_error < float("inf"):
        raise OptionError(f"max_error is {max_error}, expected a part of the outputs' size, such as 0.01")
    if data is not None and random is not None:
        raise OptionError("data and random samples are both given: choose one")
    if precision == "int8" and data is None and random is None:
        raise OptionError("int8 needs data for its ranges: give samples, or ask for random ones")


def _samples(data: Data | None, random: int | None, inputs: Mapping[str, Any]) -> Iterable[Sample] | None:
    if random is not None:
        return random_samples(random, inputs)
    return None if data is None else samples_of(data, inputs)


def _layers(graph: Graph, keep: tuple[str, ...]) -> tuple[list[Layer], list[str], dict[int, str]]:
    layers = graph.layers()
    names = {graph.label(i) for i in range(len(graph.nodes))}
    for name in keep:
        if name not in names:
            raise OptionError(
                f"keep: there is no node {name!r} in the model once it is optimised: see the table's names"
            )
    refused = unusable(graph, layers) | {
        layer.node: "stays in float as asked" for layer in layers if layer.name in keep
    }
    notes = [f"node {graph.label(node)!r} stays in float: {why}" for node, why in refused.items() if "holds NaN" in why]
    return _left([layer for layer in layers if layer.node not in refused]), notes, refused


def _left(layers: list[Layer]) -> list[Layer]:
    if not layers:
        raise UnsupportedError("nothing can be quantised: no Conv, ConvTranspose, Gemm or MatMul has float32 weights")
    return layers


def _observed(
    graph: Graph, found: list[Layer], precision: Precision, samples: Iterable[Sample], notes: list[str],
    refused: dict[int, str], progress: Progress | None,
) -> tuple[Observed, list[Layer]]:  # fmt: skip
    """What the samples showed, and the layers whose values have a range."""
    if precision != "int8":
        return observe(graph, dict.fromkeys(layer.data for layer in found), found, samples, progress), found
    placement = placed(graph, found)
    observed = observe(graph, placement.values, found, samples, progress)
    zero = unranged(found, ranges_by(observed, placement, "minmax", "uint8"))
    for layer in zero:
        where = graph.maker(layer.data)
        refused[layer.node] = "what it reads is 0 in all samples"
        notes.append(f"node {layer.name!r} stays in float: {where} is 0 in all samples; give data in which it is not")
    return observed, _left([layer for layer in found if layer not in zero])


def _written(
    model: OnnxModel, graph: Graph, layers: list[Layer], precision: Precision, activations: Codes,
    placement: Placement | None, ranges: Mapping[str, Affine], weights: Mapping[int, Weights],
    biases: Mapping[int, Array], assignment: Assignment, observed: Observed, max_error: float | None,
    notes: list[str], refused: dict[int, str], progress: Progress | None,
) -> Quantized:  # fmt: skip
    """The model, its error measured as it is written: where that is over the budget, with one layer less."""
    order = sorted((layer.node for layer in layers), key=lambda node: -assignment.alone[node])
    kept = list(assignment.kept)
    while True:
        chosen = [layer for layer in layers if layer.node not in kept]
        made = Writer(graph, activations).write(chosen, weights, biases, placement, ranges)
        compiled = compile_model(made, progress=progress)
        error = error_of([compiled.run(sample) for sample in observed.samples], observed.answers)
        if max_error is None or error <= max_error or not chosen:
            break
        kept.append(next(node for node in order if node not in kept))
    for node in kept:
        refused[node] = f"alone, it moves the outputs by {assignment.alone[node]:.2g}: stays in float for the budget"
    method = None if placement is None else assignment.method
    plan = _Plan(chosen, placement, method, assignment.alone, bool(biases), refused)
    return _report(model, graph, made, precision, plan, observed, error, notes)


def _report(
    model: OnnxModel, graph: Graph, made: Any, precision: Precision, plan: _Plan, observed: Observed | None,
    error: float | None, notes: list[str],
) -> Quantized:  # fmt: skip
    layers = {layer.node for layer in plan.layers}
    codes = needed(graph, plan.layers) if plan.placement is not None else {}
    nodes: list[NodeReport] = []
    for i, node in enumerate(graph.nodes):
        alone = plan.alone.get(i)
        told = ("high", "stored weights alone") if i in layers and alone is None else friendliness(graph, i, alone)
        if told is None:
            continue
        level, reason = told
        if i in plan.refused:
            level, reason = "low", plan.refused[i]
        handed_on = node.op_type in MOVING | POINTWISE and any(name in codes for name in node.output)
        written = precision if i in layers else "int8" if handed_on else "float"
        nodes.append(NodeReport(graph.label(i), node.op_type, written, level, reason, alone))
    return Quantized(
        made, tuple(nodes), precision, plan.ranges, plan.corrected, error,
        0 if observed is None else observed.count, 0 if observed is None else observed.nbytes,
        _bytes(model, graph), made.ByteSize(), tuple(notes),
    )  # fmt: skip


def _bytes(model: OnnxModel, graph: Graph) -> int:
    if isinstance(model, str | os.PathLike):
        return Path(model).stat().st_size
    return len(model) if isinstance(model, bytes) else graph.model.ByteSize()
