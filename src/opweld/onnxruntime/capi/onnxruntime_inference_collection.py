"""Where sessions are defined."""

from opweld.onnxruntime import InferenceSession as InferenceSession
from opweld.onnxruntime import IOBinding as IOBinding
from opweld.onnxruntime import OrtDevice as OrtDevice
from opweld.onnxruntime import OrtValue as OrtValue
