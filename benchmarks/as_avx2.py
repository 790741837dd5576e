"""Peers as they run on a processor with AVX2 and no AVX-512, on one that has it.

ONNX Runtime and OpenVINO execute `cpuid` to see which instruction sets there are; ONNX Runtime has no option to limit
them. In copies of their packages each `cpuid` becomes a trap of the same length, and a small library that is
preloaded answers it without AVX-512, VNNI, AMX and bfloat16 (`as_avx2.c`). They choose their AVX2 kernels then, which
run at full speed: only `cpuid` is slow, and they execute it when they are loaded.

    with avx2_peers(("onnxruntime", "openvino")) as variables:
        subprocess.run([sys.executable, "-c", "import onnxruntime"], env=os.environ | variables)
"""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

CPUID, TRAP = b"\x0f\xa2", b"\x0f\x04"
"""`0f 04` is no instruction: it traps as `ud2` does, which programs have of their own."""
_LIBC_WITHOUT = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ"
"""What glibc reads before any library is loaded: memcpy and its like without AVX-512."""


@contextlib.contextmanager
def avx2_peers(packages: Iterable[str]) -> Generator[dict[str, str]]:
    """Variables of an environment in which Python imports packages that see AVX2 at most, while it is needed.

    Raises RuntimeError where a package is not installed, or has no `cpuid` that could be replaced."""
    with tempfile.TemporaryDirectory(prefix="opweld-as-avx2-") as folder:
        for package in packages:
            spec = find_spec(package)
            if spec is None or spec.origin is None:
                raise RuntimeError(f"{package} is not installed: pip install 'opweld[{package}]'")
            copy = Path(folder) / package
            shutil.copytree(Path(spec.origin).parent, copy)
            libraries = (path for path in copy.rglob("*.so*") if path.is_file())
            if not sum(trap(path) for path in libraries):
                raise RuntimeError(f"{package}: no cpuid instruction was found in its libraries")
        library = Path(folder) / "as_avx2.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True
        )
        yield {"PYTHONPATH": folder, "LD_PRELOAD": str(library), "GLIBC_TUNABLES": _LIBC_WITHOUT}


def trap(library: Path) -> int:
    """Replaces each `cpuid` of a library by a trap, in the file; answers how many there were.

    Only what the disassembler takes for this instruction: the two bytes may also be part of others, or data."""
    read = library.read_bytes()
    if not read.startswith(b"\x7fELF") or read.find(CPUID) < 0:
        return 0
    data = bytearray(read)
    offsets = [_offset(data, address) for address in _addresses(library)]
    for offset in offsets:
        if read[offset : offset + 2] != CPUID:
            raise RuntimeError(f"{library.name}: no cpuid at {offset:#x}, where its disassembly has one")
        data[offset : offset + 2] = TRAP
    library.write_bytes(data)
    return len(offsets)


def _addresses(library: Path) -> Iterator[int]:
    command = ["objdump", "--disassemble", "--no-show-raw-insn", library]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "cpuid" in line and (found := re.match(r"\s*([0-9a-f]+):\s+cpuid\s*$", line)):
                yield int(found[1], 16)
    if process.returncode:
        raise RuntimeError(f"objdump could not read {library.name}")


def _offset(data: bytearray, address: int) -> int:
    """Where an address of a 64-bit ELF library lies in its file: by its loaded segments."""
    start, size, count = (*struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54))[0:3]
    for number in range(count):
        kind, _, offset, virtual, _, length = struct.unpack_from("<IIQQQQ", data, start + number * size)
        if kind == 1 and virtual <= address < virtual + length:
            return offset + address - virtual
    raise RuntimeError(f"no segment is loaded at {address:#x}")
