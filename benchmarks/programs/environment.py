"""A virtual environment for each program, made once: exact versions, nothing shared with the one of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from importlib import util
from pathlib import Path

from benchmarks.programs.catalogue import Program
from benchmarks.zoo import fetch

REPOSITORY = Path(__file__).parents[2]
LOCKS = Path(__file__).parent / "locks"

# In every environment: what opweld needs to compile, and the runtime to compare with. Nothing may bring another torch.
BASE = ("onnxruntime==1.31.1", "onnx==1.23.2", "onnx-ir==1.1.0", "ml_dtypes==0.6.0")
CONSTRAINTS = (*BASE, "torch==2.13.0")


def cache_folder() -> Path:
    """Where the environments lie: opweld/programs in the user's cache folder."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "opweld" / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def python(program: Program) -> Path:
    """The program's Python, its environment made from the lock file first where it is missing or was made from another.

    Raises RuntimeError with what pip says."""
    name = program.environment or program.name
    lock = LOCKS / f"{name}.txt"
    return _installed(cache_folder() / "venvs" / name, lock.read_text(), ["--no-deps", "-r", str(lock)])


def lock(program: Program) -> Path:
    """Resolves the program's requirements anew and writes its lock file."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(CONSTRAINTS) + "\n")
        interpreter = _installed(Path(folder) / "venv", "", ["-c", str(constraints), *BASE, *program.requires])
        command = [interpreter, "-m", "pip", "freeze", "--all", "--exclude", "pip"]
        frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    file = LOCKS / f"{program.environment or program.name}.txt"
    # Local versions (+cpu) are a matter of the index: the lock holds the public one.
    file.write_text("".join(f"{line.split('+')[0].split(' @ ')[0]}\n" for line in frozen.splitlines()))
    return file


def work_folder(program: Program) -> Path:
    """The program's folder, which stays between runs, with the zoo's models that it is given as NAME.onnx."""
    folder = cache_folder() / "work" / program.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in program.models:
        target = folder / f"{name}.onnx"
        if not target.exists():
            shutil.copyfile(fetch.path(name), target)
    return folder


def compiler_folder() -> Path:
    """A folder that holds nothing but this environment's C compiler, for the path of all others: it has 300 MB."""
    found = util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("ziglang is not installed")
    package = Path(found.submodule_search_locations[0])
    folder = cache_folder() / "compiler"
    folder.mkdir(exist_ok=True)
    for entry in (package, *package.parent.glob("ziglang-*.dist-info")):
        link = folder / entry.name
        if link.resolve() != entry.resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(entry)
    return folder


def _installed(folder: Path, stamp: str, arguments: list[str]) -> Path:
    interpreter, seal = folder / "bin" / "python", folder / "installed.txt"
    if seal.is_file() and seal.read_text() == stamp:
        return interpreter
    print(f"installing {folder.name}", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(answer.stderr.strip()[-2000:])
    seal.write_text(stamp)
    return interpreter
