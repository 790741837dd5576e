"""The backends that there are, by the machine they compile for: opweld's own, and those of installed packages."""

from __future__ import annotations

from importlib import metadata
from typing import Any, cast

from opweld import extensions
from opweld.codegen.backend import Backend, Stages
from opweld.errors import OptionError, ToolchainError
from opweld.target import GPUS, Gpu, Target, TargetMachine


class CBackend(Backend):
    """C for the vector units of processors."""

    name = "c"
    targets = ("x86-64-v3", "x86-64-v4", "aarch64")

    def target(self, name: str) -> Target:
        """A processor."""
        return Target.of(name)

    def stages(self) -> Stages[Any]:
        """See `backends.c`."""
        from opweld.backends.c import CStages

        return CStages()

    def toolchain(self) -> str:
        """The C compiler."""
        from opweld.build.toolchain import Compiler

        return Compiler.find().version


class CudaBackend(Backend):
    """Triton for GPUs of NVIDIA."""

    name = "cuda"
    targets = ("cuda", *GPUS)

    def target(self, name: str) -> Gpu:
        """The GPU of that architecture; of this machine, by the name "cuda", or sm_90 where there is none."""
        return GPUS[name] if name in GPUS else _gpu_here()

    def stages(self) -> Stages[Any]:
        """See `backends.cuda`."""
        from opweld.backends.cuda import CudaStages

        return CudaStages()

    def toolchain(self) -> str:
        """The version of Triton, and whether it interprets."""
        from opweld.runtime.cuda.device import is_interpreted

        try:
            version = metadata.version("triton")
        except metadata.PackageNotFoundError as error:
            raise ToolchainError(
                "compiling for a GPU takes Triton: pip install 'opweld[cuda]'; what is compiled runs without it"
            ) from error
        return f"triton {version}" + (" interpreted" if is_interpreted() else "")


def _gpu_here() -> Gpu:
    """The target of the first GPU: code for sm_80 runs on all of compute capability 8."""
    from opweld.runtime.cuda.device import capability

    found = capability()
    major = 0 if found is None else found[0]
    return next((gpu for gpu in GPUS.values() if gpu.architecture_number // 10 == major), GPUS["sm_90"])


BACKENDS: tuple[Backend, ...] = (CBackend(), CudaBackend())


def target_of(name: str) -> TargetMachine:
    """The machine that a user names. Raises OptionError where no backend compiles for one of that name."""
    if name == "native":
        return Target.native()
    return _backend(name).target(name)


def backend_of(target: TargetMachine) -> Backend:
    """The backend that compiles for a machine. Raises OptionError where none does."""
    return _backend(target.name)


def _backend(name: str) -> Backend:
    for backend in BACKENDS:
        if name in backend.targets:
            return backend
    title = f"entry point {name!r} of {extensions.TARGETS}"
    try:
        found = extensions.find(extensions.TARGETS, name)
        made = cast("type[object]", found)() if isinstance(found, type) else found
    except Exception as error:  # a module of another package raises whatever it does
        raise OptionError(f"target {name!r}: {title} does not load: {type(error).__name__}: {error}") from error
    if made is None:
        known = (*(name for backend in BACKENDS for name in backend.targets), *extensions.names(extensions.TARGETS))
        raise OptionError(f"no backend compiles for {name!r}; there are some for {', '.join(known)}")
    if not isinstance(made, Backend):
        raise OptionError(f"target {name!r}: {title} is {made!r}, no Backend of opweld.codegen.backend")
    if name not in made.targets:
        raise OptionError(f"target {name!r}: {title} compiles for {', '.join(made.targets)}; fix its name")
    return made
