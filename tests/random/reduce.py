"""Turns a bad graph into a few nodes that are bad in the same way.

A step is taken back unless the smaller graph still is: valid (the reference computes it) and bad, with the same
exception from the same place where it is an internal error. Steps, repeated until none helps:

    one choice of sizes, fixed dims, one output
    a value becomes an input, fed with what it was
    a node's result is replaced by one of its operands
    an extent becomes smaller, everywhere at once
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tests.random.evaluate import Step, evaluate
from tests.random.generate import Case
from tests.random.judge import Finding, dtypes_of
from tests.random.kept import save_case
from tests.random.net import Worker
from tests.random.worker import NATIVE, OURS, drawn

Array = NDArray[Any]


def reduce_finding(
    finding: Finding, generator: str, variables: dict[str, str], folder: Path, target: str = NATIVE
) -> str:
    """Reduces the graph that the generator drew for a finding, writes the result into the folder, and returns a report
    with the model as text.

    `variables` are those of the worker processes, see `net.Worker`."""
    case = drawn(finding.seed, generator)
    worker = Worker(variables)
    try:
        with tempfile.TemporaryDirectory(prefix="opweld-reduce-") as scratch:
            reduced = _Reducer(finding, worker, Path(scratch), generator, target).run(case)
    finally:
        worker.close()
    save_case(reduced, folder)
    return report(finding, reduced, folder)


def report(finding: Finding, case: Case, folder: Path) -> str:
    """The finding, the model as text, and how to run it."""
    feeds = "\n".join(f"  {name}: {a.dtype}{list(a.shape)}" for name, a in case.feeds[0].items())
    snippet = (
        "import numpy as np, opweld\n"
        f"model = opweld.compile({str(folder / 'model.onnx')!r}, level={finding.level!r}, threads={finding.threads})\n"
        f"print(model.run(dict(np.load({str(folder / 'feeds_0.npz')!r}))))"
    )
    title = f"seed {finding.seed} at {finding.level}, {finding.threads} threads: {finding.outcome}: {finding.what}"
    return f"{title}\n{onnx.printer.to_text(case.model)}\nfeeds:\n{feeds}\n{snippet}\n"


class _Reducer:
    def __init__(
        self, finding: Finding, worker: Worker, scratch: Path, generator: str = OURS, target: str = NATIVE
    ) -> None:
        self._finding = finding
        self._generator = generator
        self._target = target
        self._worker = worker
        self._scratch = scratch

    def run(self, case: Case) -> Case:
        """The smallest case found."""
        alone = Case(case.seed, case.model, (case.feeds[self._finding.choice],))
        if self._is_bad(alone):
            case = alone
        progress = True
        while progress:
            progress = False
            for step in (_fixed, _one_output, _tails, _cuts, _bypasses, _shrinks):
                found = self._first(step, case)
                while found is not None:
                    case, progress = found, True
                    found = self._first(step, case)
        return case

    def _first(self, step: Any, case: Case) -> Case | None:
        """The first smaller case of a kind that is still bad."""
        candidates: Iterator[Case] = step(case)
        return next((candidate for candidate in candidates if self._is_bad(candidate)), None)

    def _is_bad(self, case: Case) -> bool:
        try:
            onnx.checker.check_model(case.model)
            steps = [Step(node) for node in case.model.graph.node]
            for feeds in case.feeds:
                evaluate(steps, _stored(case.model) | feeds, {})
        except Exception:  # noqa: BLE001 - whatever makes it invalid
            return False
        folder = self._scratch / "case"
        save_case(case, folder)
        threads = [self._finding.threads]
        job = {"folder": str(folder), "seed": case.seed, "levels": [self._finding.level], "threads": threads}
        job |= {"generator": self._generator, "target": self._target}
        return any(_alike(found, self._finding) for found in self._worker.run(job))


def _alike(found: Finding, wanted: Finding) -> bool:
    if found.outcome != wanted.outcome:
        return False
    if found.outcome != "internal":
        return True
    return found.what.split(":")[0] == wanted.what.split(":")[0] and _place(found) == _place(wanted)


def _place(finding: Finding) -> str:
    return finding.what.rpartition(" at ")[2].split(" < ")[0] if " at " in finding.what else ""


def _stored(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())


def _cleaned(case: Case) -> Case:
    """Without nodes, initializers and inputs that no output needs."""
    graph = case.model.graph
    wanted = {output.name for output in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            kept.append(node)
            wanted.update(node.input)
    _replace(graph.node, kept[::-1])
    _replace(graph.initializer, [item for item in graph.initializer if item.name in wanted])
    _replace(graph.input, [item for item in graph.input if item.name in wanted])
    names = {item.name for item in graph.input}
    feeds = tuple({name: array for name, array in feed.items() if name in names} for feed in case.feeds)
    return Case(case.seed, case.model, feeds)


def _replace(items: Any, kept: list[Any]) -> None:
    kept = [type(item).FromString(item.SerializeToString()) for item in kept]
    del items[:]
    items.extend(kept)


def _fixed(case: Case) -> Iterator[Case]:
    """Symbolic dims become numbers."""
    if len(case.feeds) > 1:
        return
    model = _copy(case.model)
    changed = False
    for item in model.graph.input:
        for position, dim in enumerate(item.type.tensor_type.shape.dim):
            if dim.dim_param:
                dim.dim_value = case.feeds[0][item.name].shape[position]
                changed = True
    if changed:
        yield _cleaned(Case(case.seed, model, case.feeds))


def _one_output(case: Case) -> Iterator[Case]:
    outputs = list(case.model.graph.output)
    for keep in ([o] for o in outputs) if len(outputs) > 1 else ():
        model = _copy(case.model)
        _replace(model.graph.output, keep)
        yield _cleaned(Case(case.seed, model, case.feeds))
    for position in range(len(outputs) if len(outputs) > 2 else 0):
        model = _copy(case.model)
        _replace(model.graph.output, outputs[:position] + outputs[position + 1 :])
        yield _cleaned(Case(case.seed, model, case.feeds))


def _tails(case: Case) -> Iterator[Case]:
    """Only the last few nodes; what they read is fed."""
    count = len(case.model.graph.node)
    for kept in (1, 2, 3, 4, 6, 8, 12, 16):
        if kept < count:
            yield from _fed(case, {name for node in case.model.graph.node[: count - kept] for name in node.output})


def _cuts(case: Case) -> Iterator[Case]:
    """One value at a time is fed instead of computed."""
    for node in reversed(case.model.graph.node):
        yield from _fed(case, {name for name in node.output if name})


def _fed(case: Case, names: set[str]) -> Iterator[Case]:
    model = _copy(case.model)
    steps = [Step(node) for node in model.graph.node]
    known = [evaluate(steps, _stored(model) | feeds, {}) for feeds in case.feeds]
    # onnx does not infer what operators of other domains make.
    dtypes = dtypes_of(model) | {name: array.dtype for name, array in known[0].items() if array.dtype.kind != "f"}
    kept = [node for node in model.graph.node if not names.issuperset(node.output)]
    if len(kept) == len(model.graph.node):
        return
    outputs = {output.name for output in model.graph.output}
    if outputs & names and not any(outputs & set(node.output) for node in kept):
        return
    _replace(model.graph.output, [o for o in model.graph.output if o.name not in names])
    read = {name for node in kept for name in node.input}
    feeds = [dict(feed) for feed in case.feeds]
    for name in sorted(names & read):
        shapes = {values[name].shape for values in known}
        dims: list[Any] = (
            list(shapes.pop()) if len(shapes) == 1 else [f"{name}_{i}" for i in range(known[0][name].ndim)]
        )
        info = helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtypes[name]), dims)
        model.graph.input.append(info)
        for feed, values in zip(feeds, known, strict=True):
            feed[name] = values[name].astype(dtypes[name])
    _replace(model.graph.node, kept)
    yield _cleaned(Case(case.seed, model, tuple(feeds)))


def _bypasses(case: Case) -> Iterator[Case]:
    """The users of a node read one of its operands instead, where shape and dtype are the same."""
    dtypes = dtypes_of(case.model)
    steps = [Step(node) for node in case.model.graph.node]
    known = evaluate(steps, _stored(case.model) | case.feeds[0], {})
    outputs = {output.name for output in case.model.graph.output}
    for node in reversed(case.model.graph.node):
        name = node.output[0]
        if name in outputs:
            continue
        for operand in dict.fromkeys(node.input):
            same = operand and known[operand].shape == known[name].shape and dtypes[operand] == dtypes[name]
            if same:
                model = _copy(case.model)
                for user in model.graph.node:
                    for position, read in enumerate(user.input):
                        if read == name:
                            user.input[position] = operand
                yield _cleaned(Case(case.seed, model, case.feeds))


def _shrinks(case: Case) -> Iterator[Case]:
    """Every dim of one extent, in inputs and initializers, becomes a smaller one."""
    if any(d.dim_param for i in case.model.graph.input for d in i.type.tensor_type.shape.dim) or len(case.feeds) > 1:
        return
    arrays = {**_stored(case.model), **case.feeds[0]}
    extents = sorted({extent for array in arrays.values() for extent in array.shape if extent > 1}, reverse=True)
    for extent in extents:
        for smaller in dict.fromkeys((1, 2, 3, extent // 2, extent - 1)):
            if not 0 < smaller < extent:
                continue
            model = _copy(case.model)
            cut = {
                name: np.ascontiguousarray(array[tuple(slice(smaller if n == extent else n) for n in array.shape)])
                for name, array in arrays.items()
            }
            for item in model.graph.input:
                for position, dim in enumerate(item.type.tensor_type.shape.dim):
                    dim.dim_value = cut[item.name].shape[position]
            stored = [numpy_helper.from_array(cut[t.name], t.name) for t in model.graph.initializer]
            _replace(model.graph.initializer, stored)
            yield Case(case.seed, model, ({name: cut[name] for name in case.feeds[0]},))
