"""See `opweld.capi._pybind_state`."""

from opweld.capi._pybind_state import *  # noqa: F403
