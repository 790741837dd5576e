"""onnxruntime's names of errors, and what they are called here.

A name that stands for several of ours is the class that they share. What `except Fail` catches is therefore more than
there: whatever opweld raises on purpose.
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
from opweld.onnxruntime import *  # noqa: F403 - what the real module has too

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
    """New options, as they are where none are given."""
    return SessionOptions()  # noqa: F405
