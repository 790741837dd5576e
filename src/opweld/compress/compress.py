"""`opweld.compress`: samples in, layers made smaller where that is faster, a model of fewer weights out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx

from opweld.calibration.budget import Metric, loss_by, within
from opweld.calibration.data import Data, Sample, declared_inputs, random_samples, samples_of
from opweld.calibration.error import error_of
from opweld.calibration.graph import Graph, Layer, check_nodes, not_finite
from opweld.calibration.prepare import prepared, size_of
from opweld.calibration.progress import Progress, tell
from opweld.calibration.shaped import Shaped, fixed
from opweld.compress import timing
from opweld.compress.chains import chain_of
from opweld.compress.change import Change, Method, edited
from opweld.compress.channels import cuts
from opweld.compress.fed import Fed
from opweld.compress.look import COMPARED, Looked, look
from opweld.compress.low_rank import low_ranks
from opweld.compress.matrix import dense_layers
from opweld.compress.report import Compressed, LayerReport
from opweld.compress.request import Request
from opweld.compress.select import Candidate, Setting, grown, settings, steps_of
from opweld.compress.zeros import PATTERNS, zeros_of
from opweld.errors import UnsupportedError
from opweld.frontend.onnx import read_model
from opweld.frontends.onnx import onnx_model
from opweld.tune.trial import Gain

if TYPE_CHECKING:
    from opweld.compile import OnnxModel


def compress(
    model: OnnxModel,
    data: Data | None = None,
    *,
    held_out: Data | None = None,
    methods: Iterable[Method] = ("low-rank", "channels"),
    max_error: float = 0.01,
    metric: Metric | None = None,
    keep: Iterable[str] = (),
    without_speedup: bool = False,
    random: int | None = None,
    progress: Progress | None = None,
) -> Compressed:
    """Makes the layers of a trained model smaller, where the outputs lose little by it and the model measures faster.

    Args:
        model: a path, bytes or a ModelProto, left untouched.
        data: a folder of .npy or .npz files, one a sample, or an iterable of dicts of arrays by input.
        held_out: likewise, samples that the error of the result and the budget are measured on. Without them every
            fifth sample of `data`, up to 16, is kept apart for that; of fewer than five none is, and a note says so.
        methods: `low-rank`: a linear layer, or a convolution of one tap, becomes two of a rank at which there are fewer
            weights. `channels`: whole channels are removed between two layers, with what is computed of them on the
            way, where nothing but elementwise operators, pooling and depthwise convolutions is between. `2:4`,
            `blocks`, `unstructured`: weights become zeros, two of four, in blocks of 4 x 16, or one by one. No kernel
            skips these: they are only kept `without_speedup`, and told of else.
        max_error: what the outputs may lose, as the root of the squared differences' sum over that of the squared
            answers' sum.
        metric: a score, the larger the better, of answers to the samples that errors are measured on, in their order,
            as a sequence of dicts of arrays by output; `max_error` is then what the score may fall.
        keep: names of nodes that stay as they are.
        without_speedup: keep changes that do not measure faster too.
        random: so many samples of random numbers instead of data. They are not what the model was trained for.
        progress: called with (what is being done, steps done, steps in all).

    Raises OptionError for a wrong option, InputError naming sample and input for data that the model does not take, for
    none, and for NaN and infinity; UnsupportedError where no layer could be smaller; what `compile` raises.
    """
    asked = Request(tuple(methods), max_error, metric, tuple(keep), without_speedup, progress)
    asked.check_data(data, random)
    inputs = declared_inputs(read_model(onnx_model(model))[0].graph)
    samples = random_samples(random, inputs) if random is not None else samples_of(() if data is None else data, inputs)
    apart = None if held_out is None else samples_of(held_out, inputs)
    graph = prepared(model)
    work = _Work(graph, asked, size_of(model, graph))
    if random is not None:
        work.notes.append("the samples are random numbers, as was asked: errors are not those of real data")
    return work.compressed(samples, apart)


@dataclass
class _Work:
    """A model that is being compressed.

    Attributes:
        size: bytes of what was given. notes: what the user is told. why: by node and method, "" for all of these, why a
            layer is as it was. least: by node, the error at the outputs of the least change that was measured.
        gains: by node, what was measured last.
    """

    graph: Graph
    asked: Request
    size: int
    notes: list[str] = field(default_factory=list[str])
    why: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    least: dict[int, float] = field(default_factory=dict[int, float])
    gains: dict[int, Gain] = field(default_factory=dict[int, Gain])

    def compressed(self, samples: Iterable[Sample], held_out: Iterable[Sample] | None) -> Compressed:
        """The model compressed by what the samples show."""
        graph, progress = self.graph, self.asked.progress
        every = dense_layers(graph)
        layers = self._left(every)
        fed = Fed(graph, layers, dict.fromkeys(layer.data for layer in every), progress)
        looked = look(graph, fed, layers, samples, held_out, progress)
        if not looked.apart:
            self.notes.append("no sample was kept apart, of fewer than five: the error is of those that were looked at")
        timer = timing.Timer(graph, looked.shapes)
        groups = self._candidates(fed, looked, timer, self._changes(layers, looked))
        setting, made = self._chosen(fed, looked, timer, groups)
        gain = self._whole(made, looked) if setting else None
        if gain is not None and not self.asked.without_speedup and gain.low <= 1:
            times = f"{1e3 * gain.after:.3f} ms, not {1e3 * gain.before:.3f}"
            self.notes.append(f"nothing is kept: all changes together are not surely faster, a run takes {times}")
            for one in setting:
                for node in one.change.told:
                    self.why[node] = {"": "the whole model does not measure faster"}
            setting, made, gain = (), graph.model, None
        if any(one.change.zeros for one in setting):
            self.notes.append("no kernel skips zeros: neither bytes nor operations are fewer by them, nor is it faster")
        return self._report(every, looked, timer, setting, made, gain)

    def _left(self, layers: Sequence[Layer]) -> list[Layer]:
        """The layers that may change. Raises OptionError for a name that no node has, UnsupportedError for none."""
        graph, keep = self.graph, self.asked.keep
        check_nodes(graph, keep)
        bad = not_finite(graph, layers)
        self.notes += [f"node {graph.label(node)!r} stays as it is: {why}" for node, why in bad.items()]
        for node, why in bad.items():
            self._say(node, "", why)
        for layer in layers:
            if layer.name in keep:
                self._say(layer.node, "", "stays as asked")
            elif len(graph.readers[layer.weights]) > 1:
                self._say(layer.node, "", f"its weights {layer.weights!r} are read by other nodes too")
        left = [layer for layer in layers if layer.node not in self.why]
        if not left:
            raise UnsupportedError(
                "no layer can be made smaller: no Conv without groups, Gemm or MatMul has float32 weights of its own"
            )
        return left

    def _say(self, node: int, method: str, why: str) -> None:
        self.why.setdefault(node, {})[method] = why

    def _changes(self, layers: Sequence[Layer], looked: Looked) -> list[Sequence[Change]]:
        """What could be done, each group's changes from the one that loses least on."""
        found: list[Sequence[Change]] = []
        left: dict[int, Layer] = {}
        for layer in layers:
            moments = looked.moments.get((layer.data, layer.channels))
            if moments is None:
                self._say(layer.node, "", "it has too many inputs for their second moments to be kept")
            elif not np.isfinite(moments.sums).all():
                self._say(layer.node, "", "the squares of what it reads are beyond float32: scale it")
            elif not moments.sums.any():
                self._say(layer.node, "", "what it reads is 0 in all samples")
            else:
                left[layer.node] = layer
        moments = {node: looked.moments[layer.data, layer.channels].sums for node, layer in left.items()}
        for i, (node, layer) in enumerate(left.items()):
            tell(self.asked.progress, "decomposing layers", i, len(left))
            if "low-rank" in self.asked.methods:
                ranks, why = low_ranks(self.graph, layer, moments[node])
                found.append(ranks)
                if why:
                    self._say(node, "low-rank", why)
            for method in PATTERNS:
                if method in self.asked.methods:
                    found.append(zeros_of(self.graph, layer, method, moments[node]))
            if "channels" in self.asked.methods:
                chain = chain_of(self.graph, layer, left)
                if isinstance(chain, str):
                    self._say(node, "channels", chain)
                else:
                    found.append(cuts(self.graph, chain, moments))
        return found

    def _candidates(
        self, fed: Fed, looked: Looked, timer: timing.Timer, groups: Sequence[Sequence[Change]]
    ) -> list[list[Candidate]]:
        """The changes that are predicted to save seconds, with their errors at the outputs; none beyond the budget."""
        found: list[list[Candidate]] = []
        samples, right = looked.compared[:COMPARED], looked.right
        for i, changes in enumerate(groups):
            tell(self.asked.progress, "measuring each layer", i, len(groups))
            kept: list[Candidate] = []
            for change in changes:
                node = change.layer.node
                saved = self._saved(timer, change)
                if saved <= 0 and not change.zeros:
                    before = timer.cost(change.nodes).seconds
                    times = f"{1e6 * (before - saved):.1f} us, not {1e6 * before:.1f}"
                    self._say(node, change.method, f"{change.amount} is predicted to take {times}")
                    continue
                error = error_of(fed.answers(samples, [change]), right)
                self.least[node] = min(error, self.least.get(node, error))
                if self.asked.metric is None and error > self.asked.max_error:
                    if not kept and change.method not in self.why.get(node, {}):
                        told = f"{change.amount} alone moves the outputs by {error:.2g} of their size"
                        self._say(node, change.method, told)
                    break
                if saved <= 0:
                    told = f"{change.amount} alone moves the outputs by {error:.2g}, but no kernel skips zeros"
                    self._say(node, change.method, f"{told}, and they are stored as others are")
                    continue
                kept.append(Candidate(change, error, saved))
            found.append(kept)
        return found

    def _saved(self, timer: timing.Timer, change: Change) -> float:
        """Predicted seconds; where speed is not asked for, those of the operations that there are fewer, or that are by
        zero."""
        before, after = timer.cost(change.nodes), timer.cost(change.nodes, [change])
        if self.asked.without_speedup:
            return before.seconds * (1 - after.flops / before.flops * (1 - change.zeros))
        return before.seconds - after.seconds

    def _chosen(
        self, fed: Fed, looked: Looked, timer: timing.Timer, groups: list[list[Candidate]]
    ) -> tuple[Setting, onnx.ModelProto]:
        """The changes that keep the budget and measure faster, and the model with them, measured as it is written."""
        asked = self.asked
        loss = loss_by(asked.metric, looked.answers)

        def simulated(setting: Setting) -> float:
            return loss(fed.answers(looked.samples, [one.change for one in setting]))

        def allowed(setting: Setting, new: Candidate) -> bool:
            tell(asked.progress, "keeping to the budget", len(setting), len(groups))
            return simulated(setting) <= asked.max_error and not self._slow(timer, [new])

        while True:
            steps = steps_of(groups)
            prefixes = settings(steps)
            setting = prefixes[within(prefixes, simulated, asked.max_error, asked.progress)]
            bad = self._slow(timer, setting)
            if not bad:
                setting = grown(setting, steps, allowed)
                made = self._written(setting)
                runner = Shaped(made, asked.progress)
                if not setting or loss([runner.run(sample) for sample in looked.samples]) <= asked.max_error:
                    break
                bad = [max(setting, key=lambda one: one.error)]
                told = f"{bad[0].change.amount}: the model as it is written loses more than its simulation"
                self._say(bad[0].change.layer.node, bad[0].change.method, told)
            groups = [[one for one in group if one not in bad] for group in groups]
        for one in (one for group in groups for one in group):
            told = f"{one.change.amount} alone moves the outputs by {one.error:.2g}: as it was for the budget"
            self.why.setdefault(one.change.layer.node, {}).setdefault(one.change.method, told)
        return setting, made

    def _slow(self, timer: timing.Timer, setting: Sequence[Candidate]) -> list[Candidate]:
        """Those that do not measure faster, where that is asked for."""
        slow: list[Candidate] = []
        if self.asked.without_speedup:
            return slow
        for i, one in enumerate(setting):
            tell(self.asked.progress, "timing layers", i, len(setting))
            node, gain = one.change.layer.node, timer.gain(one.change)
            self.gains[node] = gain
            if not timing.faster(gain):
                slow.append(one)
                times = f"{1e6 * gain.after:.1f} us, not {1e6 * gain.before:.1f}"
                faster = "faster in too few blocks of runs" if gain.ratio > timing.WORTH else "no faster"
                self._say(node, one.change.method, f"{one.change.amount} measures {times}: {faster}")
        return slow

    def _written(self, setting: Setting) -> onnx.ModelProto:
        if not setting:
            return self.graph.model
        return edited(self.graph, [one.change for one in setting]).applied()

    def _whole(self, made: onnx.ModelProto, looked: Looked) -> Gain:
        """What the whole model gains, measured with the first sample."""
        tell(self.asked.progress, "timing the model", 0, 1)
        feeds = looked.samples[0]
        shapes = {name: array.shape for name, array in feeds.items()}
        before, after = (fixed(model, shapes) for model in (self.graph.model, made))
        return timing.race(before, after, feeds, timing.WHOLE)

    def _report(
        self,
        layers: Sequence[Layer],
        looked: Looked,
        timer: timing.Timer,
        setting: Setting,
        made: onnx.ModelProto,
        gain: Gain | None,
    ) -> Compressed:
        """What is handed back."""
        metric = self.asked.metric
        runner = Shaped(made, self.asked.progress)
        answers = [runner.run(sample) for sample in looked.samples]
        told = [self._layer(layer, timer, setting) for layer in layers]
        return Compressed(
            made, tuple(told), error_of(answers, looked.answers),
            None if metric is None else (metric(looked.answers), metric(answers)), gain, looked.count,
            len(looked.samples) if looked.apart else 0, looked.nbytes, self.size, made.ByteSize(), tuple(self.notes),
        )  # fmt: skip

    def _layer(self, layer: Layer, timer: timing.Timer, setting: Setting) -> LayerReport:
        node, op = layer.node, self.graph.nodes[layer.node].op_type
        own = [one for one in setting if node in one.change.told]
        before, after = timer.cost([node]), timer.cost([node], [one.change for one in setting])
        weights = self.graph.array(layer.weights)
        for one in own:
            weights = one.change.weights(self.graph).get(node, weights)
        zeros = 1 - float((weights != 0).mean())
        if not own:
            why = "; ".join(self.why.get(node, {}).values())
            gain, least = self.gains.get(node), self.least.get(node)
            return LayerReport(layer.name, op, (), "", least, zeros, before, after, gain, why)
        gain = self.gains.get(node) if any(one.change.layer.node == node for one in own) else None
        amount = ", ".join(one.change.told[node] for one in own)
        error = max(one.error for one in own)
        return LayerReport(
            layer.name, op, tuple(one.change.method for one in own), amount, error, zeros, before, after, gain, ""
        )
