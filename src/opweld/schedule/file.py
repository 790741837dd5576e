"""Schedules files: how every kernel of a model is computed, as text to keep, to edit and to give back.

    variant main
    decision 36cfefb0d0 fuse.chain fused  # Add 0 > Relu 0
    region "Conv 0" : contraction lane=i1 vectors=2 row=i3 height=6 order=lanes taps=loop; loop unroll=4

A line `region` says how the kernels of a region are computed, which is named by its first output; a line `decision`
what was taken where no schedule holds it: fusion, storage. Given back, both are as good as pins. A region that is
left out is chosen by the compiler. A decision that is left out stays at its baseline, unless all of its variant are
left out, which leaves them to the compiler. `#` begins a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from opweld.errors import OptionError
from opweld.ledger import Decision, printable
from opweld.schedule.schedule import Schedule, parse_schedule
from opweld.schedules_file import PinnedDecision, PinnedRegion, SchedulesFile

HEADER = """\
# How every kernel of the model is computed. Edit a line, or leave some out, and give the file back:
#     opweld compile MODEL --schedules FILE
"""

_BARE = re.compile(r"[A-Za-z0-9_./-]+")


def print_schedules(schedules: Mapping[tuple[str, str], Schedule], decisions: Iterable[Decision]) -> str:
    """The text of a file: `schedules` by variant and label of the region, and all decisions of the compilation."""
    others: dict[str, list[Decision]] = {}
    for decision in decisions:
        if not decision.part:
            others.setdefault(decision.variant, []).append(decision)
    lines: list[str] = []
    for variant in dict.fromkeys((*others, *(name for name, _ in schedules))):
        lines += ["", f"variant {_quoted(variant)}"]
        for found in others.get(variant, ()):
            words = " ".join((found.id, found.rule, _quoted(found.taken)))
            lines.append(f"decision {words}  # {printable(found.subject)}")
        lines += [f"region {_quoted(at[1])} : {text}" for at, text in schedules.items() if at[0] == variant]
    return HEADER + "\n".join(lines) + "\n"


def parse_schedules(text: str, source: str = "schedules") -> SchedulesFile:
    """What a file says. Raises OptionError with `source` and the number of a line that cannot be read."""
    decisions: dict[str, PinnedDecision] = {}
    regions: dict[tuple[str, str], PinnedRegion] = {}
    variant = ""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            kind, words, rest = _words(line)
            if kind == "variant" and len(words) == 1 and rest is None:
                (variant,) = words
            elif kind == "region" and len(words) == 1 and rest is not None:
                if (variant, words[0]) in regions:
                    raise OptionError(f"region {words[0]!r} is there twice")
                schedule = parse_schedule(rest)
                regions[variant, words[0]] = PinnedRegion(number, str(schedule), dict(schedule.fields()))
            elif kind == "decision" and len(words) == 3 and rest is None:
                if words[0] in decisions:
                    raise OptionError(f"decision {words[0]} is there twice")
                decisions[words[0]] = PinnedDecision(number, variant, words[1], words[2])
            elif kind:
                raise OptionError(
                    "expected `variant NAME`, `region NAME : SCHEDULE` or `decision ID RULE ALTERNATIVE`, "
                    f"found {printable(line)!r}"
                )
        except OptionError as error:
            raise OptionError(f"{source}, line {number}: {error}") from None
    return SchedulesFile(source, decisions, regions)


def _words(line: str) -> tuple[str, list[str], str | None]:
    """The first word, those after it, and what follows a colon that stands alone."""
    words: list[str] = []
    for start, word in _tokens(line):
        if word == ":" and line[start] == ":":
            return words[0] if words else "", words[1:], line[start + 1 :].partition("#")[0]
        words.append(word)
    return (words[0], words[1:], None) if words else ("", [], None)


def _tokens(line: str) -> Iterator[tuple[int, str]]:
    """Words and quoted texts with their positions, up to a comment."""
    position = 0
    while True:
        while position < len(line) and line[position].isspace():
            position += 1
        if position == len(line) or line[position] == "#":
            return
        start = position
        if line[start] == '"':
            try:
                word, position = json.JSONDecoder().raw_decode(line, start)
            except ValueError as error:
                raise OptionError(f"{printable(line[start:])} is no quoted text ({error})") from None
        else:
            while position < len(line) and not line[position].isspace():
                position += 1
            word = line[start:position]
        yield start, word


def _quoted(text: str) -> str:
    return text if _BARE.fullmatch(text) else json.dumps(text)
