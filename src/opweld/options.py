"""What a user can ask for: the options of a compilation and the environment variables, both checked on the way in."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, TypedDict, cast, get_args

from opweld import extensions
from opweld.errors import OptionError
from opweld.groups import group_processors
from opweld.interface import Specialisation
from opweld.option import (
    choice,
    count,
    entries,
    file,
    names,
    names_by_name,
    objects,
    option,
    per_input,
    sizes,
    texts_by_id,
    whole_number,
)
from opweld.rules import LEVELS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from opweld.rewrite import Pass, Rule

ProcessorName: TypeAlias = Literal["native", "x86-64-v3", "x86-64-v4", "aarch64"]
GpuName: TypeAlias = Literal["cuda", "sm_80", "sm_90"]
TargetName: TypeAlias = ProcessorName | GpuName
LevelName: TypeAlias = Literal["none", "basic", "extended", "all"]
TuneName: TypeAlias = Literal["off", "quick", "full"]
DenormalsName: TypeAlias = Literal["keep", "zero"]
PrecisionName: TypeAlias = Literal["fp32", "bf16", "tf32", "int8-weights", "int4-weights"]
PROCESSORS: tuple[str, ...] = get_args(ProcessorName)
GPUS: tuple[str, ...] = get_args(GpuName)
TARGETS = (*PROCESSORS, *GPUS)
TUNING: tuple[str, ...] = get_args(TuneName)
DENORMALS: tuple[str, ...] = get_args(DenormalsName)
PRECISIONS: tuple[str, ...] = get_args(PrecisionName)
MAX_THREADS = 1024
DEFAULT_CACHE_LIMIT = 20 << 30
_BYTES = re.compile(r"(\d+(?:\.\d*)?)\s*([kKMGT])?i?B?")
MAX_SCHEDULES = 1 << 28
"""Characters of a schedules file."""


def available_cores() -> int:
    """The number of processor cores that this process may use: its CPU affinity, limited by its control groups' CPU
    quota."""
    allowed = len(os.sched_getaffinity(0))
    return min(allowed, group_processors() or allowed)


class CompileOptions(TypedDict, total=False):
    """The keyword arguments of every function that compiles, for type checkers: an entry for each of `Options`."""

    target: TargetName | str
    level: LevelName
    threads: SupportsIndex
    dims: Mapping[str, SupportsIndex] | None
    dim_hints: Mapping[str, SupportsIndex] | None
    disable: Iterable[str]
    pins: Mapping[str, str] | None
    schedules: str | os.PathLike[str] | None
    lengths: Mapping[str, SupportsIndex | None] | None
    ranks: Mapping[str, SupportsIndex] | None
    constants: Mapping[str, ArrayLike] | None
    tune: TuneName
    denormals: DenormalsName
    precision: PrecisionName
    states: Mapping[str, str] | None
    rules: Iterable[Rule | Pass | type[Rule | Pass]]


def _length(name: str, value: object) -> int | None:
    return None if value is None else whole_number(name, value, 0, 2**31 - 1)


def _rank(name: str, value: object) -> int:
    return whole_number(name, value, 0, 2**31 - 1)


def _elements(name: str, value: object) -> Any:
    """Nested lists of Python's own numbers, which JSON takes."""
    elements = cast("Any", value).tolist() if hasattr(value, "tolist") else value
    try:
        return json.loads(json.dumps(elements))
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} is {value!r}, expected a number, or lists of numbers") from error


_PRECISION = choice(PRECISIONS, "NAME")


def _precision(name: str, value: object) -> object:
    if value == "int8":
        raise OptionError(
            f"{name} is 'int8', which needs data to find the ranges of values: quantize the model with opweld.quantize"
            " (opweld quantize MODEL --data SAMPLES), and compile what it writes"
        )
    return _PRECISION.check(name, value)


