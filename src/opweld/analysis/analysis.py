"""The cost of a model: parameters, operations, bytes and memory, by the nodes of its file and by its kernels.

All figures are formulas of the symbolic sizes, from the tensor program, evaluated for given sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from opweld.account.account import Account
from opweld.analysis.bound import Bound, KernelWork, bound_of
from opweld.analysis.costs import NAMES, Amount, Amounts, Evaluation, evaluations, together
from opweld.analysis.machine import Machine
from opweld.analysis.work import work_of
from opweld.display import Piece, Shown
from opweld.errors import OptionError
from opweld.record import Costs, KernelEntry, NodeEntry, Record, VariantEntry
from opweld.runtime.plan import PlanDescription

NOT_IN_FILE = "(not in the file)"
"""Operator of a node that is not in the file: it was expanded from a function or another operator, or created by
rewriting."""


@dataclass(frozen=True)
class NodeAnalysis:
    """A node of the file, as if it were a kernel of its own.

    Attributes:
        name, operator, source, variant: as in the record; `variant` is "" if none computes it.
        outcome: its outcome, see `account.outcomes.MEANINGS`. kernels: those that compute it.
        parameters, parameter_bytes: of the stored tensors that it reads.
        launches: 1, or 0 if nothing is computed or moved. values: bytes of its results.
    """

    name: str
    operator: str
    source: str
    variant: str
    outcome: str
    kernels: tuple[str, ...]
    parameters: int
    parameter_bytes: int
    launches: int
    values: Amount
    amounts: Amounts


@dataclass(frozen=True)
class KernelAnalysis:
    """A kernel of a typical run.

    Attributes:
        entry: as recorded. variant: of the kernel. schedule: its line; "" if there is none.
        work: its work at these sizes; `work.predicted` are seconds, scaled to them.
        bound: the verdict as predicted; None if the machine was not measured.
    """

    entry: KernelEntry
    variant: str
    schedule: str
    amounts: Amounts
    work: KernelWork
    bound: Bound | None


@dataclass(frozen=True)
class Totals:
    """Totals of all nodes, or of all kernels."""

    launches: int
    amounts: Amounts


@dataclass(frozen=True)
class Memory:
    """Bytes of intermediate values: `live`, the most that are live at one time; `tensors`, the sum of all; `arena`, the
    size of the runtime's arena, None if unknown. `weights`: of constants, as stored in the artifact."""

    live: int
    tensors: int
    weights: int
    arena: int | None = None


@dataclass(frozen=True)
class Training:
    """Bytes that training the model would take at its peak in float32, by a formula.

    A gradient and two moments of Adam are kept for each parameter, and results of nodes are kept until their gradients
    were computed: weights + gradients + 2 * weights + values."""

    weights: int
    gradients: int
    optimizer: int
    activations: Amount

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.optimizer + self.activations.value

    @property
    def formula(self) -> str:
        """The formula."""
        return f"weights + gradients + 2 moments of Adam + activations = 16 * parameters + ({self.activations.formula})"


@dataclass(frozen=True)
class Buffer:
    """Memory of an intermediate value, from the phase `first` to `last` of its variant; `nodes` compute it."""

    variant: str
    name: str
    bytes: int
    first: int
    last: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Analysis(Shown):
    """The cost of a model at `sizes`, before and after compilation.

    Attributes:
        dims: the sizes of dims as the model names them. parameters, parameter_bytes: elements and bytes of the stored
            tensors of the file.
        before, after: all nodes as kernels of their own; all kernels.
        nodes: of the file, Constants left out, in its order. kernels: of a usual run, in order.
        buffers: the contents of the arena.
    """

    sizes: Mapping[str, int]
    dims: Mapping[str, int]
    parameters: int
    parameter_bytes: int
    before: Totals
    after: Totals
    memory: Memory
    training: Training
    nodes: tuple[NodeAnalysis, ...]
    kernels: tuple[KernelAnalysis, ...]
    buffers: tuple[Buffer, ...]

    def shown(self) -> Sequence[Piece]:
        """Totals, memory, and the first kernels."""
        from opweld.analysis.analysis_text import pieces_of

        return pieces_of(self)

    def frame(self, what: str = "kernels") -> Any:
        """The nodes or the kernels as a pandas.DataFrame, a column a field. Raises OptionError without pandas."""
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise OptionError("a DataFrame needs pandas: pip install pandas") from error
        rows = {"nodes": (node_rows, NODE_COLUMNS), "kernels": (kernel_rows, KERNEL_COLUMNS)}
        if what not in rows:
            raise OptionError(f"frame({what!r}): expected 'nodes' or 'kernels'")
        make, columns = rows[what]
        return pandas.DataFrame(make(self), columns=columns)


