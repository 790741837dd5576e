"""The object in `_sess` of onnxruntime's sessions, for programs that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opweld.onnxruntime.session import InferenceSession


class InnerSession:
    """A session with the names of onnxruntime's compiled class."""

    def __init__(self, session: InferenceSession) -> None:
        self.run = session.run
        self.run_async = session.run_async
        self.run_with_iobinding = session.run_with_iobinding
        self.end_profiling = session.end_profiling
        self.get_profiling_start_time_ns = session.get_profiling_start_time_ns
        self.get_providers = session.get_providers
        self.get_provider_options = session.get_provider_options
        self.inputs_meta = session.get_inputs()
        self.outputs_meta = session.get_outputs()
        self.overridable_initializers = session.get_overridable_initializers()
        self.model_meta = session.get_modelmeta()
        self.session_options = session.get_session_options()
