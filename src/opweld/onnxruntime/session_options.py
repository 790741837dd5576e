"""The options that users of onnxruntime set, and what they mean here."""

from __future__ import annotations

import dataclasses
import enum
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from opweld.errors import OptionError, UnsupportedError
from opweld.onnxruntime.io_binding import OrtValue
from opweld.options import CompileOptions, LevelName
from opweld.runtime.plan import Array

PROVIDER: Final = "CPUExecutionProvider"
"""The only execution provider: what sessions run on."""


Providers = Sequence[str | tuple[str, Mapping[str, Any]]]
"""Names of execution providers, or pairs of a name and its options."""


class GraphOptimizationLevel(enum.IntEnum):
    """How much to optimise; `level` is opweld's word for it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99

    @property
    def level(self) -> LevelName:
        """The value of the option `level`."""
        names: dict[int, LevelName] = {0: "none", 1: "basic", 2: "extended"}
        return names.get(int(self), "all")


class ExecutionMode(enum.IntEnum):
    """Accepted; opweld orders kernels at compile time and uses all threads in each."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted; opweld orders kernels at compile time."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_REFUSED_ENTRIES: Final = {
    ("session.load_model_format", "ORT"): "opweld reads ONNX files only",
    ("session.save_model_format", "ORT"): "opweld writes artifacts only, with `opweld compile`",
    ("ep.context_enable", "1"): "opweld writes artifacts only, with `opweld compile`",
    ("session.model_external_initializers_file_folder_path", None): "give the path of the model, beside its data",
}
"""Configuration entries (with any value where None) that ask for what cannot be, and what to do instead."""


class _Entries:
    """Texts by key, as sessions and runs keep them."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.texts: dict[str, str] = {}

    def get(self, key: str) -> str:
        if key not in self.texts:
            raise _NoEntryError(f"the {self.owner} has no configuration entry {key!r}")
        return self.texts[key]

    def put(self, key: str, value: str) -> None:
        if not isinstance(cast(object, key), str) or not isinstance(cast(object, value), str):
            raise OptionError(f"configuration entry {key!r} is {value!r}; keys and values are texts")
        self.texts[key] = value


class _NoEntryError(OptionError, RuntimeError):
    """As onnxruntime raises a RuntimeError there."""


@dataclass(slots=True)
class RunOptions:
    """Options of one run. A name that is not listed here is an AttributeError.

    Attributes:
        terminate: end the run before it begins, with an error.
        log_severity_level, log_verbosity_level, logid: without effect, as runs write no log.
        only_execute_path_to_fetches: without effect; all outputs are computed.
    """

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    _entries: _Entries = field(default_factory=lambda: _Entries("run"), repr=False, compare=False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps a configuration entry; none has an effect."""
        self._entries.put(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry kept under `key`. Raises OptionError, a RuntimeError too, where there is none."""
        return self._entries.get(key)

    def add_active_adapter(self, adapter: object) -> None:
        """Not supported: weights are compiled in."""
        raise UnsupportedError("opweld has no adapters: weights are compiled in; export the model with them merged")


@dataclass(slots=True)
class SessionOptions:
    """Options of an InferenceSession. A name that is not listed here is an AttributeError.

    Attributes:
        intra_op_num_threads: at most so many threads a run, 0 for one per available processor.
        graph_optimization_level: how much to optimise the model.
        enable_profiling, profile_file_prefix: time every kernel of every run; `end_profiling` writes the file.
        inter_op_num_threads, execution_mode, execution_order, use_per_session_threads, enable_cpu_mem_arena,
        enable_mem_pattern, enable_mem_reuse, use_deterministic_compute, log_severity_level, log_verbosity_level, logid:
            accepted without effect, as memory and order are planned and results are deterministic in any case.
        optimized_model_filepath: not supported; what is optimised is no ONNX graph any more.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_profiling: bool = False
    profile_file_prefix: str = "opweld_profile_"
    optimized_model_filepath: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    initializers: dict[str, Array] = field(default_factory=dict[str, Array], init=False, repr=False, compare=False)
    """What takes the place of the model's initializers, by name; see `add_initializer`."""
    denotations: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False)
    """Sizes of dims by what they denote; see `add_free_dimension_override_by_denotation`."""
    _entries: _Entries = field(default_factory=lambda: _Entries("session"), init=False, repr=False, compare=False)
    _dims: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False)

    @classmethod
    def of(cls, options: object) -> SessionOptions:
        """`options` itself, or those of onnxruntime's own object as far as it tells: its attributes. What was added by
        calls (sizes of dims, initializers, entries) cannot be read from it. Raises OptionError for other things."""
        if not options:  # None, and {}: onnxruntime takes whatever is false for none
            return cls()
        if isinstance(options, cls):
            return options
        made = cls()
        for entry in dataclasses.fields(cls):
            if entry.init and hasattr(options, entry.name):
                setattr(made, entry.name, getattr(options, entry.name))
        if not hasattr(options, "intra_op_num_threads") or not hasattr(options, "graph_optimization_level"):
            raise OptionError(f"sess_options is {options!r}, expected SessionOptions")
        if made.profile_file_prefix == "onnxruntime_profile_":
            made.profile_file_prefix = cls().profile_file_prefix
        return made

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps a configuration entry. They are about speed and memory, and have no effect here; those that ask for
        what cannot be are refused when the session is made."""
        self._entries.put(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry kept under `key`. Raises OptionError, a RuntimeError too, where there is none."""
        return self._entries.get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Compiles the model for this size of the symbolic dim `name`."""
        self._dims[name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Compiles the model for this size of all dims that denote this, such as DATA_BATCH."""
        self.denotations[denotation] = size

    def add_initializer(self, name: str, ort_value: OrtValue) -> None:
        """Puts a value in the place of the model's initializer `name`, when the session is made."""
        self.initializers[name] = ort_value.numpy()

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[OrtValue]) -> None:
        """`add_initializer` for each."""
        for name, value in zip(names, ort_values, strict=True):
            self.add_initializer(name, value)

    def add_provider(self, provider_name: str, provider_options: Mapping[str, str] | None = None) -> None:
        """Accepts any provider; warns when it is not the CPU, which sessions run on."""
        check_providers([provider_name])

    def has_providers(self) -> bool:
        """False: sessions run on the CPU, whatever is added."""
        return False

    def register_custom_ops_library(self, path: str) -> None:
        """Not supported: operators of other runtimes' libraries cannot be compiled."""
        raise UnsupportedError(f"{path}: opweld cannot load custom operators of another runtime")

    def compile_options(self) -> CompileOptions:
        """The options of `opweld.compile` that these amount to. Raises OptionError on values that cannot be."""
        for entry in dataclasses.fields(self):
            if entry.init:
                _check(entry.name, getattr(self, entry.name), entry.default)
        if self.intra_op_num_threads < 0:
            raise OptionError(f"intra_op_num_threads is {self.intra_op_num_threads}, expected 0 or more")
        if self.optimized_model_filepath:
            raise OptionError(
                f"optimized_model_filepath is {self.optimized_model_filepath!r}, but opweld writes no ONNX model; "
                "leave it empty, and save what was compiled with `opweld compile`"
            )
        for key, value in self._entries.texts.items():
            remedy = _REFUSED_ENTRIES.get((key, value)) or _REFUSED_ENTRIES.get((key, None))
            if remedy is not None:
                raise OptionError(f"configuration entry {key!r} is {value!r}, which cannot be: {remedy}")
        options: CompileOptions = {"level": _level_of(self.graph_optimization_level)}
        if self._entries.texts.get("session.set_denormal_as_zero") == "1":
            options["denormals"] = "zero"
        if self.intra_op_num_threads:
            options["threads"] = self.intra_op_num_threads
        if self._dims:
            options["dims"] = dict(self._dims)
        return options


