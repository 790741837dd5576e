"""onnxruntime's session and run options, and the options of opweld that they set."""

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
from opweld.options import CompileOptions, LevelName, PrecisionName
from opweld.runtime.plan import Array

PROVIDER: Final = "CPUExecutionProvider"
"""The only execution provider."""


Providers = Sequence[str | tuple[str, Mapping[str, Any]]]
"""Names of execution providers, or pairs of a name and its options."""


class GraphOptimizationLevel(enum.IntEnum):
    """How much to optimise; opweld's option is `level`."""

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
"""Configuration entries (with any value where None) that are not supported, and what to do instead."""


class _Entries:
    """Configuration entries of sessions and runs."""

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
    """Also a RuntimeError, as in onnxruntime."""


@dataclass(slots=True)
class RunOptions:
    """Options of one run. A name that is not listed here is an AttributeError.

    Attributes:
        terminate: terminate the run before it begins, with an error.
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
        """Stores a configuration entry; none has an effect."""
        self._entries.put(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry stored under `key`. Raises OptionError, also a RuntimeError, if there is none."""
        return self._entries.get(key)

    def add_active_adapter(self, adapter: object) -> None:
        """Not supported: weights are compiled in."""
        raise UnsupportedError("opweld has no adapters: weights are compiled in; export the model with them merged")


@dataclass(slots=True)
class SessionOptions:
    """Options of an InferenceSession. A name that is not listed here is an AttributeError.

    Attributes:
        intra_op_num_threads: maximum number of threads of a run, 0 for one per available processor.
        graph_optimization_level: how much to optimise the model.
        enable_profiling, profile_file_prefix: measure every kernel of every run; `end_profiling` writes the file.
        inter_op_num_threads, execution_mode, execution_order, use_per_session_threads, enable_cpu_mem_arena,
        enable_mem_pattern, enable_mem_reuse, use_deterministic_compute, log_severity_level, log_verbosity_level, logid:
            accepted without effect: memory and order are planned, and results are deterministic, in any case.
        optimized_model_filepath: not supported; the optimised form is not an ONNX graph.
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
    """Replacements of the model's initializers, by name; see `add_initializer`."""
    denotations: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False)
    """Sizes of dims by denotation; see `add_free_dimension_override_by_denotation`."""
    _entries: _Entries = field(default_factory=lambda: _Entries("session"), init=False, repr=False, compare=False)
    _dims: dict[str, int] = field(default_factory=dict[str, int], init=False, repr=False)

    @classmethod
    def of(cls, options: object) -> SessionOptions:
        """`options` itself, or the attributes of onnxruntime's own object. What was set by calls (sizes of dims,
        initializers, entries) cannot be read from it. Raises OptionError for other objects."""
        if not options:  # None, and {}: onnxruntime treats false values as None
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
        """Stores a configuration entry. Entries concern speed and memory, and have no effect here; unsupported ones
        raise an error when the session is created."""
        self._entries.put(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry stored under `key`. Raises OptionError, also a RuntimeError, if there is none."""
        return self._entries.get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Compiles the model for this size of the symbolic dim `name`."""
        self._dims[name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Compiles the model for this size of all dims with this denotation, such as DATA_BATCH."""
        self.denotations[denotation] = size

    def add_initializer(self, name: str, ort_value: OrtValue) -> None:
        """Replaces the model's initializer `name` when the session is created."""
        self.initializers[name] = ort_value.numpy()

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[OrtValue]) -> None:
        """`add_initializer` for each."""
        for name, value in zip(names, ort_values, strict=True):
            self.add_initializer(name, value)

    def add_provider(self, provider_name: str, provider_options: Mapping[str, str] | None = None) -> None:
        """Accepts any provider; warns if it is not the CPU."""
        check_providers([provider_name])

    def has_providers(self) -> bool:
        """False: sessions always run on the CPU."""
        return False

    def register_custom_ops_library(self, path: str) -> None:
        """Not supported: operators of other runtimes' libraries cannot be compiled."""
        raise UnsupportedError(f"{path}: opweld cannot load custom operators of another runtime")

    def compile_options(self) -> CompileOptions:
        """The options of `opweld.compile` that these correspond to. Raises OptionError for unsupported values."""
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
                raise OptionError(f"configuration entry {key!r} is {value!r}, which is not supported: {remedy}")
        options: CompileOptions = {"level": _level_of(self.graph_optimization_level)}
        if self._entries.texts.get("session.set_denormal_as_zero") == "1":
            options["denormals"] = "zero"
        precision = self._entries.texts.get("opweld.precision")
        if precision is not None:
            options["precision"] = cast("PrecisionName", precision)
        if self.intra_op_num_threads:
            options["threads"] = self.intra_op_num_threads
        if self._dims:
            options["dims"] = dict(self._dims)
        return options


def _level_of(value: Any) -> LevelName:
    """onnxruntime's own enumeration, which is not a number, and plain numbers are accepted."""
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
    """Checks a list of execution providers as onnxruntime does, and warns of unavailable ones.

    Raises OptionError, also a ValueError, if names and options do not match.
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
            raise OptionError("'provider_options' holds a value that is not a dict")
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
