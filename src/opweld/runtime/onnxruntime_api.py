"""The calls that users of onnxruntime know, on an opweld session. `import opweld as ort` serves most programs."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from opweld.build import artifact
from opweld.errors import InputError, OptionError
from opweld.interface import TensorInfo
from opweld.options import Options
from opweld.runtime.bind import Array
from opweld.runtime.io_binding import IOBinding, OrtValue, type_name
from opweld.runtime.profile import Profile
from opweld.runtime.session import Session
from opweld.runtime.session_options import ExecutionMode, GraphOptimizationLevel, RunOptions, SessionOptions

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]

_PROVIDER: Final = "CPUExecutionProvider"


def get_available_providers() -> list[str]:
    """What sessions can run on."""
    return [_PROVIDER]


def get_device() -> str:
    """What sessions run on."""
    return "CPU"


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model.

    Attributes:
        name: in the model.
        shape: sizes, and names of dims that vary; None for a dim without name.
        type: such as tensor(float).
    """

    name: str
    shape: list[int | str | None]
    type: str


@dataclass(frozen=True)
class ModelMetadata:
    """What the model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """A compiled model, with onnxruntime's methods. Any number of threads may run it at the same time."""

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Opens an artifact, or compiles a model; what was compiled before is opened from the cache.

        Args:
            path_or_bytes: a folder that `opweld compile` wrote, or an ONNX file, or its bytes.
            sess_options: number of threads, level, profiling.
            providers, provider_options: as for onnxruntime; only the CPU is there.
            options: further options of `opweld.compile`.

        Raises ModelError, UnsupportedError, ArtifactError, OptionError.
        """
        self._options = sess_options or SessionOptions()
        self.set_providers(providers)
        chosen = Options.of(**{**self._options.compile_options(), **options})
        self._session = Session(_folder_of(path_or_bytes, chosen), threads=chosen.threads or None)
        self._positions = {name: i for i, name in enumerate(self._session.output_names)}
        self._trace: list[tuple[int, Profile]] = []
        self._trace_lock = threading.Lock()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Array],
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """Computes the named outputs, or all where None or empty, in that order. See `Session.run`."""
        run = self._profiled_run if self._options.enable_profiling else self._session.run
        outputs = run(input_feed)
        return [outputs[self._position(name)] for name in output_names] if output_names else outputs

    def _position(self, name: str) -> int:
        if name not in self._positions:
            known = ", ".join(map(repr, self._positions))
            raise InputError(f"{name!r} is no output of the model; its outputs are {known}")
        return self._positions[name]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Like `run`, on OrtValues."""
        feeds = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(array) for array in self.run(output_names, feeds, run_options)]

    def io_binding(self) -> IOBinding:
        """A new binding of inputs and outputs to memory."""
        return IOBinding(self._session.output_names)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs on bound memory: inputs are read and outputs are written where they are."""
        targets = {name: array for name, array in iobinding.targets.items() if array is not None}
        outputs = self._session.run_into(iobinding.feeds, targets)
        iobinding.results = {name: outputs[self._positions[name]] for name in iobinding.targets}

    # ---- what the session tells about itself ----

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in the model's order."""
        return [_node_arg(info) for info in self._session.manifest.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return [_node_arg(info) for info in self._session.manifest.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are compiled in."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        data = self._session.manifest.metadata
        return ModelMetadata(
            producer_name=data.producer,
            graph_name=data.graph,
            domain=data.domain,
            description=data.description,
            graph_description=data.graph_description,
            version=data.version,
            custom_metadata_map=dict(data.custom),
        )

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """What the session runs on."""
        return [_PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options of what the session runs on: none."""
        return {_PROVIDER: {}}

    def set_providers(
        self,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Accepts any list of providers; warns when the CPU, which the session runs on, is not among them."""
        names = [provider if isinstance(provider, str) else provider[0] for provider in providers or [_PROVIDER]]
        if _PROVIDER not in names:
            warnings.warn(f"none of {', '.join(names)} is available; running on {_PROVIDER}", stacklevel=3)

    # ---- profiling ----

    def _profiled_run(self, feeds: Mapping[str, Array]) -> list[Array]:
        start = time.perf_counter_ns()
        profile = self._session.profile(feeds)
        with self._trace_lock:
            self._trace.append((start, replace(profile, outputs=[])))
        return profile.outputs

    def end_profiling(self) -> str:
        """Writes the kernels of all runs since the last call to a file for chrome://tracing; returns its path."""
        if not self._options.enable_profiling:
            raise OptionError("profiling was not enabled: set SessionOptions.enable_profiling")
        with self._trace_lock:
            trace, self._trace = self._trace, []
        path = Path(f"{self._options.profile_file_prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        path.write_text(json.dumps(_chrome_events(trace)), encoding="utf-8")
        return str(path)


def _chrome_events(trace: list[tuple[int, Profile]]) -> list[dict[str, object]]:
    """One event for each thread that had a part in a kernel, times in microseconds."""
    events: list[dict[str, object]] = []
    for start, profile in trace:
        for part in profile.parts:
            step = profile.plan.steps[part.step]
            events.append(
                {
                    "cat": "Node",
                    "ph": "X",
                    "pid": os.getpid(),
                    "tid": part.thread,
                    "name": step.name,
                    "ts": (start + part.begin) / 1000,
                    "dur": (part.end - part.begin) / 1000,
                    "args": {"nodes": step.origin, "phase": step.phase, "busy_us": part.busy / 1000},
                }
            )
    return events


def _node_arg(info: TensorInfo) -> NodeArg:
    return NodeArg(info.name, [None if dim == "" else dim for dim in info.shape or ()], type_name(info.dtype))


def _folder_of(model: str | os.PathLike[str] | bytes, options: Options) -> Path:
    if not isinstance(model, bytes) and (Path(model) / artifact.MANIFEST).exists():
        return Path(model)
    from opweld.compile import compile_model  # running an artifact imports no compiler

    return compile_model(model if isinstance(model, bytes) else Path(model), options)
