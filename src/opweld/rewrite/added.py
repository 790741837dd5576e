"""Rules and passes of users: given in Python, or found through entry points."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from opweld import extensions
from opweld.errors import OptionError
from opweld.rewrite.rule import Pass, Rule
from opweld.rules import LEVELS, stage_of
from opweld.rules import REWRITES as OWN_REWRITES
from opweld.rules import RULES as OWN_RULES
from opweld.rules import DecisionRule as Kind

Added: TypeAlias = "Rule | Pass"

_NAME = re.compile(r"[A-Za-z]\w*(\.\w+)+")
_OWN_STAGES = frozenset({"opweld", *map(stage_of, OWN_RULES), *map(stage_of, OWN_REWRITES)})


def added(given: Iterable[object] = ()) -> tuple[Added, ...]:
    """The given rules and passes, then those of installed packages; of several with the same name, the first.

    Each may be a rule, a pass or its class; an entry point may be a list of them. Raises OptionError for a given object
    that is neither; an invalid one of a package is skipped with a warning.
    """
    found: dict[str, Added] = {}
    for thing in given:
        rule = _checked(thing)
        if rule.name in found:
            raise OptionError(f"rules contains two with the name {rule.name}")
        found[rule.name] = rule
    for title, loaded in extensions.load(extensions.RULES):
        things = cast("Sequence[object]", loaded) if isinstance(loaded, list | tuple) else (loaded,)
        for thing in things:
            try:
                rule = _checked(thing)
            except OptionError as error:
                extensions.warn(title, str(error))
            else:
                found.setdefault(rule.name, rule)
    return tuple(found.values())


def kinds(rules: Iterable[Added]) -> Mapping[str, Kind]:
    """The rows that the table of decisions gets for rules."""
    return {rule.name: Kind(rule.level, "as written", (rule.__doc__ or "rewritten").splitlines()[0]) for rule in rules}


def _checked(thing: object) -> Added:
    """A rule or pass, instantiated if a class is given, with name, level and operators validated."""
    if isinstance(thing, type) and issubclass(thing, Rule | Pass):
        thing = thing()
    if not isinstance(thing, Rule | Pass):
        raise OptionError(f"{thing!r} is not a rule: expected a Rule or a Pass of opweld.rewrite")
    title = f"rule {type(thing).__qualname__}"
    name: Any = getattr(thing, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or stage_of(name) in _OWN_STAGES:
        own = ", ".join(sorted(_OWN_STAGES))
        raise OptionError(f"{title}: its name is {name!r}, expected package.rule, of a package other than {own}")
    level: Any = thing.level
    if level not in LEVELS:
        raise OptionError(f"{title}: its level is {level!r}, expected one of {', '.join(LEVELS)}")
    operators: Any = getattr(thing, "operators", None)
    if isinstance(thing, Rule) and not (
        isinstance(operators, tuple) and operators and all(isinstance(o, str) for o in cast("tuple[Any]", operators))
    ):
        raise OptionError(f"{title}: its operators are {operators!r}, expected a tuple of names such as ('Mul', 'Div')")
    return thing
