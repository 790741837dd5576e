"""A kernel of Triton in, machine code of a GPU out, ahead of time and without a GPU; and what the machine code needs.

The one place that compiles a kernel for a launch by the driver alone (`runtime/cuda`). A launch of a `Binary` has a
grid of as many programs as the kernel expects, blocks of 32 * `warps` threads, `shared` bytes of dynamic shared memory,
and the values of `parameters` in that order.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache as remember
from importlib import import_module, util
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from opweld.codegen.triton.parameters import CONSTANT, Parameter, check_parameters, parameters_of
from opweld.codegen.triton.sass import TENSOR_CORE, count_instructions, spilled_bytes
from opweld.errors import ToolchainError

ARCHITECTURES: Final = (80, 90)
"""Compute capabilities that kernels are compiled for, times ten."""

_TIMEOUT_S: Final = 600
_MULTIPLE: Final = ":16"
_DIVISIBLE: Final = ["tt.divisibility", 16]
_REGISTERS = re.compile(r"REG:(\d+)")
_READING = threading.RLock()
"""Held while Triton reads the text of a kernel: see `_read_alone`."""


@dataclass(frozen=True)
class Binary:
    """A kernel as machine code.

    Attributes:
        name: of the entry in the cubin.
        arch: 80 or 90.
        cubin: an ELF file, which the driver loads. ptx: what it was assembled from.
        warps: warps of 32 threads a block has.
        shared: bytes of dynamic shared memory that a launch must ask for, all that there are; above 48 KiB the function
            must be allowed to.
        registers: of a thread.
        spills: bytes of spill stores and loads of a thread, each instruction counted once.
        parameters: what a launch passes, in order.
        scratch: bytes of global memory that each program needs, and their alignment: memory of grid size * bytes is
            passed as the parameter `GLOBAL_SCRATCH`.
        instructions: how often each stands in the code; see `sass.count_instructions`.
    """

    name: str
    arch: int
    cubin: bytes
    ptx: str
    warps: int
    shared: int
    registers: int
    spills: int
    parameters: tuple[Parameter, ...]
    scratch: tuple[int, int]
    instructions: Mapping[str, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "instructions", MappingProxyType(dict(self.instructions)))

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def tensor_core_instructions(self) -> dict[str, int]:
        """Those of `instructions` that multiply matrices on tensor cores."""
        return {name: count for name, count in self.instructions.items() if name in TENSOR_CORE}


def compile_kernel(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    warps: int,
    stages: int,
    arch: int,
    divisible: Collection[str] = (),
) -> Binary:
    """Compiles a kernel for a GPU of one architecture. May be called by several threads at once.

    Args:
        kernel: a function of `triton.jit` or `gluon.jit`, made in a process without TRITON_INTERPRET.
        signature: argument -> type as Triton writes it: "*bf16", "i32", "constexpr", "tensordesc<bf16[128, 64]>". A
            suffix ":16" says that the address or number is a multiple of 16.
        constants: argument -> value; its type may be missing from `signature`.
        warps: warps of 32 threads of one program. stages: stages of the software pipeline of its loops.
        arch: one of `ARCHITECTURES`.
        divisible: more arguments that are multiples of 16. Without it accesses are not vectorised.

    Raises ToolchainError where Triton is missing, interprets, or rejects the kernel; it names the kernel.
    """
    if util.find_spec("triton") is None:
        raise ToolchainError("compiling kernels for a GPU needs Triton: pip install 'opweld[cuda]'")
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    compiler: Any = import_module("triton.compiler")

    name = str(getattr(kernel, "__name__", kernel))
    if not isinstance(kernel, JITFunction):
        raise ToolchainError(
            f"the kernel {name} is a {type(kernel).__name__}, which cannot be compiled: expected a function of "
            "triton.jit, made in a process without TRITON_INTERPRET"
        )
    if arch not in ARCHITECTURES:
        raise ToolchainError(f"the kernel {name} is compiled for one of the architectures {ARCHITECTURES}, not {arch}")
    function: Any = cast(Any, kernel)
    names: list[str] = function.arg_names
    types = _types(name, names, signature, constants)
    multiples = {*divisible, *(argument for argument, kind in signature.items() if kind.endswith(_MULTIPLE))}
    attributes = {(names.index(argument),): [_DIVISIBLE] for argument in names if argument in multiples}
    try:
        if function.is_gluon():
            source_of = import_module("triton.experimental.gluon._runtime").GluonASTSource
        else:
            source_of = compiler.ASTSource
        source = _read_alone(source_of)(function, types, dict(constants), attributes)
        options = {"num_warps": warps, "num_stages": stages}
        made: Any = compiler.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as error:
        # Besides its own errors Triton raises those of Python that its own code meets in a kernel: all mean that the
        # kernel does not compile.
        raise ToolchainError(f"Triton rejects the kernel {name} for sm_{arch}: {_told(error)}") from error
    return _binary(arch, made, parameters_of(name, types, maps=bool(made.metadata.tensordesc_meta)))


@remember
def _read_alone(source_of: Any) -> Any:
    """A class of sources that one thread at a time reads.

    In CPython 3.11 `ast.parse` counts how deep it is for all threads together, and raises SystemError ("AST
    constructor recursion depth mismatch") where a collection of garbage lets another parse in between. Nothing is lost:
    reading is Python, and what takes long, the assembler, comes after it."""

    class Source(source_of):
        def hash(self) -> str:
            with _READING:
                return source_of.hash(self)

        def make_ir(self, *arguments: Any, **options: Any) -> Any:
            with _READING:
                return source_of.make_ir(self, *arguments, **options)

    return Source


def _types(kernel: str, names: list[str], signature: Mapping[str, str], constants: Mapping[str, Any]) -> dict[str, str]:
    """The type of each argument, in their order, without suffixes."""
    unknown = sorted({*signature, *constants} - set(names))
    if unknown:
        raise ToolchainError(f"the kernel {kernel} has no argument {unknown[0]!r}; it has {', '.join(names)}")
    types: dict[str, str] = {}
    for name in names:
        types[name] = CONSTANT if name in constants else signature.get(name, "").removesuffix(_MULTIPLE)
        if not types[name] or (types[name] == CONSTANT and name not in constants):
            what = "value" if types[name] else "type"
            raise ToolchainError(f"the kernel {kernel} is compiled without a {what} of its argument {name}")
    return types


def _binary(arch: int, made: Any, parameters: tuple[Parameter, ...]) -> Binary:
    """The binary of what Triton compiled."""
    metadata, ptx, cubin = made.metadata, str(made.asm["ptx"]), bytes(made.asm["cubin"])
    check_parameters(metadata.name, parameters, ptx)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        # Without data flow: it takes half of the time, and tells nothing that is counted.
        instructions = count_instructions(_answer("nvdisasm", "-c", "-ndf", str(file)))
        resources = _answer("cuobjdump", "--dump-resource-usage", str(file))
    found = _REGISTERS.search(resources)
    if found is None:
        raise ToolchainError(f"cuobjdump does not tell the registers of the kernel {metadata.name}: {resources}")
    return Binary(
        name=metadata.name,
        arch=arch,
        cubin=cubin,
        ptx=ptx,
        warps=metadata.num_warps,
        shared=metadata.shared,
        registers=int(found[1]),
        spills=spilled_bytes(instructions),
        parameters=parameters,
        scratch=(metadata.global_scratch_size, metadata.global_scratch_align),
        instructions=instructions,
    )


def _answer(tool: str, *arguments: str) -> str:
    """What one of the programs that come with Triton prints. Raises ToolchainError."""
    try:
        answer = subprocess.run(
            [_tools()(tool), *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        raise ToolchainError(f"{tool} failed: {error.stderr.strip()[-1000:]}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{tool}, which comes with Triton, does not run: {error}") from error
    return answer.stdout


@remember
def _tools() -> Callable[[str], Path]:
    import triton.backends.nvidia

    return (Path(triton.backends.nvidia.__path__[0]) / "bin").joinpath


def _told(error: BaseException) -> str:
    """The reasons of an error. That of the outermost says where in the kernel, and often what those within say."""
    told = ""
    cause: BaseException | None = error
    while cause is not None:
        reason = str(cause).strip() or type(cause).__name__
        told += "" if reason in told else f"\n{reason}"
        cause = cause.__cause__
    return told.strip()
