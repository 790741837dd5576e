"""Targets: what all have in common, and the facts of processors."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from opweld.errors import OptionError
from opweld.options import PROCESSORS, available_cores

if TYPE_CHECKING:
    from opweld.tensor.dtype import DType

KIB = 1024
MIB = 1024 * KIB

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_NUMBERS = ("cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant", "CPU revision")

# What /proc/cpuinfo and __builtin_cpu_supports call the same thing, for every feature that generated code may use.
_V3_FEATURES = {"avx2": "avx2", "fma": "fma", "f16c": "f16c", "bmi1": "bmi", "bmi2": "bmi2"}
_V4_FEATURES = {name: name for name in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")}
_V3_EXTRAS = {"avx_vnni": "avxvnni"}
_V4_EXTRAS = {
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512vbmi": "avx512vbmi",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
_ARM_EXTRAS = {"asimddp": "dotprod", "bf16": "bf16", "i8mm": "i8mm"}


@dataclass(frozen=True)
class TargetMachine:
    """A target: what every backend needs of it. A backend defines the facts that its decisions need in a subclass.

    Attributes:
        name: as users give it. kind: of machine, "cpu" for a processor.
    """

    kind: ClassVar[str] = ""
    name: str

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the code requires beyond the target's name, as the manifest lists it."""
        return ()

    def digest(self) -> str:
        """A hash of every fact, for cache keys."""
        facts = {"kind": self.kind, **dataclasses.asdict(self)}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Target(TargetMachine):
    """A processor.

    Attributes:
        name: `x86-64-v3` (AVX2), `x86-64-v4` (AVX-512) or `aarch64` (NEON).
        vector_bytes: bytes of a vector register.
        vector_registers: how many of them there are.
        cores: cores that the compiler plans for.
        l1_bytes, l2_bytes: data cache a core. l3_bytes: last-level cache, shared.
        features: features of the processor that generated code may use, named as in `__builtin_cpu_supports`.
        triple: architecture, system and C library, as compilers name them.
        core: whose core it is, where its figures differ from others of the kind: "intel", "zen4", else "".
    """

    kind: ClassVar[str] = "cpu"
    vector_bytes: int
    vector_registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    features: tuple[str, ...]
    triple: str
    core: str = ""

    @property
    def vector_lanes_f32(self) -> int:
        """float32 elements of a vector register: the vector length of kernels, whatever their dtype."""
        return self.vector_bytes // 4

    def lanes(self, dtype: DType) -> int:
        """How many elements of a dtype a vector register holds."""
        return self.vector_bytes // dtype.bytes

    def registers_each(self, dtype: DType) -> int:
        """Registers that a vector of `vector_lanes_f32` elements takes: kernels have one vector length for all dtypes,
        and a vector of wide elements is several registers."""
        return max(1, dtype.bytes // 4)

    def registers(self, dtype: DType) -> int:
        """How many vectors of `vector_lanes_f32` elements the registers hold."""
        return self.vector_registers // self.registers_each(dtype)

    @property
    def architecture(self) -> str:
        """Whose instructions code for it has: x86_64, aarch64."""
        return self.triple.partition("-")[0]

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The features of the processor."""
        return self.features

    @classmethod
    def of(cls, name: str) -> Target:
        """The processor that a user names: one of `opweld.options.PROCESSORS`. Raises OptionError on another name."""
        if name == "native":
            return cls.native()
        if name not in _GENERIC:
            raise OptionError(f"target is {name!r}, expected one of {', '.join(PROCESSORS)}")
        return _GENERIC[name]

    @staticmethod
    @cache
    def native() -> Target:
        """This machine. Raises OptionError where opweld has no target for it."""
        flags, caches, core = _read_flags(_CPUINFO), _read_caches(_CACHES), _read_core(_CPUINFO)
        if "amx_tile" in flags and not _may_use_tiles():
            flags -= {"amx_tile", "amx_int8", "amx_bf16"}
        return detect(platform.machine(), flags, caches, available_cores(), _c_library(), core)


@dataclass(frozen=True)
class Gpu(Target):
    """A GPU of NVIDIA, to the cost model one wide core: vectors are what a warp holds, caches those of the card.

    Attributes:
        architecture_number: of its instructions, 80 for sm_80. processors: its multiprocessors.
        shared_bytes: of shared memory that a program may have.
    """

    kind: ClassVar[str] = "gpu"
    architecture_number: int = 90
    processors: int = 132
    shared_bytes: int = 227 * KIB


_GENERIC = {
    "x86-64-v3": Target(
        "x86-64-v3", 32, 16, 4, 32 * KIB, 256 * KIB, 8 * MIB, tuple(_V3_FEATURES.values()), "x86_64-linux-gnu.2.28"
    ),
    "x86-64-v4": Target(
        "x86-64-v4",
        64,
        32,
        4,
        32 * KIB,
        1 * MIB,
        16 * MIB,
        (*_V3_FEATURES.values(), *_V4_FEATURES.values()),
        "x86_64-linux-gnu.2.28",
    ),
    "aarch64": Target("aarch64", 16, 32, 4, 32 * KIB, 512 * KIB, 2 * MIB, (), "aarch64-linux-gnu.2.28"),
}
"""What `--target NAME` compiles for: the smallest caches among common processors of the kind, and an old C library."""

GPUS = {
    # A100: 108 multiprocessors, 40 MB of L2. H100: 132 of them, 50 MB.
    "sm_80": Gpu(
        "sm_80", 128, 255, 1, 192 * KIB, 40 * MIB, 40 * MIB, (), "nvptx64-nvidia-cuda", "", 80, 108, 163 * KIB
    ),
    "sm_90": Gpu(
        "sm_90", 128, 255, 1, 256 * KIB, 50 * MIB, 50 * MIB, (), "nvptx64-nvidia-cuda", "", 90, 132, 227 * KIB
    ),
}
"""What `--target sm_80` and `sm_90` compile for."""

_EXTRAS = {"x86-64-v3": _V3_EXTRAS, "x86-64-v4": _V4_EXTRAS, "aarch64": _ARM_EXTRAS}
"""What a machine of the kind may have beyond the generic target."""


def detect(
    machine: str, flags: frozenset[str], caches: dict[int, int], cores: int, c_library: str, core: str = ""
) -> Target:
    """The target of a machine with these /proc/cpuinfo flags, data caches (level to bytes), kind of C library and
    core."""
    if machine in ("x86_64", "AMD64"):
        if not flags >= _V3_FEATURES.keys():
            missing = ", ".join(sorted(_V3_FEATURES.keys() - flags))
            raise OptionError(f"this processor lacks {missing}: opweld needs AVX2; name another machine with target=")
        name = "x86-64-v4" if flags >= _V4_FEATURES.keys() else "x86-64-v3"
    elif machine in ("aarch64", "arm64"):
        name = "aarch64"
    else:
        raise OptionError(f"no native target for a {machine!r} processor; name one of {', '.join(PROCESSORS[1:])}")
    generic = _GENERIC[name]
    present = tuple(feature for flag, feature in _EXTRAS[name].items() if flag in flags)
    l2 = caches.get(2, generic.l2_bytes)
    return dataclasses.replace(
        generic,
        cores=cores,
        l1_bytes=caches.get(1, generic.l1_bytes),
        l2_bytes=l2,
        l3_bytes=caches.get(3, l2),
        features=(*generic.features, *present),
        triple=generic.triple if c_library == "gnu" else generic.triple.partition("-gnu")[0] + "-musl",
        core=core,
    )


@cache
def processor_name() -> str:
    """What this processor calls itself. Virtual machines give one name to many kinds, so it ends with their numbers."""
    return _read_name(_CPUINFO)


def _read_name(path: Path) -> str:
    """The name, family, model and stepping of the first processor that /proc/cpuinfo lists; on Arm, which has no names
    there, who made it and which part it is."""
    first = _read_first(path)
    numbers = (f"{key.lower().removeprefix('cpu ')} {first[key]}" for key in _NUMBERS if key in first)
    return ", ".join(filter(None, (first.get("model name", ""), *numbers))) or "unknown"


def _read_core(path: Path) -> str:
    """`Target.core` of the first processor that /proc/cpuinfo lists. AMD's family 25 is Zen 3 and Zen 4, of which only
    the latter has AVX-512."""
    first = _read_first(path)
    if first.get("vendor_id") == "GenuineIntel":
        return "intel"
    zen4 = first.get("vendor_id") == "AuthenticAMD" and first.get("cpu family") == "25"
    return "zen4" if zen4 and "avx512f" in first.get("flags", "").split() else ""


def _read_first(path: Path) -> dict[str, str]:
    """What /proc/cpuinfo says of the first processor that it lists."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _may_use_tiles() -> bool:
    """Whether the system saves the registers of AMX for this process. Linux wants to be asked; it refuses where a
    thread has a stack for signals that is too small for them, and where it is told to."""
    request, call, tile_data = 0x1023, 158, 18
    try:
        return ctypes.CDLL(None, use_errno=True).syscall(call, request, tile_data) == 0
    except (OSError, AttributeError):
        return False


def _read_flags(path: Path) -> frozenset[str]:
    """The feature flags of the first processor that /proc/cpuinfo lists (`flags` on x86, `Features` on Arm)."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _read_caches(folder: Path) -> dict[int, int]:
    """Bytes of the data cache of each level that sysfs tells of; containers often hide some or all."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
            unit = {"K": KIB, "M": MIB}.get(size[-1:], 1)
            if kind != "Instruction":
                sizes[int(level)] = int(size.rstrip("KM")) * unit
        except (OSError, ValueError):
            continue
    return sizes


def _c_library() -> str:
    """The kind of C library this Python runs on: `gnu` or `musl`."""
    return "gnu" if platform.libc_ver()[0] == "glibc" else "musl"
