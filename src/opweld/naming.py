"""Checks the names of decisions, rules and stages in options, before the compilation begins."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from opweld.errors import OptionError
from opweld.rules import COMPILED, REWRITES, stage_of

_ID = re.compile(r"[0-9a-f]{10}")
"""A decision's id; whether it exists is known only after compiling, see `Ledger.check_names`."""


def check_names(disable: Iterable[str], pins: Mapping[str, str], rules: Collection[str]) -> None:
    """Raises OptionError for impossible names: `disable` takes ids, rules and stages, a pin takes an id.

    `rules`: the decision rules of the compilation."""
    stages = {stage_of(rule) for rule in rules}
    for name in disable:
        if not (name in rules or name in stages or _ID.fullmatch(name)):
            raise OptionError(f"disable {name!r}: no such decision, rule or stage; {_hint(name, rules, stages)}")
    for name in pins:
        if _ID.fullmatch(name):
            continue
        what = "is a rule" if name in rules else "is a stage" if name in stages else "is no id of a decision"
        more = f"; to keep all its decisions at their baseline, disable {name!r}" if name in {*rules, *stages} else ""
        raise OptionError(
            f"pin {name!r}={pins[name]}: {name!r} {what}, and a pin takes one alternative of one decision, by its id: "
            f"ten hexadecimal digits, which `opweld explain MODEL --all` lists (--ids those of schedules){more}"
        )


def _hint(name: str, rules: Collection[str], stages: Collection[str]) -> str:
    for other, command in ((REWRITES, "opweld optimize"), (COMPILED, "compiling")):
        if name in {*other, *map(stage_of, other)}:
            return f"it is decided by {command}"
    nearest = sorted(rules, key=lambda rule: -difflib.SequenceMatcher(None, name, rule).ratio())
    return f"the rules, the nearest first, are {', '.join(nearest)}; the stages {', '.join(sorted(stages))}"
