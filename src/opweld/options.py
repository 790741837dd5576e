"""What a user can ask for: the options of a compilation and the environment variables, both checked on the way in."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import operator
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, SupportsIndex, TypeAlias, TypedDict, cast, get_args

from opweld.errors import OptionError
from opweld.groups import group_processors
from opweld.interface import Specialisation
from opweld.rules import LEVELS

TargetName: TypeAlias = Literal["native", "x86-64-v3", "x86-64-v4", "aarch64"]
LevelName: TypeAlias = Literal["none", "basic", "extended", "all"]
TuneName: TypeAlias = Literal["off", "quick", "full"]
DenormalsName: TypeAlias = Literal["keep", "zero"]
TARGETS: tuple[str, ...] = get_args(TargetName)
TUNING: tuple[str, ...] = get_args(TuneName)
DENORMALS: tuple[str, ...] = get_args(DenormalsName)
MAX_THREADS = 1024
DEFAULT_CACHE_LIMIT = 20 << 30
_BYTES = re.compile(r"(\d+(?:\.\d*)?)\s*([kKMGT])?i?B?")
MAX_SCHEDULES = 1 << 28
"""Characters of a schedules file."""


def available_cores() -> int:
    """The number of processor cores that this process may use: those that it may run on, but no more than its control
    groups give it time of."""
    allowed = len(os.sched_getaffinity(0))
    return min(allowed, group_processors() or allowed)


class CompileOptions(TypedDict, total=False):
    """The keyword arguments that stand for `Options`, for functions that pass them on."""

    target: TargetName
    level: LevelName
    threads: SupportsIndex
    dims: Mapping[str, SupportsIndex]
    disable: Iterable[str]
    pins: Mapping[str, str]
    dim_hints: Mapping[str, SupportsIndex]
    schedules: str | os.PathLike[str] | None
    lengths: Mapping[str, SupportsIndex | None]
    ranks: Mapping[str, SupportsIndex]
    constants: Mapping[str, Any]
    tune: TuneName
    denormals: DenormalsName
    rules: Iterable[object]


@dataclass(frozen=True)
class Options:
    """How to compile a model.

    Attributes:
        target: the machine to compile for, one of `TARGETS`.
        level: how much to optimise, one of `LEVELS`; `none` compiles one kernel a node.
        threads: at most so many a run, 0 for all processors of the machine it runs on. No stage reads it: a compiled
            model serves any number. What is tuned is run with so many.
        dims: sizes for symbolic dims of the inputs, 0 included, which become constants of the compiled model.
        disable: ids, rules or stages of decisions that must stay at their baseline (`opweld explain` lists them).
        pins: by id of a decision, the name of the alternative to take.
        dim_hints: sizes that symbolic dims are expected to have; costs are predicted for them, any size stays legal.
        schedules: a file that says how kernels are computed, as the `schedules.txt` of an artifact does.
        tune: one of `TUNING`: whether other schedules are tried on this machine, and how many, see `opweld.tune`.
        schedules_text: what it holds, read when the options are made.
        lenient: whether what `disable`, `pins` and `schedules` say of decisions that are not met, or cannot be taken,
            is passed over, see `fitted`.
        lengths: by input that is a sequence, how many tensors it holds; by one that is an optional, 0 or 1, or None
            where it holds nothing.
        ranks: by input that does not declare its dims, how many it has; the tensors of a sequence x are x[0], x[1], ...
        constants: by input, the elements that it always has, as numbers or nested lists of them.
        denormals: one of `DENORMALS`: what numbers below the smallest normal one of their type are, read or computed.
            `zero` has the processor take them for 0, which changes answers; some processors multiply them a hundred
            times as slowly.
        rules: rules and passes of rewriting beside those of opweld and of installed packages, see `rewrite.added`.
    """

    target: str = "native"
    level: str = "all"
    threads: int = 0
    dims: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    disable: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    dim_hints: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    schedules: Path | None = None
    lengths: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"], hash=False)
    ranks: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    tune: str = "off"
    denormals: str = "keep"
    rules: tuple[object, ...] = field(default=(), hash=False)
    schedules_text: str = field(default="", init=False, repr=False)
    lenient: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_choice("target", self.target, TARGETS)
        _check_choice("level", self.level, LEVELS)
        _check_choice("tune", self.tune, TUNING)
        _check_choice("denormals", self.denormals, DENORMALS)
        _set(self, "threads", _count("threads", self.threads, 0, MAX_THREADS))
        _set(self, "dims", _sizes("dims", "dim", self.dims, 0))
        _set(self, "dim_hints", _sizes("dim_hints", "dim hint", self.dim_hints, 1))
        _set(self, "lengths", _by_input("lengths", "a whole number, or None", self.lengths, _length))
        _set(self, "ranks", _by_input("ranks", "a whole number", self.ranks, _length))
        _set(self, "constants", _by_input("constants", "numbers", self.constants, _elements))
        _set(self, "pins", _pins(self.pins))
        _set(self, "disable", _names("disable", self.disable))
        if not isinstance(cast(object, self.rules), Iterable):
            raise OptionError(f"rules is {self.rules!r}, expected a list of rules and passes")
        _set(self, "rules", tuple(self.rules))
        if self.schedules is not None:
            _set(self, "schedules_text", _read_schedules(self.schedules))
            _set(self, "schedules", Path(self.schedules))

    @classmethod
    def of(cls, **values: Any) -> Options:
        """Options from keyword arguments. Raises OptionError on an unknown name, listing the valid ones."""
        names = [entry.name for entry in dataclasses.fields(cls) if entry.init]
        unknown = sorted(set(values) - set(names))
        if unknown:
            raise OptionError(f"unknown option {unknown[0]!r}; the options are {', '.join(names)}")
        return cls(**values)

    def digest(self) -> str:
        """A hash of all options that change what is compiled, but for rules, of which `extensions.digest` makes one;
        `threads` does only where they are tuned for."""
        fixed = _values(self) | {
            "rules": None,
            "disable": sorted(set(self.disable)),
            "schedules": None,  # by its text, whatever its name
            "threads": None if self.tune == "off" else self.threads,
        }
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()

    def fitted(self, dims: Mapping[str, int]) -> Options:
        """These options for feeds of sizes that what was compiled with them refused. A run waits for it, so nothing is
        tuned; and what they say of single decisions is about another compilation, which met others."""
        chosen = dataclasses.replace(self, dims={**self.dims, **dims}, tune="off")
        _set(chosen, "lenient", True)
        return chosen

    @property
    def specialisation(self) -> Specialisation:
        """What the options say of how inputs are fed."""
        return Specialisation(self.lengths, self.ranks, self.constants)

    def specialised(self, known: Specialisation) -> Options:
        """These options, and this of how inputs are fed where they do not say it themselves."""
        return dataclasses.replace(
            self,
            lengths={**known.lengths, **self.lengths},
            ranks={**known.ranks, **self.ranks},
            constants={**known.constants, **self.constants},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        values = _values(self)
        return (_options, ({entry.name: values[entry.name] for entry in dataclasses.fields(self) if entry.init},))


def _values(options: Options) -> dict[str, Any]:
    """All fields by name, with dicts, for a mappingproxy neither pickles nor becomes JSON."""
    fields: dict[str, Any] = {entry.name: getattr(options, entry.name) for entry in dataclasses.fields(options)}
    mappings = {name: dict(cast("Mapping[str, Any]", v)) for name, v in fields.items() if isinstance(v, Mapping)}
    return fields | mappings


def _options(values: dict[str, Any]) -> Options:
    return Options(**values)


def _read_schedules(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise OptionError(f"schedules is {path!r}, expected the path of a schedules file")
    path = os.fspath(cast("str | os.PathLike[str]", path))
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_SCHEDULES + 1)
    except (OSError, ValueError) as error:
        raise OptionError(f"schedules {path!r}: cannot be read ({error}); name a schedules.txt") from error
    if len(text) > MAX_SCHEDULES:
        raise OptionError(f"schedules {path!r}: is longer than {MAX_SCHEDULES:,} characters; name a schedules.txt")
    return text


def _set(options: Options, name: str, value: object) -> None:
    object.__setattr__(options, name, value)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise OptionError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def _count(name: str, value: object, lowest: int, highest: int) -> int:
    """A whole number of any type that is one, numpy's included; True and False are none."""
    number = None
    if not isinstance(value, bool) and isinstance(value, SupportsIndex):
        with contextlib.suppress(TypeError):  # an array of several elements
            number = operator.index(value)
    if number is None or not lowest <= number <= highest:
        raise OptionError(f"{name} is {value!r}, expected a whole number from {lowest} to {highest}")
    return number


