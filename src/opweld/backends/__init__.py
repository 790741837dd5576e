"""The backends that there are, by the machine they compile for."""

from __future__ import annotations

from typing import Any

from opweld.codegen.backend import Backend, Stages
from opweld.errors import OptionError
from opweld.target import Target


class CBackend(Backend):
    """C for the vector units of processors."""

    name = "c"
    targets = ("x86-64-v3", "x86-64-v4", "aarch64")

    def stages(self) -> Stages[Any]:
        """See `backends.c`."""
        from opweld.backends.c import CStages

        return CStages()

    def toolchain(self) -> str:
        """The C compiler."""
        from opweld.build.toolchain import Compiler

        return Compiler.find().version


BACKENDS: tuple[Backend, ...] = (CBackend(),)


def backend_of(target: Target) -> Backend:
    """The backend that compiles for a machine. Raises OptionError where none does."""
    for backend in BACKENDS:
        if target.name in backend.targets:
            return backend
    known = ", ".join(name for backend in BACKENDS for name in backend.targets)
    raise OptionError(f"no backend compiles for {target.name!r}; there are some for {known}")
