"""A profile as text: the table of kernels, the totals, and one kernel in full."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opweld.account.account import Account
from opweld.account.summary import bytes_text, seconds_text
from opweld.analysis.profile import KernelProfile, ModelProfile
from opweld.analysis.resources import Resources, resource_text
from opweld.display import Piece, Table
from opweld.errors import OptionError
from opweld.ledger import printable
from opweld.record import FileNode
from opweld.table import Column

SORTS: Mapping[str, Callable[[KernelProfile], float]] = {
    "time": lambda kernel: -kernel.seconds.median,
    "busy": lambda kernel: -kernel.busy,
    "waiting": lambda kernel: -kernel.waiting,
    "flops": lambda kernel: -kernel.flops_per_s,
    "bytes": lambda kernel: -kernel.bytes_per_s,
    "order": lambda kernel: 0,
}
"""Sort keys of the table, by name; operations and bytes sort by rate."""

_NAME = 46
"""Characters of a node's name in the table."""

_LEFT_OUT = (
    "segment",
    "phase",
    "expected",
    "waiting",
    "threads",
    "GOP/s",
    "GB/s",
    "p90",
    "busy",
    "predicted",
    "bound",
)
"""Columns of the table, in the order in which they are dropped from narrow tables."""

NAMES = {"kernel": 21, "nodes": 16}
"""Columns of names, and their least widths."""

_SCREEN = 12
"""The number of kernels that a profile displays by default."""

_WORTH_TELLING = 0.02
"""The fraction of threads' waiting time that is reported."""

_SLOWED = 3.0
"""How many times longer than predicted a kernel with denormal numbers takes that they slow down: predictions err by
less, and an exception of the processor takes 100 times as long as a product."""

_STOPPED = 0.15
"""The fraction of a run of at least a millisecond between phases that cannot be caused by threads."""

_IDLE: Mapping[str, str] = {
    "call": "around the call",
    "before": "before the first",
    "between": "between phases",
    "after": "after the last",
}


def pieces_of(profile: ModelProfile) -> list[Piece]:
    """The default display of a profile."""
    warning = [f"warning: {profile.disturbance.warning}"] if profile.disturbance.warning else []
    shapes = f"{_count(profile.threads, 'thread')}, inputs {_shapes(profile)}"
    return [*warning, shapes, profile_table(profile, "time", _SCREEN), "\n".join(_run_lines(profile))]


def profile_table(profile: ModelProfile, sort: str, top: int) -> Table:
    """The table of kernels; see `table_rows`."""
    columns, rows = table_rows(profile, sort, top)
    return Table(tuple(map(_column, columns)), tuple(map(tuple, rows)))


def _column(title: str) -> Column:
    rank = len(_LEFT_OUT) - _LEFT_OUT.index(title) if title in _LEFT_OUT else 0
    return Column(title, rank, NAMES.get(title, 0), left=title in ("kernel", "nodes", "bound", "expected"))


