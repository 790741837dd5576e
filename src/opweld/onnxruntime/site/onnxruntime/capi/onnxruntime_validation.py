"""See `opweld.onnxruntime.capi.onnxruntime_validation`."""

from opweld.onnxruntime.capi.onnxruntime_validation import *  # noqa: F403