def analysis_of(
    account: Account,
    dims: Mapping[str, int] | None = None,
    machine: Machine | None = None,
    plan: PlanDescription | None = None,
    threads: int = 1,
    variant: str = "",
) -> Analysis:
    """The cost of a compiled model.

    Args:
        account: of the compilation.
        dims: sizes of symbolic dims; the others are as expected. Raises OptionError for an unknown dim.
        machine: whose ceilings decide what each kernel is bound by; None: no verdicts.
        plan: of a run at these sizes, if there is one, with the arena and the threads of each kernel.
        threads: maximum of a kernel, without a plan.
        variant: that runs at these sizes; by default the likeliest.
    """
    record = account.record
    found = evaluations(record, dims or {})
    visits = () if plan is None else plan.segments
    usual = _chosen(record, found, {visit.variant for visit in visits} or {variant})
    given = {
        (visit.variant, step.name): step.threads
        for visit in visits
        for step in (plan.steps[visit.first : visit.first + visit.steps] if plan else ())
    }
    kernels = tuple(
        _kernel(account, v, kernel, found[v.name], machine, given.get((v.name, kernel.name)), threads)
        for v in usual
        for kernel in v.kernels
    )
    buffers = tuple(
        Buffer(v.name, b.name, found[v.name].amount(b.bytes).value, b.first, b.last, b.nodes)
        for v in usual
        for b in v.buffers
    )
    elements = sum(count for count, _ in record.parameters.values())
    weights = {place for v in usual for kernel in v.kernels for place in kernel.constants}
    kept = [found[v.name].total([node.values for node in v.nodes if node.launches]) for v in usual]
    return Analysis(
        sizes={name: size for v in usual for name, size in found[v.name].sizes.items()},
        dims={name: size for v in usual for name, size in found[v.name].dims().items()},
        parameters=elements,
        parameter_bytes=sum(size for _, size in record.parameters.values()),
        before=_totals([(found[v.name], [n.costs for n in v.nodes]) for v in usual], _launches(usual)),
        after=_totals([(found[v.name], [k.costs for k in v.kernels]) for v in usual], len(kernels)),
        memory=Memory(
            live=max((_live(buffers, v.name) for v in usual), default=0),
            tensors=sum(buffer.bytes for buffer in buffers),
            weights=sum(size for _, size in weights),
            arena=None if plan is None else plan.arena,
        ),
        training=Training(4 * elements, 4 * elements, 8 * elements, together(kept)),
        nodes=_nodes(account, usual, found),
        kernels=kernels,
        buffers=buffers,
    )


def _chosen(record: Record, found: Mapping[str, Evaluation], asked: Collection[str]) -> tuple[VariantEntry, ...]:
    """The variants of a usual run that take the sizes: of each segment a requested one, else the likeliest."""
    made: list[VariantEntry] = []
    for variant in record.usual:
        alike = [v for v in record.variants if v.segment == variant.segment and v.name in found]
        own = [v for v in alike if v.name in asked] or [v for v in alike if v is variant] or alike
        made += [v for v in own[:1] if v not in made]
    return tuple(made)


def _launches(usual: Iterable[VariantEntry]) -> int:
    return sum(node.launches for variant in usual for node in variant.nodes)


def _nodes(
    account: Account, usual: Sequence[VariantEntry], found: Mapping[str, Evaluation]
) -> tuple[NodeAnalysis, ...]:
    record = account.record
    entries: dict[str, list[tuple[VariantEntry, NodeEntry]]] = {}
    for variant in usual:
        for entry in variant.nodes:
            entries.setdefault(entry.name, []).append((variant, entry))
    run = {variant.name for variant in usual}
    made: list[NodeAnalysis] = []
    told: set[str] = set()
    for node in record.nodes:
        if node.operator == "Constant":
            continue
        own = [pair for name in node.called if name not in told for pair in entries.get(name, ())]
        told.update(entry.name for _, entry in own)
        weights = [record.parameters[name] for name in node.weights if name in record.parameters]
        outcome = account.outcomes.of(node)
        made.append(
            replace(
                _node(node.name, node.operator, own, found, usual[0].name),
                source=node.source,
                outcome=outcome.kind,
                kernels=tuple(dict.fromkeys(kernel.name for variant, kernel in outcome.kernels if variant in run)),
                parameters=sum(count for count, _ in weights),
                parameter_bytes=sum(size for _, size in weights),
            )
        )
    left = [(name, pairs) for name, pairs in entries.items() if name not in told]
    return (*made, *(_node(name, NOT_IN_FILE, pairs, found, usual[0].name) for name, pairs in left))


