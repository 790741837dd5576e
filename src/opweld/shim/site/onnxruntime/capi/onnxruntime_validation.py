"""See `opweld.capi.onnxruntime_validation`."""

from opweld.capi.onnxruntime_validation import *  # noqa: F403
