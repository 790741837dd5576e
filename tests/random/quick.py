"""A C compiler for code that runs once: gcc with few optimisations and the runtime's header compiled beforehand.

Most of the net's time is spent in the C compiler, and most of that in reading one header. `zig cc -O3`, which the
product uses, takes five times as long; the default run of the net uses it, long runs do not.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from opweld.build.toolchain import BASE_FLAGS, gcc_flags
from opweld.target import Target

HEADERS = Path(__file__).parents[2] / "src/opweld/runtime/c"


def quick_compiler(folder: Path, optimise: str = "-O1") -> Path | None:
    """A program for OPWELD_CC, written into the folder with what it needs; None where there is no gcc."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    own = folder / "include"
    shutil.copytree(HEADERS, own, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.c"))
    flags = [flag for flag in BASE_FLAGS if flag not in ("-O3", "-fno-sanitize=undefined")]
    flags += ["-ffp-contract=fast", *gcc_flags(Target.native()), optimise, "-w"]
    lanes = f"-DOPW_LANES={Target.native().vector_lanes_f32}"
    header = own / "opweld_kernel.h"
    command = [gcc, *flags, lanes, "-x", "c-header", str(header), "-o", f"{header}.gch"]
    subprocess.run(command, check=True, capture_output=True)
    program = folder / "quick-gcc"
    # The runtime's own files are compiled once, and want everything as it is; kernels are many.
    program.write_text(
        "#!/bin/sh\n"
        'case " $* " in\n'
        f'*" -c kernels_"*) exec {gcc} "$@" {lanes} {optimise} -w -include {header} ;;\n'
        f'*" -c "*) exec {gcc} "$@" -O0 -w ;;\n'
        f'*) exec {gcc} "$@" -lgcc ;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    return program
