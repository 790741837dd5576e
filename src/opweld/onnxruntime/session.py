"""onnxruntime's session API, implemented by an opweld session of a compiled model."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Unpack, cast

from opweld.build import artifact
from opweld.errors import (
    AssumptionError,
    InputError,
    ModelError,
    ModelTypeError,
    OptionError,
    RunError,
    UnspecifiedError,
    UnsupportedError,
)
from opweld.foreign import of_object
from opweld.interface import Argument, Specialisation, TensorInfo
from opweld.onnxruntime.inner_session import InnerSession
from opweld.onnxruntime.io_binding import IOBinding, OrtValue, type_name
from opweld.onnxruntime.session_options import PROVIDER, Providers, RunOptions, SessionOptions, check_providers
from opweld.option import documented
from opweld.options import CompileOptions, Options
from opweld.runtime.fitted import FittedSessions
from opweld.runtime.plan import Array
from opweld.runtime.profile import Profile
from opweld.runtime.session import Session
from opweld.runtime.specialised import SpecialisedSessions
from opweld.whole import write_text

_log = logging.getLogger("opweld")


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model.

    Attributes:
        name: in the model.
        type: such as tensor(float).
        shape: sizes, and names of dynamic dims; None for a dim without a name.
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


_STATE: Final = (
    "_sess_options",
    "_sess_options_initial",
    "_enable_fallback",
    "_chosen",
    "_source",
    "_model_path",
    "_verify",
)
"""The attributes of a session that are pickled; others are derived."""


class InferenceSession:
    """A compiled model, with onnxruntime's methods. It is safe to run from several threads at the same time.

    Sessions pickle: the copy opens the same artifact, or compiles the same model, which is then in the cache.

    Attributes of onnxruntime's sessions that begin with an underscore exist here under the same names where they are
    meaningful, since programs use them."""

    @documented(Options)
    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        enable_fallback: bool = True,
        disabled_optimizers: Iterable[str] | None = None,
        read_config_from_model: bool = False,
        verify: bool = False,
        **options: Unpack[CompileOptions],
    ) -> None:
        """Opens an artifact, or compiles a model; a model compiled before is opened from the cache.

        Args:
            path_or_bytes: a folder that `opweld compile` wrote, or an ONNX file, or its bytes.
            sess_options: number of threads, level, profiling; or onnxruntime's own object.
            providers, provider_options: as for onnxruntime; only the CPU is available; others cause a warning.
            enable_fallback: without effect, as there is no other provider to fall back to.
            disabled_optimizers: names of onnxruntime's optimisers; opweld has none of them; causes a warning.
            read_config_from_model: not supported if true.
            verify: compare the files of an artifact with their digests, as `opweld.load` does; those of models are in
                any case.
            options: see docs/options.md.

        Raises ModelError, UnsupportedError, ArtifactError, OptionError.
        """
        self._sess_options = SessionOptions.of(sess_options)
        self._sess_options_initial = None if sess_options is None else self._sess_options
        self._enable_fallback = bool(enable_fallback)
        check_providers(providers, provider_options)
        if disabled_optimizers:
            names = ", ".join(sorted(disabled_optimizers))
            warnings.warn(f"disabled_optimizers: opweld has no {names}; see its option disable", stacklevel=2)
        if read_config_from_model:
            raise OptionError("read_config_from_model: opweld takes options from its caller only")
        self._model_path = None if isinstance(path_or_bytes, bytes) else _path_of(path_or_bytes)
        self._source = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(_path_of(path_or_bytes))
        self._chosen = Options.of(**{**self._sess_options.compile_options(), **options})
        self._verify = verify
        self._open()
        if isinstance(self._source, Path):
            self._source = self._source.absolute()  # for a process that changes its working directory, and for pickling

    def _open(self) -> None:
        threads = self._chosen.threads or None
        self._session: Session | SpecialisedSessions
        try:
            self._session = Session(self._folder(self._chosen), threads=threads, verify=self._verify)
        except UnspecifiedError:
            from opweld.compile import declaration_of  # running an artifact imports no compiler

            structure, metadata = declaration_of(self._source)
            self._session = SpecialisedSessions(structure, metadata, self._specialised, threads)
            if self._chosen.tune != "off":
                _log.warning(
                    "not tuned: models that are compiled for each way to feed them are not; see opweld.compile"
                )
            interface = structure
        else:
            manifest = self._session.manifest
            metadata = manifest.metadata
            interface = manifest.structure or _as_declared(manifest)
            is_artifact = self._session.folder == self._source
            self._fitted = FittedSessions(self._session, None if is_artifact else self._fit)
        self._inputs_meta = [_node_arg(value) for value in interface.inputs]
        self._outputs_meta = [_node_arg(value) for value in interface.outputs]
        self._overridable_initializers: list[NodeArg] = []
        self._model_meta = ModelMetadata(
            producer_name=metadata.producer,
            graph_name=metadata.graph,
            domain=metadata.domain,
            description=metadata.description,
            graph_description=metadata.graph_description,
            version=metadata.version,
            custom_metadata_map=dict(metadata.custom),
        )
        self._providers = self._fallback_providers = [PROVIDER]
        self._provider_options: dict[str, dict[str, str]] = {PROVIDER: {}}
        self._positions = {node.name: i for i, node in enumerate(self._outputs_meta)}
        self._trace: list[tuple[int, Profile]] = []
        self._trace_lock = threading.Lock()
        self._opened_ns = time.monotonic_ns()

    def _fit(self, dims: Mapping[str, int]) -> Path:
        return self._folder(self._chosen.fitted(dims))

    def _specialised(self, dims: Mapping[str, int], known: Specialisation) -> Path:
        """The artifact for inputs of this form; it is not tuned, since a run waits for it."""
        chosen = replace(self._chosen, dims={**self._chosen.dims, **dims}, tune="off")
        return self._folder(chosen.specialised(known))

    def _folder(self, chosen: Options) -> Path:
        """The artifact of the session's model: itself, or compiled with these options."""
        model = self._source
        if not isinstance(model, bytes) and os.path.exists(model / artifact.MANIFEST):
            return model
        from opweld.cached import compile_model  # running an artifact imports no compiler

        own = self._sess_options
        if own.initializers or own.denotations:
            from opweld.compile import overridden

            return compile_model(overridden(model, own.initializers, own.denotations), chosen)
        return compile_model(model, chosen)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def session(self) -> Session:
        """The session of the compiled model. Raises UnsupportedError if one is compiled for each form of the inputs."""
        if isinstance(self._session, Session):
            return self._session
        raise UnsupportedError(
            "the model is compiled for each way to feed it; opweld.compile takes a fixed one, as lengths and ranks"
        )

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Array],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Computes the named outputs, or all if None or empty, in that order. See `Session.run`."""
        if run_options is not None:
            _check_run(run_options)
        session = self._session
        run = self._profiled_run if self._sess_options.enable_profiling else Session.run
        if isinstance(session, SpecialisedSessions):
            outputs = run(session.session_for(input_feed), input_feed)
        else:
            try:
                outputs = run(session, input_feed)
            except AssumptionError as error:
                outputs = self._fitted.answer(input_feed, error, lambda fitted: run(fitted, input_feed))
        return [outputs[self._position(name)] for name in output_names] if output_names else outputs

    def _position(self, name: str) -> int:
        if name not in self._positions:
            known = ", ".join(map(repr, self._positions))
            raise InputError(f"{name!r} is not an output of the model; its outputs are {known}")
        return self._positions[name]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Array],
        callback: Callable[[list[Array], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Returns at once and runs on a thread, which finally calls `callback(outputs, user_data, error)`: with an
        empty error text, or with no outputs and the error."""

        def work() -> None:
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except Exception as caught:  # noqa: BLE001 - the callback receives any error
                outputs, error = [], str(caught)
            callback(outputs, user_data, error)

        threading.Thread(target=work, name="opweld-run-async", daemon=True).start()

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
        """A new binding of inputs and outputs to memory. Raises UnsupportedError if some are not tensors."""
        if isinstance(self._session, SpecialisedSessions) or self._session.structure is not None:
            raise UnsupportedError("io_binding: some inputs or outputs of this model are not tensors; use run")
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs on bound memory: inputs and outputs are not copied."""
        if iobinding.session is not self:
            raise InputError("the binding was made for another session; bind again with this session's io_binding()")
        if run_options is not None:
            _check_run(run_options)
        assert isinstance(self._session, Session)
        targets = {name: array for name, array in iobinding.targets.items() if array is not None}
        try:
            outputs = self._session.run_into(iobinding.feeds, targets)
        except AssumptionError as error:
            outputs = self._fitted.answer(iobinding.feeds, error, lambda s: s.run_into(iobinding.feeds, targets))
        iobinding.results = {name: outputs[self._positions[name]] for name in iobinding.targets}

    # ---- queries ----

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in the model's order."""
        return list(self._inputs_meta)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return list(self._outputs_meta)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are compiled in."""
        return list(self._overridable_initializers)

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata of the model."""
        return self._model_meta

    def get_session_options(self) -> SessionOptions:
        """The options passed to the constructor."""
        return self._sess_options

    def get_providers(self) -> list[str]:
        """The execution providers of the session."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options of the execution providers: none."""
        return {name: dict(options) for name, options in self._provider_options.items()}

    def set_providers(
        self, providers: Providers | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Accepts any list of providers, and warns of unavailable ones; the session runs on the CPU."""
        check_providers(providers, provider_options)

    def enable_fallback(self) -> None:
        """Without effect on runs: there is no other provider to fall back to."""
        self._enable_fallback = True

    def disable_fallback(self) -> None:
        """Without effect on runs: there is no other provider to fall back to."""
        self._enable_fallback = False

    @property
    def _sess(self) -> InnerSession:
        return InnerSession(self)

    @property
    def _model_bytes(self) -> bytes | None:
        return self._source if isinstance(self._source, bytes) else None

    # ---- profiling ----

    def _profiled_run(self, session: Session, feeds: Mapping[str, Any]) -> list[Any]:
        start = time.perf_counter_ns()
        profile = session.profile(feeds)
        with self._trace_lock:
            self._trace.append((start, replace(profile, outputs=[])))
        return profile.outputs

    def get_profiling_start_time_ns(self) -> int:
        """When the session was opened, as `time.monotonic_ns` counts."""
        return self._opened_ns

    def end_profiling(self) -> str:
        """Writes the kernels of all runs since the last call to a file for chrome://tracing; returns its path, which is
        empty if `SessionOptions.enable_profiling` was not set."""
        if not self._sess_options.enable_profiling:
            return ""
        with self._trace_lock:
            trace, self._trace = self._trace, []
        path = Path(f"{self._sess_options.profile_file_prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        write_text(json.dumps(_chrome_events(trace)), path, "profile_file_prefix")
        return str(path)


def _chrome_events(trace: list[tuple[int, Profile]]) -> list[dict[str, object]]:
    """One event for each thread that computed a part of a kernel, times in microseconds."""
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


def _as_declared(manifest: artifact.Manifest) -> artifact.Manifest:
    """The manifest with the declared shapes of outputs; an older artifact has only inferred ones."""
    if len(manifest.declared_shapes) != len(manifest.outputs):
        return manifest
    outputs = (
        replace(info, shape=shape) for info, shape in zip(manifest.outputs, manifest.declared_shapes, strict=True)
    )
    return replace(manifest, outputs=tuple(outputs))


def _node_arg(info: TensorInfo | Argument) -> NodeArg:
    kind = info.type if isinstance(info, Argument) else type_name(info.dtype)
    return NodeArg(info.name, kind, [_dim(dim) for dim in info.shape or ()])


def _dim(dim: int | str) -> int | str | None:
    return None if dim == "" or (isinstance(dim, int) and dim < 0) else dim


def _path_of(model: object) -> str:
    if not isinstance(model, str | os.PathLike):
        what = of_object(model)
        if what is not None:
            raise ModelTypeError(f"the model is {what}")
        raise ModelTypeError(f"a model cannot be loaded from {type(model).__name__}; give a path, or bytes")
    if not os.fspath(cast("str | os.PathLike[str]", model)):
        raise ModelError("the path of the model is empty; expected that of an ONNX file, or of an artifact folder")
    return os.fspath(cast("str | os.PathLike[str]", model))


def _check_run(options: RunOptions) -> None:
    """onnxruntime's own object is accepted too: it has the same attributes."""
    if options.terminate:
        raise RunError("the run was terminated before it began: RunOptions.terminate is set")