def _sizes(option: str, what: str, sizes: object, lowest: int) -> Mapping[str, int]:
    if not isinstance(sizes, Mapping):
        raise OptionError(f"{option} is {sizes!r}, expected sizes by name of symbolic dim, as {{'batch': 1}}")
    found: dict[str, int] = {}
    for name, size in cast("Mapping[object, object]", sizes).items():
        if not isinstance(name, str) or not name:
            raise OptionError(f"{option} has the key {name!r}, expected the name of a symbolic dim")
        found[name] = _count(f"{what} {name!r}", size, lowest, 2**63 - 1)
    return MappingProxyType(found)


def _by_input(option: str, what: str, values: object, check: Callable[[str, Any], Any]) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise OptionError(f"{option} is {values!r}, expected {what} by name of input, as {{'x': 2}}")
    found: dict[str, Any] = {}
    for name, value in cast("Mapping[object, object]", values).items():
        if not isinstance(name, str) or not name:
            raise OptionError(f"{option} has the key {name!r}, expected the name of an input")
        found[name] = check(f"{option} {name!r}", value)
    return MappingProxyType(found)


def _length(name: str, value: object) -> int | None:
    return None if value is None and name.startswith("lengths") else _count(name, value, 0, 2**31 - 1)


def _elements(name: str, value: object) -> Any:
    """Nested lists of Python's own numbers, which JSON takes."""
    elements = cast("Any", value).tolist() if hasattr(value, "tolist") else value
    try:
        return json.loads(json.dumps(elements))
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} is {value!r}, expected a number, or lists of numbers") from error