@dataclass(frozen=True)
class Options:
    """How to compile a model: the table of options. Checks, flags and documentation follow from it, see `option`.

    Attributes:
        schedules_text: the contents of the file `schedules`, read when the options are made.
        lenient: whether entries of `disable`, `pins` and `schedules` are ignored where the decision does not occur or
            the alternative is illegal, see `fitted`.
    """

    target: str = option(
        "native",
        choice(TARGETS, "NAME", partial(extensions.names, extensions.TARGETS)),
        "the machine to compile for: native, x86-64-v3, x86-64-v4 or aarch64; of GPUs cuda, sm_80 or sm_90",
        flag="--target",
    )
    level: str = option(
        "all",
        choice(LEVELS, "LEVEL"),
        "how much to optimise: none, basic, extended or all",
        more="With none, one kernel a node.",
        flag="--level",
        rewriting=True,
    )
    threads: int = option(
        0,
        count(0, MAX_THREADS),
        "at most so many threads a run; 0 for all processors of the machine that it runs on",
        more="A compiled model serves any number; what is tuned is run with so many.",
        flag="--threads",
        key=lambda options, threads: None if options.tune == "off" else threads,
    )
    dims: Mapping[str, int] = option(
        {},
        sizes(0),
        "sizes of symbolic dims of the inputs, which become constants of the compiled model",
        flag="--dim",
    )
    dim_hints: Mapping[str, int] = option(
        {},
        sizes(1),
        "sizes that symbolic dims are expected to have: kernels are chosen for them, and right for any",
        flag="--dim-hint",
    )
    disable: tuple[str, ...] = option(
        (),
        names("ids, rules or stages of decisions", "ID"),
        "ids, rules or stages of decisions that stay at their baseline",
        more="`opweld explain` lists them.",
        flag="--disable",
        key=lambda _, disable: sorted(set(disable)),
        rewriting=True,
    )
    pins: Mapping[str, str] = option(
        {},
        texts_by_id(),
        "by id of a decision, the name of the alternative to take",
        flag="--pin",
        rewriting=True,
    )
    schedules: Path | None = option(
        None,
        file("a schedules file"),
        "a file that says how kernels are computed: the schedules.txt of an artifact, or an edited one",
        flag="--schedules",
        key=lambda options, _: options.schedules_text,  # whatever its name
    )
    lengths: Mapping[str, int | None] = option(
        {},
        per_input("whole numbers, or None", {"x": 2}, _length),
        "by input that is a sequence, how many tensors it holds; by one that is an optional, 0 or 1, or none where it"
        " holds nothing",
        more="None in Python. The compiled model takes this structure only.",
        flag="--length",
    )
    ranks: Mapping[str, int] = option(
        {},
        per_input("whole numbers", {"x": 2}, _rank),
        "by input that does not declare its dims, how many it has",
        more="The tensors of a sequence x are x[0], x[1], and so on, here and in constants.",
        flag="--rank",
    )
    constants: Mapping[str, Any] = option(
        {},
        per_input("numbers, or lists of them", {"x": [1, 2]}, _elements, item="VALUE"),
        "by input, the elements that it always has: a number, or lists of numbers as [1,2]",
        more="For inputs that decide how long a sequence is.",
        flag="--constant",
    )
    tune: str = option(
        "off",
        choice(TUNING, "HOW"),
        "try other schedules on this machine and keep what is faster: off, quick (seconds) or full (minutes)",
        more="They run on inputs made up for it. It is remembered for this model and machine.",
        flag="--tune",
    )
    denormals: str = option(
        "keep",
        choice(DENORMALS, "HOW"),
        "keep numbers below the smallest normal one of their type, or take them for zero, which is faster on some"
        " processors and changes answers",
        flag="--denormals",
    )
    precision: str = option(
        "fp32",
        dataclasses.replace(_PRECISION, check=_precision),
        "what operands of matrix products and convolutions may be rounded to: fp32, which rounds nothing, bf16, or on a"
        " GPU tf32; with int8-weights and int4-weights their weights",
        more="Sums are float32 or exact, everything else stays float32; each product is a decision, and rounded where"
        " that is faster. See docs/guides/precision.md.",
        flag="--precision",
    )
    states: Mapping[str, str] = option(
        {},
        names_by_name("names of outputs", {"past": "present"}, of="an output", item="OUTPUT"),
        "by input that is a value which lives between runs, the output that it becomes, or patterns with one * in both",
        more="Runs are given a state instead of these inputs, and write it in place: see docs/guides/state.md.",
        flag="--state",
    )
    rules: tuple[object, ...] = option(
        (),
        objects("rules and passes"),
        "rules and passes (`opweld.rewrite.Rule`, `Pass`), or their classes, that rewrite the graph beside opweld's own"
        " and those of installed packages",
        key=lambda _, rules: None,  # `extensions.digest` makes one of them
    )
    schedules_text: str = field(default="", init=False, repr=False)
    lenient: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        for entry in entries(self):
            _set(self, entry.name, entry.option.kind.check(entry.name, getattr(self, entry.name)))
        if self.states and self.tune != "off":
            raise OptionError("tune: a model with states cannot be tuned, as its runs depend on those before them")
        if self.precision == "tf32" and self.target in PROCESSORS:
            raise OptionError("precision is 'tf32', which tensor cores of GPUs multiply; name one: target='cuda'")
        if self.schedules is not None:
            _set(self, "schedules_text", _read_schedules(self.schedules))

    @classmethod
    def of(cls, **values: Any) -> Options:
        """Options from keyword arguments, None for what is not given. Raises OptionError on an unknown name, listing
        the valid ones."""
        names = [entry.name for entry in entries(cls)]
        unknown = sorted(set(values) - set(names))
        if unknown:
            raise OptionError(f"unknown option {unknown[0]!r}; the options are {', '.join(names)}")
        return cls(**{name: value for name, value in values.items() if value is not None})

    @classmethod
    def of_texts(cls, given: Mapping[str, Any]) -> Options:
        """Options from what a command line gave, by name: a list of texts where a flag is repeated. Raises OptionError
        naming the flag."""
        values: dict[str, Any] = {}
        for entry in entries(cls):
            value, told = given.get(entry.name), entry.option
            if value is not None:
                value = value if told.kind.read is None else told.kind.read(told.flag, value)
                values[entry.name] = told.kind.check(told.flag, value)
        return cls(**values)

    def keywords(self) -> CompileOptions:
        """The keyword arguments that these options are made of."""
        values = _values(self)
        return cast(CompileOptions, {entry.name: values[entry.name] for entry in entries(self)})

    def digest(self) -> str:
        """A hash of all that changes what is compiled, but for rules, of which `extensions.digest` makes one."""
        values = _values(self)
        for entry in entries(self):
            key = entry.option.key
            values[entry.name] = values[entry.name] if key is None else key(self, values[entry.name])
        del values["schedules_text"]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def fitted(self, dims: Mapping[str, int]) -> Options:
        """These options for another compilation at sizes that the first one's assumptions exclude. A run waits for it,
        so nothing is tuned; and it is lenient, because pins were written for the first one's decisions."""
        chosen = dataclasses.replace(self, dims={**self.dims, **dims}, tune="off")
        _set(chosen, "lenient", True)
        return chosen

    @property
    def specialisation(self) -> Specialisation:
        """The options that specialise the model to its inputs."""
        return Specialisation(self.lengths, self.ranks, self.constants)

    def specialised(self, known: Specialisation) -> Options:
        """These options, completed by `known` where they do not specialise an input themselves."""
        return dataclasses.replace(
            self,
            lengths={**known.lengths, **self.lengths},
            ranks={**known.ranks, **self.ranks},
            constants={**known.constants, **self.constants},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_options, (self.keywords(),))


def _values(options: Options) -> dict[str, Any]:
    """All fields by name, with dicts, for a mappingproxy neither pickles nor becomes JSON."""
    fields: dict[str, Any] = {entry.name: getattr(options, entry.name) for entry in dataclasses.fields(options)}
    mappings = {name: dict(cast("Mapping[str, Any]", v)) for name, v in fields.items() if isinstance(v, Mapping)}
    return fields | mappings


def _options(values: dict[str, Any]) -> Options:
    return Options(**values)


def _read_schedules(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_SCHEDULES + 1)
    except (OSError, ValueError) as error:
        raise OptionError(f"schedules {str(path)!r}: cannot be read ({error}); name a schedules.txt") from error
    if len(text) > MAX_SCHEDULES:
        raise OptionError(f"schedules {str(path)!r}: is longer than {MAX_SCHEDULES:,} characters; name a schedules.txt")
    return text


def _set(options: Options, name: str, value: object) -> None:
    object.__setattr__(options, name, value)


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
        """Whether the stages are dumped or verified, so that they must run even for a cached model."""
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
