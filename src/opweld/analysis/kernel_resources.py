"""What the kernels of `opweld.kernels` need of a multiprocessor, found without a GPU: each is compiled in its default
configurations, and the machine code is read."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module, util
from typing import Any, Final

from opweld.build.binaries import find_or_compile
from opweld.build.cache import Cache
from opweld.codegen.triton.binary import Binary
from opweld.codegen.triton.occupancy import Occupancy, occupancy_of
from opweld.errors import OptionError, ToolchainError
from opweld.kernels.variant import Variant
from opweld.options import available_cores

_PACKAGE: Final = "opweld.kernels"
_NEEDED: Final = {"torch": "opweld[torch]", "triton": "opweld[cuda]"}

Progress = Callable[[str, int, int], None]
"""Called with (what is done, variants done, variants in all)."""


@dataclass(frozen=True)
class Resources:
    """A kernel in one of its configurations.

    Attributes:
        kernel: the file of `opweld.kernels`.
        variant: the configuration.
        binary: what it was compiled to; None where it was not.
        occupancy: of a multiprocessor; None likewise.
        error: why it was not compiled, empty where it was.
    """

    kernel: str
    variant: Variant
    binary: Binary | None = None
    occupancy: Occupancy | None = None
    error: str = ""

    @property
    def finding(self) -> str:
        """What is wrong with it; empty where nothing is."""
        if self.binary is None or self.occupancy is None:
            return f"is not compiled: {self.error}"
        if self.occupancy.blocks == 0:
            return f"cannot be launched: one block needs more than a multiprocessor has of {self.occupancy.limit}"
        return f"spills {self.binary.spills} bytes" if self.binary.spills else ""

    def to_json(self) -> dict[str, Any]:
        """All of it but the machine code, as JSON types."""
        found: dict[str, Any] = {
            "kernel": self.kernel,
            "name": self.variant.name,
            "warps": self.variant.warps,
            "stages": self.variant.stages,
            "constants": {name: str(value) for name, value in self.variant.constants.items()},
            "finding": self.finding,
        }
        if self.binary is not None and self.occupancy is not None:
            found |= {
                "warps": self.binary.warps,
                "registers": self.binary.registers,
                "spills": self.binary.spills,
                "shared": self.binary.shared,
                "scratch": self.binary.scratch[0],
                "blocks": self.occupancy.blocks,
                "occupancy": self.occupancy.fraction,
                "limit": self.occupancy.limit,
                "tensor_core": self.binary.tensor_core_instructions,
                "instructions": dict(self.binary.instructions),
            }
        return found


def kernel_variants(arch: int, names: Sequence[str] = ()) -> dict[str, tuple[Variant, ...]]:
    """The default configurations of the kernels of these names, of all where none is named, by the name of the kernel.

    Raises ToolchainError where PyTorch or Triton is missing, OptionError for a kernel that is not there."""
    for needed, install in _NEEDED.items():
        if util.find_spec(needed) is None:
            raise ToolchainError(f"the kernels need {needed}, which is not installed: pip install '{install}'")
    found = dict(_modules())
    unknown = [name for name in names if name not in found]
    if unknown:
        raise OptionError(f"there is no kernel {unknown[0]}: expected some of {', '.join(found)}")
    return {name: tuple(found[name](arch)) for name in names or found}


def measure_resources(
    variants: Mapping[str, Sequence[Variant]], arch: int, progress: Progress | None = None, cache: Cache | None = None
) -> list[Resources]:
    """What each variant needs on an architecture, in their order: compiled several at a time, or found in the cache.

    What is not compiled says why; the others are measured all the same."""
    wanted = [(name, variant) for name, some in variants.items() for variant in some]
    cache = cache or Cache.open()
    with ThreadPoolExecutor(available_cores()) as pool:
        tasks = [pool.submit(_measured, name, variant, arch, cache) for name, variant in wanted]
        for done, _ in enumerate(as_completed(tasks), 1):
            if progress is not None:
                progress("kernels compiled", done, len(tasks))
    return [task.result() for task in tasks]


def _measured(kernel: str, variant: Variant, arch: int, cache: Cache) -> Resources:
    try:
        binary = find_or_compile(
            variant.kernel,
            variant.signature,
            variant.constants,
            warps=variant.warps,
            stages=variant.stages,
            arch=arch,
            cache=cache,
        )
    except ToolchainError as error:
        return Resources(kernel, variant, error=str(error))
    return Resources(kernel, variant, binary, occupancy_of(binary))


def _modules() -> Iterator[tuple[str, Callable[[int], Iterator[Variant]]]]:
    """The files of the package that say what of them is compiled ahead of time: a function `variants(arch)` does."""
    package: Any = import_module(_PACKAGE)
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        found = getattr(import_module(f"{_PACKAGE}.{module.name}"), "variants", None)
        if found is not None and list(inspect.signature(found).parameters) == ["arch"]:
            yield module.name, found
