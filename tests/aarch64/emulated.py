"""Runs what is compiled for AArch64 on this machine: the C example, in an emulator of that processor."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.build import artifact
from opweld.cached import compile_model
from opweld.options import Options
from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
SYSTEM = Path("/usr/aarch64-linux-gnu")
"""Where Debian's libc6-arm64-cross puts the libraries of that system."""

Array = NDArray[Any]


class RunError(Exception):
    """The program in the emulator says why there are no outputs."""


def missing() -> str:
    """What the emulator needs and this machine lacks; nothing where it can run."""
    if shutil.which("qemu-aarch64") is None or not SYSTEM.is_dir():
        return "there is no emulator of AArch64: apt install qemu-user libc6-arm64-cross"
    return "" if platform.machine() == "x86_64" else "this machine is no x86-64"


def compiled(model: Any, folder: Path) -> Path:
    """The artifact of a model, in the folder."""
    shutil.copytree(compile_model(model, Options(target="aarch64")), folder)
    return folder


@dataclass(frozen=True)
class Emulator:
    """The C example, built for AArch64, which runs every artifact of this opweld."""

    program: Path

    @staticmethod
    def build(folder: Path, made: Path) -> Emulator:
        """Builds the program in a folder, with the runtime of an artifact."""
        example, program = REPOSITORY / "examples" / "c", folder / "run_model"
        runtime = shutil.copy(made / "runtime.so", folder / "runtime.so")
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.28", "-O1", "-std=gnu11"]
        command += [f"-I{made / 'include'}", *(str(example / name) for name in ("run_model.c", "npy.c"))]
        command += [str(runtime), f"-Wl,-rpath,{folder}", "-o", str(program)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        return Emulator(program)

    def run(self, made: Path, feeds: Mapping[str, Array], folder: Path, threads: int = 2) -> list[Array]:
        """The outputs of an artifact in order; files of both sides lie in the folder. Raises RunError."""
        folder.mkdir()
        command = ["qemu-aarch64", "-L", str(SYSTEM), str(self.program), str(made)]
        command += ["--output", str(folder / "out"), "--threads", str(threads)]
        for number, (name, array) in enumerate(feeds.items()):
            np.save(folder / f"{number}.npy", array, allow_pickle=False)
            command += ["--input", f"{name}={folder / f'{number}.npy'}"]
        environment = {"PATH": os.environ["PATH"]}
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        if answer.returncode != 0:
            raise RunError(answer.stderr.strip() or f"ended with {answer.returncode}")
        return [np.load(line, allow_pickle=False) for line in answer.stdout.splitlines()]


def names(made: Path) -> list[str]:
    """The names of an artifact's inputs in order."""
    return [info.name for info in artifact.read(made, verify=True).inputs]
