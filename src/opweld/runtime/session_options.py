"""The options that users of onnxruntime set, and what they mean here."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from opweld.errors import OptionError, UnsupportedError


class GraphOptimizationLevel(enum.IntEnum):
    """How much to optimise; `level` is opweld's word for it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99

    @property
    def level(self) -> str:
        """The value of the option `level`."""
        names = {0: "none", 1: "basic", 2: "extended"}
        return names.get(int(self), "all")


class ExecutionMode(enum.IntEnum):
    """Accepted; opweld orders kernels at compile time and uses all threads in each."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(slots=True)
class RunOptions:
    """Accepted by `run`; opweld writes no log."""

    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    terminate: bool = False
    only_execute_path_to_fetches: bool = False


@dataclass(slots=True)
class SessionOptions:
    """Options of an InferenceSession. A name that is not listed here is an AttributeError.

    Attributes:
        intra_op_num_threads: at most so many threads a run, 0 for one per available processor.
        graph_optimization_level: how much to optimise the model.
        enable_profiling, profile_file_prefix: time every kernel of every run; `end_profiling` writes the file.
        inter_op_num_threads, execution_mode, enable_cpu_mem_arena, enable_mem_pattern, enable_mem_reuse,
        use_deterministic_compute, log_severity_level, log_verbosity_level, logid: accepted without effect, as memory is
            planned and results are deterministic in any case.
        optimized_model_filepath: not supported; what is optimised is no ONNX graph any more.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    enable_profiling: bool = False
    profile_file_prefix: str = "opweld_profile_"
    optimized_model_filepath: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = False
    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    _entries: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    _dims: dict[str, int] = field(default_factory=dict[str, int], repr=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps a configuration entry; none has an effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The entry kept under `key`. Raises OptionError where there is none."""
        if key not in self._entries:
            raise OptionError(f"the session has no configuration entry {key!r}")
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Compiles the model for this size of the symbolic dim `name`."""
        self._dims[name] = size

    def register_custom_ops_library(self, path: str) -> None:
        """Not supported: operators of other runtimes' libraries cannot be compiled."""
        raise UnsupportedError(f"{path}: opweld cannot load custom operators of another runtime")

    def compile_options(self) -> dict[str, object]:
        """The options of `opweld.compile` that these amount to. Raises OptionError on values that cannot be."""
        if self.intra_op_num_threads < 0:
            raise OptionError(f"intra_op_num_threads is {self.intra_op_num_threads}, expected 0 or more")
        if self.optimized_model_filepath:
            raise OptionError(
                f"optimized_model_filepath is {self.optimized_model_filepath!r}, but opweld writes no ONNX model; "
                "leave it empty, and save what was compiled with `opweld compile`"
            )
        options: dict[str, object] = {"level": GraphOptimizationLevel(self.graph_optimization_level).level}
        if self.intra_op_num_threads:
            options["threads"] = self.intra_op_num_threads
        if self._dims:
            options["dims"] = dict(self._dims)
        return options
