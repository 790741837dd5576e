"""`opweld.quantize`: samples in, ranges measured, layers chosen, a quantised model out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx
from numpy.typing import NDArray

from opweld.calibration.budget import Metric, loss_by, within
from opweld.calibration.data import Data, Sample, declared_inputs, random_samples, samples_of
from opweld.calibration.error import error_of
from opweld.calibration.graph import Graph, Layer, check_nodes, not_finite
from opweld.calibration.prepare import prepared, size_of
from opweld.calibration.progress import Progress, tell
from opweld.calibration.seconds import seconds_of
from opweld.calibration.shaped import Shaped, fixed
from opweld.calibration.windows import moments_read
from opweld.compile import compile as compile_model
from opweld.errors import InputError, UnsupportedError
from opweld.frontend.onnx import read_model
from opweld.frontends.onnx import onnx_model
from opweld.quantize.assign import Budget, Choice, chosen, errors_alone, ranges_by, steps_back, unranged
from opweld.quantize.calibrate import Observed, observe
from opweld.quantize.friendliness import friendliness
from opweld.quantize.placement import MOVING, POINTWISE, Placement, needed, placed
from opweld.quantize.report import NodeReport, Quantized, annotate
from opweld.quantize.request import OPSETS, Ranges, Request
from opweld.quantize.scales import Codes
from opweld.quantize.simulate import Simulation
from opweld.quantize.versions import Precision, Rounding, Setting, Version, corrected, version_of
from opweld.quantize.writing import Writer

if TYPE_CHECKING:
    from opweld.compile import OnnxModel

Array = NDArray[Any]


def quantize(
    model: OnnxModel,
    data: Data | None = None,
    *,
    held_out: Data | None = None,
    precision: Precision = "int8",
    ranges: Ranges = "best",
    activations: Codes = "uint8",
    reduce_range: bool = False,
    max_error: float | None = None,
    metric: Metric | None = None,
    keep: Iterable[str] = (),
    random: int | None = None,
    progress: Progress | None = None,
) -> Quantized:
    """Quantises a trained model after training: standard ONNX with Q/DQ pairs, which any runtime loads.

    Args:
        model: a path, bytes or a ModelProto, left untouched.
        data: a folder of .npy or .npz files, one a sample, or an iterable of dicts of arrays by input. It is gone
            through once, or, where it is a folder or a sequence, once more before, to be checked.
        held_out: likewise, samples that the error of the result, and a budget, are measured on; ranges, roundings and
            the order of nodes are chosen by the others. Without them every fifth sample of `data`, up to 16, is kept
            apart for that; of fewer than five none is, and a note says so.
        precision: `int8`: weights by channel, activations by tensor, biases as int32, rows that are gathered as
            weights alone. `int8-weights`, `int4-weights`: stored weights alone; these need no data. With data the error
            is measured, and int4 is rounded as makes up for it (GPTQ) where the error falls by that.
        ranges: of activations: `minmax`, `percentile` (99.99), `entropy`, `mse`, or `best`, which measures all four.
        activations: `uint8` or `int8`, with a zero point in either case.
        reduce_range: for processors with AVX2 or AVX-512 and without VNNI: weights of `int8` of which no two
            neighbours exceed 128 together, in place of 127 each. The fastest instruction for bytes there saturates
            beyond that: opweld does not use it then, other runtimes do, and are wrong; with an odd number of channels,
            as of pictures, still.
        max_error: what the outputs may lose, as the root of the squared differences' sum over that of the squared
            answers' sum. The nodes that lose most by predicted second saved become int8 weights alone, then float,
            until it is kept.
        metric: a score, the larger the better, of answers to the samples that errors are measured on, in their order,
            as a sequence of dicts of arrays by output; `max_error` is then what the score may fall.
        keep: names of nodes that stay in float.
        random: so many samples of random numbers instead of data. They are not what the model was trained for.
        progress: called with (what is being done, steps done, steps in all).

    Raises OptionError for a wrong option, InputError naming sample and input for data that the model does not take, for
    none, and for NaN and infinity; UnsupportedError where nothing can be quantised; what `compile` raises.
    """
    asked = Request(precision, ranges, activations, reduce_range, max_error, metric, tuple(keep), progress)
    asked.check_data(data, held_out, random)
    inputs = declared_inputs(read_model(onnx_model(model))[0].graph)
    samples = random_samples(random, inputs) if random is not None else None
    samples = samples_of(data, inputs) if data is not None else samples
    apart = None if held_out is None else samples_of(held_out, inputs)
    graph = _prepared(model, precision)
    work = _Work(graph, asked, size_of(model, graph))
    work.layers = work.usable()
    if random is not None:
        work.notes.append("the samples are random numbers, as was asked: ranges and errors are not those of real data")
    if samples is None:
        versions = {layer.node: version_of(graph, layer, precision, reduced=reduce_range) for layer in work.layers}
        return work.report(_Plan(Setting(versions, {}), None, {}), None)
    return work.calibrated(samples, apart)


@dataclass(frozen=True)
class _Plan:
    """What is written: the layers that are integers, the choice that they share, their errors alone."""

    setting: Setting
    choice: Choice | None
    alone: Mapping[int, float]
    error: float | None = None
    model: onnx.ModelProto | None = None


@dataclass
class _Work:
    """A model that is being quantised.

    Attributes:
        size: bytes of what was given. layers: those that can be quantised. notes: what the user is told.
        refused: by node, why it is not quantised.
    """

    graph: Graph
    asked: Request
    size: int
    layers: list[Layer] = field(default_factory=list[Layer])
    placement: Placement | None = None
    notes: list[str] = field(default_factory=list[str])
    refused: dict[int, str] = field(default_factory=dict[int, str])

    def usable(self) -> list[Layer]:
        """The layers, but for those that are to stay or have no finite weights. Raises OptionError for a name that no
        node has, UnsupportedError where none is left."""
        graph, keep = self.graph, self.asked.keep
        layers = graph.layers()
        check_nodes(graph, keep)
        bad = not_finite(graph, layers)
        self.notes += [f"node {graph.label(node)!r} stays in float: {why}" for node, why in bad.items()]
        self.refused |= bad | {layer.node: "stays in float as asked" for layer in layers if layer.name in keep}
        return self._left([layer for layer in layers if layer.node not in self.refused])

    def _left(self, layers: list[Layer]) -> list[Layer]:
        """The layers that are left. Raises UnsupportedError where none is, with the reasons that there are."""
        if layers:
            return layers
        why = "no Conv, ConvTranspose, Gemm or MatMul has float32 weights, nor has a Gather"
        raise UnsupportedError(f"nothing can be quantised: {'; '.join(self.notes) or why}")

    def calibrated(self, samples: Iterable[Sample], held_out: Iterable[Sample] | None) -> Quantized:
        """The model quantised by what the samples show."""
        graph, asked = self.graph, self.asked
        if asked.precision == "int8":
            self.placement = placed(graph, self.layers)
            values = self.placement.values
        else:
            values = tuple(dict.fromkeys(layer.data for layer in self.layers if layer.data))
        simulation = Simulation(graph, self.layers, values, self.placement, asked.activations, asked.progress)
        # Rounding in an order would not keep neighbours as small as a reduced range has them.
        moments = {} if asked.reduce_range else moments_read(graph, self.layers)
        try:
            observed = observe(
                graph, simulation.run, values, self.layers, moments, samples, held_out, asked.progress
            )  # fmt: skip
        except InputError as error:
            if not self.notes:
                raise
            # What weights hold is nearer to the cause than what a run shows.
            raise InputError("; ".join((str(error), *self.notes))) from error
        if not observed.apart:
            self.notes.append("no sample was kept apart, of fewer than five: the error is of those that ranges are of")
        if self.placement is not None:
            self._drop_unranged(observed, self.placement)
        settings = self._settings(observed)
        choice = chosen(simulation, settings, observed, asked.progress)
        alone = errors_alone(simulation, settings[choice], observed, asked.progress)
        return self._written(simulation, observed, settings[choice], choice, alone)

    def _drop_unranged(self, observed: Observed, placement: Placement) -> None:
        """Leaves layers in float that read what is 0 in all samples, or so near to it that no float is its step."""
        graph = self.graph
        zero = unranged(self.layers, ranges_by(observed, placement, "minmax", self.asked.activations))
        for layer in zero:
            histogram = observed.histograms[layer.data]
            known = f"at most {max(-histogram.low, histogram.high):.2g}" if histogram.width else "0"
            why = f"{graph.maker(layer.data)} is {known} in all samples"
            self.refused[layer.node] = f"what it reads is {known} in all samples"
            self.notes.append(f"node {layer.name!r} stays in float: {why}; give data in which it is not")
        self.layers = self._left([layer for layer in self.layers if layer not in zero])

    def _settings(self, observed: Observed) -> dict[Choice, Setting]:
        """All layers quantised, in each way that is compared."""
        graph, asked = self.graph, self.asked
        found: dict[Choice, Setting] = {}
        roundings: tuple[Rounding, ...] = ("nearest", "gptq") if observed.moments else ("nearest",)
        versions: dict[tuple[Rounding, bool], dict[int, Version]] = {}
        for rounding in roundings:
            plain: dict[int, Version] = {}
            for i, layer in enumerate(self.layers):
                tell(asked.progress, "rounding weights", i, len(self.layers))
                plain[layer.node] = version_of(graph, layer, asked.precision, rounding, observed, asked.reduce_range)
            versions[rounding, False] = plain
            better = {layer.node: corrected(graph, layer, plain[layer.node], observed) for layer in self.layers}
            if any(version.bias is not None for version in better.values()):
                versions[rounding, True] = better
        for i, method in enumerate(asked.methods):
            tell(asked.progress, "choosing ranges", i, len(asked.methods))
            ranges = {}
            if self.placement is not None:
                ranges = ranges_by(observed, self.placement, method, asked.activations)
            for (rounding, correction), made in versions.items():
                found[Choice(method, correction, rounding)] = Setting(made, ranges)
        return found

    def _written(
        self, simulation: Simulation, observed: Observed, setting: Setting, choice: Choice, alone: Mapping[int, float]
    ) -> Quantized:
        """The model, its error measured as it is written: where that is over the budget, a step back and again."""
        asked, steps, place = self.asked, [setting], 0
        loss = loss_by(asked.metric, observed.answers)
        if asked.max_error is not None:
            budget = Budget(
                asked.max_error, lambda one: loss(simulation.answers(one, observed.samples)),
                self._saved(setting, observed), self._narrower(setting),
            )  # fmt: skip
            steps = steps_back(setting, alone, budget)
            place = within(steps, budget.loss, budget.most, asked.progress)
        while True:
            made = self._writer().write(self.layers, steps[place], self.placement)
            runner = Shaped(made, asked.progress)
            answers = [runner.run(sample) for sample in observed.samples]
            if asked.max_error is None or loss(answers) <= asked.max_error or place == len(steps) - 1:
                break
            place += 1
        for node in setting.versions.keys() - steps[place].versions.keys():
            self.refused[node] = f"alone, it moves the outputs by {alone[node]:.2g}: stays in float for the budget"
        plan = _Plan(steps[place], choice, alone, error_of(answers, observed.answers), made)
        return self.report(plan, observed)

    def _narrower(self, setting: Setting) -> dict[int, Version]:
        """The layers as int8 weights alone, where they are something else."""
        return {
            layer.node: version_of(self.graph, layer, "int8-weights")
            for layer in self.layers
            if setting.versions[layer.node].precision != "int8-weights"
        }

    def _saved(self, setting: Setting, observed: Observed) -> dict[int, float]:
        """Predicted seconds that each layer saves, by node: of the models as they are and as they would be written."""
        layers = {layer.name: layer.node for layer in self.layers}
        made = self._writer().write(self.layers, setting, self.placement)
        shapes = {name: array.shape for name, array in observed.samples[0].items()}
        before, after = (
            seconds_of(compile_model(fixed(model, shapes), progress=self.asked.progress), layers)
            for model in (self.graph.model, made)
        )
        return {node: before[node] - after[node] for node in layers.values()}

    def _writer(self) -> Writer:
        return Writer(self.graph, self.asked.activations, reduced=self.asked.reduce_range)

    def report(self, plan: _Plan, observed: Observed | None) -> Quantized:
        """What is handed back."""
        graph, setting, asked = self.graph, plan.setting, self.asked
        made = plan.model or self._writer().write(self.layers, setting, self.placement)
        integer = [layer for layer in self.layers if layer.node in setting.integer]
        codes = needed(graph, integer) if self.placement is not None else {}
        nodes: dict[int, NodeReport] = {}
        for i, node in enumerate(graph.nodes):
            alone, version = plan.alone.get(i), setting.versions.get(i)
            told = ("high", "stored weights alone") if version and alone is None else friendliness(graph, i, alone)
            if told is None:
                continue
            level, reason = told
            if i in self.refused:
                level, reason = "low", self.refused[i]
            handed_on = node.op_type in MOVING | POINTWISE and any(name in codes for name in node.output)
            written = version.precision if version else "int8" if handed_on else "float"
            nodes[i] = NodeReport(graph.label(i), node.op_type, written, level, reason, alone)
        measured = (i for i in nodes if i in setting.versions or i in self.refused)
        annotate(made, {graph.nodes[i].output[0]: nodes[i] for i in measured})
        choice = plan.choice
        return Quantized(
            made, tuple(nodes.values()), asked.precision,
            None if choice is None or self.placement is None else choice.method,
            choice is not None and choice.corrected, "nearest" if choice is None else choice.rounding, plan.error,
            0 if observed is None else observed.count,
            len(observed.samples) if observed is not None and observed.apart else 0,
            0 if observed is None else observed.nbytes, self.size, made.ByteSize(), tuple(self.notes),
        )  # fmt: skip


def _prepared(model: OnnxModel, precision: Precision) -> Graph:
    wanted = OPSETS[precision]
    try:
        return prepared(model, wanted)
    except UnsupportedError as error:
        hint = "; int8-weights needs opset 13 only" if wanted > OPSETS["int8"] else ""
        raise UnsupportedError(f"{precision} needs opset {wanted}: {error}{hint}") from error
