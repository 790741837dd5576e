"""See `opweld.onnxruntime.capi.onnxruntime_inference_collection`."""

from opweld.onnxruntime.capi.onnxruntime_inference_collection import *  # noqa: F403