def _level_of(value: Any) -> LevelName:
    """onnxruntime's own enumeration, which is no number, and plain numbers serve too."""
    try:
        return GraphOptimizationLevel(int(getattr(value, "value", value))).level
    except (TypeError, ValueError) as error:
        raise OptionError(f"graph_optimization_level is {value!r}, expected a GraphOptimizationLevel") from error


def _check(name: str, value: object, default: object) -> None:
    """Raises OptionError unless `value` is of the kind of the option's default."""
    if isinstance(default, enum.IntEnum):
        return
    if isinstance(default, str):
        right = isinstance(value, str)
    elif isinstance(default, bool):
        right = isinstance(value, bool) or value in (0, 1)
    else:
        try:
            operator.index(cast(Any, value))
            right = not isinstance(value, bool)
        except TypeError:
            right = False
    if not right:
        raise OptionError(f"{name} is {value!r}, expected a value like {default!r}")


def check_providers(providers: Providers | None, provider_options: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Checks a list of execution providers as onnxruntime does, and warns of each that is not there.

    Raises OptionError, a ValueError too, where names and options do not fit together.
    """
    if providers is None:
        return
    providers = [providers] if isinstance(providers, str) else providers
    if not isinstance(cast(object, providers), Sequence):
        raise OptionError(f"providers is {providers!r}, expected a list, as [{PROVIDER!r}]")
    if provider_options is not None:
        if len(providers) != len(provider_options):
            raise OptionError("'providers' and 'provider_options' should be the same length if both are given")
        if not all(isinstance(provider, str) for provider in providers):
            raise OptionError("only names are expected in 'providers' where 'provider_options' is given")
        if not all(isinstance(cast(object, options), Mapping) for options in provider_options):
            raise OptionError("'provider_options' holds what is no dict")
    for provider in providers:
        name = _provider_name(provider)
        if name != PROVIDER:
            warnings.warn(
                f"Specified provider {name!r} is not in available provider names. Available providers: {PROVIDER!r}",
                stacklevel=4,
            )


def _provider_name(provider: object) -> str:
    if isinstance(provider, str):
        return provider
    if isinstance(provider, tuple | list):
        parts = cast("Sequence[object]", provider)
        if len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], Mapping):
            return parts[0]
    raise OptionError(f"'providers' holds {provider!r}, expected a name or a pair of a name and a dict of options")
