"""Where sessions are defined."""

from opweld.runtime.onnxruntime_api import InferenceSession as InferenceSession
from opweld.runtime.onnxruntime_api import IOBinding as IOBinding
from opweld.runtime.onnxruntime_api import OrtDevice as OrtDevice
from opweld.runtime.onnxruntime_api import OrtValue as OrtValue
