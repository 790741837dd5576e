"""The document that a report shows: one JSON object with all that is known of a compilation.

What is null was not asked for, or cannot be had; the page says so in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

FORMAT = 1
"""Version of the document: fields may be added to it, none goes or changes what it means."""

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Document:
    """What there is to show of a model.

    Attributes:
        title, model: what to call it; as on the command line.
        opweld, target: the compiler's version; what was compiled for.
        account: what `opweld explain --json` writes, of all nodes and decisions.
        sources: the generated C by "variant/kernel".
        analysis, profile, machine: what `opweld analyze`, `profile` and `machine` write; None where there is none.
        profile_reason: why there is no profile.
        numerics: {"outputs", "values", "source"}: errors of outputs against the source, of values on the way against
            float64; None, or values empty, for `numerics_reason`.
        peers: [{"name", "median", "best"}], seconds; opweld's own first, taken in the same contest.
        notes: what else is to be said, in sentences.
    """

    title: str
    model: str
    opweld: str
    target: str
    account: Data
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    analysis: Data | None = None
    profile: Data | None = None
    profile_reason: str = ""
    machine: Data | None = None
    numerics: Data | None = None
    numerics_reason: str = ""
    peers: Sequence[Data] = ()
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, with the time of now, and the `times` of kernels, see `times_of`. What was measured on
        a machine that was too busy is said first in the notes."""
        made = datetime.now(UTC).isoformat(timespec="seconds")
        warning = (self.profile or {}).get("disturbance", {}).get("warning", "")
        own = {**vars(self), "peers": list(self.peers), "notes": [*([warning] if warning else []), *self.notes]}
        return {"format": FORMAT, "made": made, **own, "times": times_of(self.account, self.analysis, self.profile)}


def times_of(account: Data, analysis: Data | None, profile: Data | None) -> dict[str, Any]:
    """The times that a report shows, from one source each, so that parts add up to the wholes beside them.

    `predicted`: seconds on as many threads as `threads` says, of each kernel by [variant, name], and of all of them one
    after the other. `measured`: of each kernel its part of a run, `run` the median of runs with clocks; `idle` what no
    kernel takes of it: the four of `Idle`, and `rest`, by which medians of parts fall short of the run or exceed it.
    None where nothing ran."""
    analysed = [(k["variant"], k["name"], k["predicted"]) for k in (analysis or {}).get("kernels", ())]
    if analysed:
        predicted = [(variant, name, own["seconds"]) for variant, name, own in analysed]
        threads = max(own["threads"] for _, _, own in analysed)
    else:
        predicted = [(k["variant"], k["name"], k["seconds"]) for k in account["kernels"]]
        threads = 1
    return {
        "predicted": {
            "threads": threads,
            "all": sum(seconds for _, _, seconds in predicted),
            "kernels": [list(one) for one in predicted],
        },
        "measured": None if profile is None else _measured(profile),
    }


def _measured(profile: Data) -> dict[str, Any]:
    kernels = [[k["variant"], k["name"], k["seconds"]["median"]] for k in profile["kernels"]]
    run, idle = profile["timed"]["median"], dict(profile["idle"])
    rest = run - sum(seconds for *_, seconds in kernels) - sum(idle.values())
    return {"threads": profile["threads"], "run": run, "kernels": kernels, "idle": {**idle, "rest": rest}}
