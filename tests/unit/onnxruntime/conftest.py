"""The hand-written module of the runtime's tests, as an artifact."""

from tests.unit.runtime.conftest import folder, module_so, runtime_so, write_artifact

__all__ = ["folder", "module_so", "runtime_so", "write_artifact"]
