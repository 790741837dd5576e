"""onnxruntime's names of errors, mapped to those of opweld.

A name that corresponds to several errors of opweld is their base class. So `except Fail` catches more than in
onnxruntime: any error that opweld raises.
"""

from __future__ import annotations

from opweld.errors import (
    DamagedModelError,
    InputError,
    MissingModelError,
    ModelError,
    OpweldError,
    RunError,
    UnsupportedError,
)
from opweld.onnxruntime import *  # noqa: F403 - as in the real module

Fail = OpweldError
InvalidArgument = InputError
InvalidGraph = ModelError
InvalidProtobuf = DamagedModelError
NoSuchFile = MissingModelError
NotImplemented = UnsupportedError
RuntimeException = RunError


class NoModel(OpweldError):
    """Never raised: a session has its model."""


class EngineError(OpweldError):
    """Never raised: there is one engine, which raises its own errors."""


class ModelLoaded(OpweldError):
    """Never raised: a session loads one model."""


class EPFail(OpweldError):
    """Never raised: there is no provider that could fail and be replaced."""


class DeviceReset(OpweldError):
    """Never raised: the processor is not reset."""


class NotFound(OpweldError):
    """Never raised: a missing file is NoSuchFile."""


class ModelLoadCanceled(OpweldError):
    """Never raised: loading cannot be cancelled."""


class ModelRequiresCompilation(OpweldError):
    """Never raised: models are compiled when they are opened."""


def get_default_session_options() -> SessionOptions:  # noqa: F405
    """New options with default values."""
    return SessionOptions()  # noqa: F405