def _node(
    name: str,
    operator: str,
    own: Sequence[tuple[VariantEntry, NodeEntry]],
    found: Mapping[str, Evaluation],
    usual: str,
) -> NodeAnalysis:
    parts: dict[str, list[NodeEntry]] = {}
    for variant, entry in own:
        parts.setdefault(variant.name, []).append(entry)
    by_variant = [(found[variant], entries) for variant, entries in parts.items()] or [(found[usual], [])]
    return NodeAnalysis(
        name=name,
        operator=operator,
        source="",
        variant=next(iter(parts), ""),
        outcome="",
        kernels=(),
        parameters=0,
        parameter_bytes=0,
        launches=sum(entry.launches for _, entry in own),
        values=together([evaluation.total([e.values for e in entries]) for evaluation, entries in by_variant]),
        amounts=_sum([evaluation.amounts([e.costs for e in entries]) for evaluation, entries in by_variant]),
    )


def _kernel(
    account: Account,
    variant: VariantEntry,
    entry: KernelEntry,
    evaluation: Evaluation,
    machine: Machine | None,
    threads: int | None,
    most: int,
) -> KernelAnalysis:
    schedule = account.schedules.regions.get((variant.name, entry.region))
    work = work_of(entry, evaluation, threads, most)
    bound = None if machine is None else bound_of(work, machine)
    text = "" if schedule is None else schedule.text
    return KernelAnalysis(entry, variant.name, text, evaluation.amounts([entry.costs]), work, bound)


def _totals(rows: Iterable[tuple[Evaluation, Iterable[Costs]]], launches: int) -> Totals:
    """The sum of the costs of each variant, by its own sizes."""
    return Totals(launches, _sum([evaluation.amounts(costs) for evaluation, costs in rows]))


def _sum(parts: Sequence[Amounts]) -> Amounts:
    return Amounts(*(together([getattr(part, name) for part in parts]) for name in NAMES))


def _live(buffers: Sequence[Buffer], variant: str) -> int:
    """The most bytes of a variant that are live in one phase."""
    change: dict[int, int] = {}
    for buffer in buffers:
        if buffer.variant == variant:
            change[buffer.first] = change.get(buffer.first, 0) + buffer.bytes
            change[buffer.last + 1] = change.get(buffer.last + 1, 0) - buffer.bytes
    now = most = 0
    for phase in sorted(change):
        now += change[phase]
        most = max(most, now)
    return most


_NUMBERS = (*NAMES, "intensity")
NODE_COLUMNS = (
    "name", "operator", "outcome", "kernels", "parameters", "parameter_bytes", "launches", *_NUMBERS, "source",
)  # fmt: skip
KERNEL_COLUMNS = (
    "variant", "name", "phase", "nodes", "weight_bytes", *_NUMBERS, "threads", "predicted_seconds", "bound",
    "floor_seconds", "schedule",
)  # fmt: skip
"""The columns of `node_rows` and `kernel_rows`."""


def node_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The nodes as flat rows, for tables, CSV and DataFrames."""
    return [
        {
            "name": node.name,
            "operator": node.operator,
            "outcome": node.outcome,
            "kernels": " ".join(node.kernels),
            "parameters": node.parameters,
            "parameter_bytes": node.parameter_bytes,
            "launches": node.launches,
            **_numbers(node.amounts),
            "source": node.source,
        }
        for node in analysis.nodes
    ]


def kernel_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The kernels as flat rows; seconds are predicted for the threads of each."""
    return [
        {
            "variant": kernel.variant,
            "name": kernel.entry.name,
            "phase": kernel.entry.phase,
            "nodes": " ".join(kernel.entry.nodes),
            "weight_bytes": kernel.entry.weights,
            **_numbers(kernel.amounts),
            "threads": kernel.work.threads,
            "predicted_seconds": kernel.work.seconds,
            "bound": "" if kernel.bound is None else kernel.bound.name,
            "floor_seconds": None if kernel.bound is None else kernel.bound.floor,
            "schedule": kernel.schedule,
        }
        for kernel in analysis.kernels
    ]


def _numbers(amounts: Amounts) -> dict[str, Any]:
    return {name: getattr(amounts, name).value for name in NAMES} | {"intensity": amounts.intensity}
