"""See `opweld.capi.onnxruntime_inference_collection`."""

from opweld.capi.onnxruntime_inference_collection import *  # noqa: F403