def _pins(pins: object) -> Mapping[str, str]:
    if not isinstance(pins, Mapping):
        raise OptionError(f"pins is {pins!r}, expected names of alternatives by id of a decision")
    found: dict[str, str] = {}
    for identity, alternative in cast("Mapping[object, object]", pins).items():
        if not isinstance(identity, str) or not isinstance(alternative, str) or not identity or not alternative:
            raise OptionError(f"pins holds {identity!r}: {alternative!r}, expected a decision's id and alternative")
        found[identity] = alternative
    return MappingProxyType(found)


def _names(option: str, names: object) -> tuple[str, ...]:
    if isinstance(names, str):
        raise OptionError(f"{option} is the text {names!r}, expected a list of decision ids, rules or stages")
    if not isinstance(names, Iterable):
        raise OptionError(f"{option} is {names!r}, expected a list of decision ids, rules or stages")
    found: list[str] = []
    for entry in cast("Iterable[object]", names):
        if not isinstance(entry, str) or not entry:
            raise OptionError(f"{option} holds {entry!r}, expected the id of a decision, a rule or a stage")
        found.append(entry)
    return tuple(found)


@dataclass(frozen=True)
class Environment:
    """The environment variables that opweld reads.

    Attributes:
        debug: OPWELD_DEBUG, 0 or 1: verify every stage, of models that the cache holds too, and show tracebacks.
        dump: OPWELD_DUMP, a folder that receives a numbered file a stage, of models that the cache holds too.
        cache: OPWELD_CACHE, the folder of compiled models, instead of ~/.cache/opweld.
        cache_limit: OPWELD_CACHE_LIMIT, bytes that the cache may hold after a compilation, as 500M or 20G.
        compiler: OPWELD_CC, a C compiler to call instead of zig: its path.
    """

    debug: bool = False
    dump: Path | None = None
    cache: Path | None = None
    compiler: Path | None = None
    cache_limit: int = DEFAULT_CACHE_LIMIT

    @property
    def watches(self) -> bool:
        """Whether the stages are to be seen: a compiled model in the cache tells nothing of them."""
        return self.debug or self.dump is not None

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Environment:
        """Reads `variables` (those of the process where None). Raises OptionError on a value that cannot be."""
        values = os.environ if variables is None else variables
        debug = values.get("OPWELD_DEBUG", "")
        if debug not in ("", "0", "1"):
            raise OptionError(f"OPWELD_DEBUG is {debug!r}, expected 0 or 1")
        return cls(
            debug=debug == "1",
            dump=_folder("OPWELD_DUMP", values.get("OPWELD_DUMP", "")),
            cache=_folder("OPWELD_CACHE", values.get("OPWELD_CACHE", "")),
            compiler=_program("OPWELD_CC", values.get("OPWELD_CC", "")),
            cache_limit=byte_count("OPWELD_CACHE_LIMIT", values.get("OPWELD_CACHE_LIMIT") or str(DEFAULT_CACHE_LIMIT)),
        )


def byte_count(name: str, text: str) -> int:
    """A number of bytes as people write it: 4096, 500M, 1.5GiB; units are powers of 1024. Raises OptionError."""
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{name} is {text!r}, expected a number of bytes such as 500M or 20G")
    return int(float(found[1]) * 1024 ** " KMGT".index((found[2] or " ").upper()))


def _folder(name: str, value: str) -> Path | None:
    if not value:
        return None
    try:
        path = Path(value).expanduser().absolute()
        existing = next(p for p in (path, *path.parents) if p.exists())
    except (RuntimeError, ValueError, OSError) as error:
        raise OptionError(f"{name} is {value!r}, which is no path ({error}); name a folder") from error
    if not existing.is_dir():
        raise OptionError(f"{name} is {value!r}, but {existing} is a file; name a folder")
    return path


def _program(name: str, value: str) -> Path | None:
    if not value:
        return None
    found = shutil.which(value)
    if found is None:
        raise OptionError(f"{name} is {value!r}, which is no program; name a C compiler such as gcc, or unset it")
    return Path(found).absolute()