def table_rows(profile: ModelProfile, sort: str, top: int) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Columns and rows of the `top` first kernels, all if it is 0, the sum of the others, and idle time."""
    judged = any(kernel.judgement.bound for kernel in profile.kernels)
    whole = _whole(profile)
    unit, scale = ("ms", 1e3) if whole >= 1e-3 else ("us", 1e6)

    def duration(seconds: float) -> str:
        return f"{seconds * scale:.3f}"

    head = ["", ""] if profile.segments > 1 else [""]
    columns = ["kernel", *(["segment"] if profile.segments > 1 else []), "phase", unit, "p90", "share", "threads"]
    columns += ["busy", "waiting", "GOP/s", "GB/s", "predicted"]
    columns += [*(["bound", "expected"] if judged else []), "nodes"]
    ordered = sorted(profile.kernels, key=SORTS[sort])
    shown = ordered[: top or None]
    rows: list[Sequence[str]] = [_row(kernel, duration, judged, profile.segments > 1) for kernel in shown]
    rest = ordered[len(shown) :]
    blank = [""] * (len(columns) - 4 - len(head))
    if rest:
        seconds, part = sum(k.seconds.median for k in rest), sum(k.share for k in rest)
        rows.append([f"({len(rest)} more)", *head, duration(seconds), "", f"{part:.1%}", *blank])
    share = "100.0%" if profile.kernels else ""
    rows.append(["all kernels", *head, duration(float(np.median(profile.in_kernels))), "", share, *blank])
    idle = vars(profile.idle)
    rows += [[f"idle {words}", *head, duration(idle[name]), "", "", *blank] for name, words in _IDLE.items()]
    rows.append(["a timed run", *head, duration(whole), "", "", *blank])
    return columns, rows


RESOURCE_COLUMNS = ("kernel", "vector registers", "spilled", "stack", "nodes")


def resource_rows(profile: ModelProfile, sort: str, known: Mapping[str, Resources]) -> list[Sequence[str]]:
    """The resources of each kernel under `RESOURCE_COLUMNS`: registers used, moves between them and the stack in its
    inner loops, bytes of stack; "-" if not known."""
    rows: list[Sequence[str]] = []
    for kernel in sorted(profile.kernels, key=SORTS[sort]):
        found = known.get(f"{kernel.variant}/{kernel.name}")
        taken = ["-"] * 3 if found is None else [str(found.registers), str(len(found.spills)), f"{found.stack:,}"]
        rows.append([kernel.name, *taken, _nodes(kernel.nodes)])
    return rows


def _whole(profile: ModelProfile) -> float:
    """Seconds of a timed run, the median."""
    return float(np.median(profile.timed))


def _row(kernel: KernelProfile, duration: Callable[[float], str], judged: bool, segments: bool) -> list[str]:
    again = f"  x {kernel.times}" if kernel.times > 1 else ""
    row = [
        f"{kernel.name}{again}",
        *([str(kernel.segment)] if segments else []),
        str(kernel.phase),
        duration(kernel.seconds.median),
        duration(kernel.seconds.p90),
        f"{kernel.share:.1%}",
        str(kernel.threads),
        duration(kernel.busy),
        duration(kernel.waiting),
        f"{kernel.flops_per_s * 1e-9:.1f}",
        f"{kernel.bytes_per_s * 1e-9:.1f}",
        duration(kernel.predicted),
    ]
    if judged:
        bound, predicted = kernel.judgement.bound, kernel.judgement.predicted
        name, other = ("" if one is None else one.name for one in (bound, predicted))
        row += [name, other if name and other != name else ""]
    return [*row, _nodes(kernel.nodes)]


def _nodes(names: Sequence[str]) -> str:
    """The last of some nodes, usually the one that characterises a kernel, and the number of others."""
    if not names:
        return ""
    name = names[-1]
    short = name if len(name) <= _NAME else f"...{name[3 - _NAME :]}"
    return printable(short) + (f" +{len(names) - 1}" if len(names) > 1 else "")


def summary_text(profile: ModelProfile, model: str, target: str, account: Account) -> str:
    """The text below the table."""
    head = f"{printable(model)} for {target}, {_count(profile.threads, 'thread')}, inputs {_shapes(profile)}" + (
        f", variant {printable(profile.variant)}" if len(account.record.variants) > 1 else ""
    )
    return "\n".join((head, *_run_lines(profile))) + "\n"


def _shapes(profile: ModelProfile) -> str:
    return ", ".join(f"{printable(name)} {'x'.join(map(str, s)) or 'scalar'}" for name, s in profile.inputs.items())


def _run_lines(profile: ModelProfile) -> list[str]:
    """Latency, the fraction of kernels, counters, and problems."""
    latency = profile.latency
    p95, p99 = (float(np.percentile(profile.plain, part)) for part in (95, 99))
    lines = [
        f"latency without clocks: median {seconds_text(latency.median)}, best {seconds_text(latency.best)}, "
        f"p90 {seconds_text(latency.p90)}, p95 {seconds_text(p95)}, p99 {seconds_text(p99)} "
        f"of {_count(len(profile.plain), 'run')}; {profile.per_second:,.4g} a second, one after the other",
        f"with clocks: median {seconds_text(float(np.median(profile.timed)))}, best "
        f"{seconds_text(float(np.min(profile.timed)))} of {_count(len(profile.timed), 'run')}; {_overhead(profile)}",
        f"{profile.accounted:.1%} of a run is in kernels",
        _counters(profile),
    ]
    busy, waiting = (sum(getattr(kernel, name) for kernel in profile.kernels) for name in ("busy", "waiting"))
    if waiting > _WORTH_TELLING * (busy + waiting):
        lines.append(f"threads that share a phase wait {waiting / (busy + waiting):.1%} of their time in it")
    lines += _denormals(profile)
    between = profile.idle.between / _whole(profile)
    if between > _STOPPED and _whole(profile) >= 1e-3:
        lines.append(
            f"{between:.0%} of a run passes between phases: the system has preempted threads that others wait "
            "for, because other programs use these processors. Close those, or use fewer --threads"
        )
    return lines


def _denormals(profile: ModelProfile) -> list[str]:
    """The kernels that denormal numbers slow down."""
    slow = [k for k in profile.kernels if k.denormals and k.busy > _SLOWED * k.predicted]
    seconds, whole = sum(k.seconds.median for k in slow), _whole(profile)
    if seconds < _WORTH_TELLING * whole:
        return []
    first = sorted(slow, key=SORTS["time"])[:3]
    names = ", ".join(f"{printable(k.name)} ({_nodes(k.nodes)})" for k in first)
    more = f", and {len(slow) - len(first)} more" if len(slow) > len(first) else ""
    return [
        f"{seconds / whole:.0%} of a run is in {_count(len(slow), 'kernel')} that compute with denormal numbers, for "
        f"which this processor takes many times longer: {names}{more}. Where numbers below 1.2e-38 may count as 0, as "
        "in channels that training has let die: --denormals zero"
    ]


def _overhead(profile: ModelProfile) -> str:
    """The overhead of clocks."""
    overhead = profile.overhead
    if overhead.added is None:
        return f"the overhead of clocks is not measurable here, as rounds of runs differ by {overhead.noise:.1%}"
    return f"clocks add {overhead.added:.1%}, give or take {overhead.noise:.1%}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _counters(profile: ModelProfile) -> str:
    counters = profile.counters
    if not counters.available:
        return f"no hardware counters: {counters.reason}"
    shown = [f"{name.replace('_', ' ')} {value:,.3g}" for name, value in counters.values.items()]
    return f"of a run, all threads: {', '.join(shown)}"


def kernels_called(profile: ModelProfile, account: Account, name: str) -> list[KernelProfile]:
    """The kernels of a name, or those that compute a node of it, by its name in the file or in the compiler.

    Raises OptionError with similar names if there is none."""
    found = [kernel for kernel in profile.kernels if kernel.name == name]
    called = {name, *(own for node in account.record.nodes if node.name == name for own in node.called)}
    found = found or [kernel for kernel in profile.kernels if called.intersection(kernel.nodes)]
    if found:
        return found
    known = dict.fromkeys((*(k.name for k in profile.kernels), *(n for k in profile.kernels for n in k.nodes)))
    ends = [other for other in known if name and other.endswith(f"/{name}")]
    close = [printable(other) for other in (ends or difflib.get_close_matches(name, known, 3, 0.6))[:3]]
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise OptionError(
        f"--kernel {printable(name)!r}: no kernel of this run is called that or computes such a node{hint}"
    )


def kernel_text(
    profile: ModelProfile, account: Account, kernel: KernelProfile, resources: Resources | None = None
) -> str:
    """One kernel in full: its nodes, its resources if known, and predictions beside measurements."""
    together = [other.name for other in profile.kernels if other.phase == kernel.phase and other is not kernel]
    beside = f", beside {', '.join(together)}" if together else ""
    again = f", {_count(kernel.times, 'time')} a run" if kernel.times > 1 else ""
    lines = [f"kernel {kernel.name} of {printable(kernel.variant)}, phase {kernel.phase}{again}{beside}"]
    lines += _members(profile, kernel)
    lines.append(f"  computes {_count(len(kernel.nodes), 'node')}")
    files = {name: node for node in account.record.nodes for name in node.called}
    lines += [f"    {_node(name, source, files)}" for name, source in zip(kernel.nodes, kernel.sources, strict=True)]
    if resources is not None:
        lines.append(f"  {resource_text(resources)}")
    lines += _comparison(kernel)
    for title, bound in (("measured", kernel.judgement.bound), ("predicted", kernel.judgement.predicted)):
        if bound is not None:
            floor = f", {seconds_text(bound.floor)} at least" if title == "measured" else ""
            lines.append(f"  {title}: bound by {bound.name}: {bound.reason}{floor}")
    if kernel.judgement.disagreement:
        lines.append(f"  they disagree: {kernel.judgement.disagreement}")
    if kernel.judgement.bound is not None:
        lines.append(f"  to try: {kernel.judgement.bound.try_next}")
    return "\n".join(lines) + "\n"


def _members(profile: ModelProfile, kernel: KernelProfile) -> list[str]:
    """The schedule of its region, a line for each member."""
    if not kernel.schedule:
        return ["  no schedule is recorded for it"]
    regions = [(k.name, (k.variant, k.region)) for k in profile.kernels if k is not kernel]
    sharing = [name for name, region in regions if region == (kernel.variant, kernel.region)]
    shared = f" (and of {', '.join(sharing)}, which the same region holds)" if sharing else ""
    lines = [f"  schedule of region {printable(kernel.region)}{shared}"]
    return lines + [f"    {part.strip()}" for part in kernel.schedule.split(";")]


def _node(name: str, source: str, files: Mapping[str, FileNode]) -> str:
    node = files.get(name)
    shown = printable(name)
    if node is not None:
        shown = f"{printable(node.operator)} {printable(node.name) or shown}"
        shown += f" (here {printable(name)})" if node.name and node.name != name else ""
    return shown + (f", from {printable(source)}" if source else "")


def _comparison(kernel: KernelProfile) -> list[str]:
    busy, threads = kernel.busy, max(1, kernel.threads)
    ratio = f"{busy / kernel.predicted:.2f} times the prediction" if kernel.predicted else ""
    seconds = kernel.seconds
    rows = [
        ("", "predicted", "measured"),
        ("computing, all threads", seconds_text(kernel.predicted), f"{seconds_text(busy)}  {ratio}".rstrip()),
        (
            "its part of the run",
            seconds_text(kernel.predicted / threads),
            f"{seconds_text(seconds.median)}  best {seconds_text(seconds.best)}, p90 {seconds_text(seconds.p90)}; "
            f"{kernel.share:.1%} of all kernels",
        ),
        ("threads", "", str(kernel.threads)),
        ("waiting, all threads", "", seconds_text(kernel.waiting)),
        ("operations", f"{kernel.flops:,}", f"{kernel.flops_per_s * 1e-9:.3g} GOP/s"),
        ("memory it must move", bytes_text(kernel.bytes), f"{kernel.bytes_per_s * 1e-9:.3g} GB/s"),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return [f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c}".rstrip() for a, b, c in rows]
