"""onnxruntime, as far as opweld is it. See `opweld.shim`."""

from __future__ import annotations

import pkgutil

from opweld.onnxruntime import *  # noqa: F403
from opweld.onnxruntime import API_VERSION

# What is plain Python in the real package, where it is installed; its `capi` is not reached, as there is one here.
__path__ = pkgutil.extend_path(__path__, __name__)  # noqa: F405

from onnxruntime import capi as capi

__version__ = version = API_VERSION
package_name = "onnxruntime"
cuda_version = ""
