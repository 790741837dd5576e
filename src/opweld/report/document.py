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
        numerics: {"outputs", "values"}: errors against float64; None, or values empty, for `numerics_reason`.
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
        """A dict of JSON types, with the time of now."""
        made = datetime.now(UTC).isoformat(timespec="seconds")
        own = {**vars(self), "peers": list(self.peers), "notes": list(self.notes)}
        return {"format": FORMAT, "made": made, **own}
