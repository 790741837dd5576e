"""The artifact: a folder with the compiled model and a manifest that says what it is. Written whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from opweld.build.cache import Cache
from opweld.build.workspace import remove_left
from opweld.errors import ArtifactError, OpweldError, ShortageError
from opweld.typed import AGAIN, decoded, plain
from opweld.shortage import check_shortage, describe
from opweld.interface import ModelMetadata, StateInfo, Structure, TensorInfo

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
MODULE: Final = "module.so"
RUNTIME: Final = "runtime.so"
WEIGHTS: Final = "weights.bin"
LEDGER: Final = "ledger.json"
SCHEDULES: Final = "schedules.txt"
GRAPH: Final = "graph.json"
SOURCES: Final = "source"
HEADERS: Final = "include"

TOLD: Final = (LEDGER, SCHEDULES, GRAPH)
"""What tells how an artifact was made: whatever the backend, and no run needs it."""

_NEW: Final = ".opweld-new-"
_OLD: Final = ".opweld-old-"
"""Names of what is about to take the place of an artifact, and of what has lost it."""

_MAX_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True)
class VariantInfo:
    """One compiled variant: its name, the conditions it assumes, and how many steps and kernels it has."""

    name: str
    guards: tuple[str, ...] = ()
    steps: int = 0


@dataclass(frozen=True)
class FileInfo:
    """Size in bytes and SHA-256 of a file of the artifact."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an artifact is.

    Attributes:
        opweld: version of the compiler. target, level: what the model was compiled for, and how far.
        threads: default number of threads, 0 for all processors of the machine that it runs on.
        inputs, outputs: tensors of compiled code, in the model's order; outputs with the shapes that were inferred.
        declared_shapes: the shapes of outputs that callers see, which are those that the file declares.
        metadata: what the model says about itself.
        structure: how callers see inputs and outputs where some are no tensors; None where all are.
        states: the inputs and outputs that are one value, which lives between runs, in the order of the inputs.
        variants: the compiled variants, tried in this order.
        nodes: of the optimised graph. kernels: distinct compiled functions.
        precision: what operands of contractions were allowed to be rounded to, an option of the compilation.
        features: what the processor must have, as the isa of the module names it.
        backend: what compiled it, and whose runtime opens it.
        needed: the files that a run needs.
        files: size and digest of those, and of what tells how it was made (ledger.json, schedules.txt, graph.json);
            `write` fills it in.
        format: version of this schema.
    """

    opweld: str
    target: str
    level: str
    threads: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    metadata: ModelMetadata = ModelMetadata()
    structure: Structure | None = None
    declared_shapes: tuple[tuple[int | str, ...] | None, ...] = ()
    states: tuple[StateInfo, ...] = ()
    variants: tuple[VariantInfo, ...] = ()
    nodes: int = 0
    kernels: int = 0
    features: str = ""
    precision: str = "fp32"
    backend: str = "c"
    needed: tuple[str, ...] = (MODULE, RUNTIME, WEIGHTS)
    files: dict[str, FileInfo] = field(default_factory=dict[str, FileInfo])
    format: int = FORMAT

    @property
    def made_for(self) -> str:
        """The target, and the precision where it is not the model's own."""
        return self.target if self.precision == "fp32" else f"{self.target}, {self.precision}"

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(plain(self), indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Manifest:
        """Parses `to_json`. Raises ArtifactError naming the field that is wrong."""
        version = decoded(_Format, text, MANIFEST).format
        if version != FORMAT:
            raise ArtifactError(f"{MANIFEST} has format {version!r}, this opweld reads {FORMAT}; {AGAIN}")
        return decoded(Manifest, text, MANIFEST)


@dataclass(frozen=True)
class _Format:
    """What a manifest of any format says."""

    format: int | str | None = None


# ---- writing ----


def write(
    folder: Path,
    *,
    manifest: Manifest,
    files: Path,
    weights: Path | Iterable[bytes | memoryview],
    ledger_json: str,
    schedules: str = "",
    graph_json: str = "",
    digests: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """Writes the artifact `folder`, replacing an artifact that is there, and returns the manifest with its `files`.

    The folder appears complete or not at all: it is written beside its place and renamed. A model that still runs
    from the replaced one is not disturbed.

    Args:
        folder: where; its parent is made.
        manifest: what it is; `files` is filled in here.
        files: a folder with what the backend wrote, which becomes part of the artifact: all of it is moved.
        weights: the packed constants: a file, moved, or pieces, one after the other.
        ledger_json, schedules, graph_json: what was decided, how kernels are computed, what became of the graph's
            nodes.
        digests: the SHA-256 of files, by name, where they are known already.

    Raises ArtifactError when the place cannot be written, or holds something that is no artifact.
    """
    with _replacing(folder) as workspace:
        for path in sorted(files.iterdir()):
            shutil.move(path, workspace / path.name)  # with their times: debuggers warn of code older than its text
        _write_weights(weights, workspace / WEIGHTS)
        (workspace / LEDGER).write_text(ledger_json, encoding="utf-8")
        (workspace / SCHEDULES).write_text(schedules, encoding="utf-8")
        (workspace / GRAPH).write_text(graph_json, encoding="utf-8")
        described = dict.fromkeys((*manifest.needed, *TOLD))
        infos = {name: _describe(workspace / name, digests.get(name)) for name in described}
        manifest = dataclasses.replace(manifest, files=infos)
        (workspace / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def relate(folder: Path, ledger_json: str) -> None:
    """Puts other words about the same decisions into the artifact `folder`, which nobody else has opened yet."""
    manifest = read(folder)
    (folder / LEDGER).write_text(ledger_json, encoding="utf-8")
    files = {**manifest.files, LEDGER: _describe(folder / LEDGER)}
    (folder / MANIFEST).write_text(dataclasses.replace(manifest, files=files).to_json(), encoding="utf-8")


def copy(source: Path, folder: Path, threads: int) -> None:
    """Copies the artifact `source` to `folder`, as `write` would have written it there; same errors.

    `threads` becomes the default of the copy. Raises ArtifactError also when `source` is damaged.
    """
    manifest = dataclasses.replace(read(source), threads=threads)
    if source.absolute() == folder.absolute():
        return
    with _replacing(folder) as workspace:
        shutil.copytree(source, workspace, dirs_exist_ok=True)
        (workspace / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


@contextlib.contextmanager
def _replacing(folder: Path) -> Generator[Path]:
    """An empty folder that takes the place of `folder` when the block ends well, and vanishes when it does not."""
    folder = folder.absolute()
    if "\0" in str(folder):
        raise ArtifactError(f"cannot write {folder}: no file can have that name; name another place")
    workspace: Path | None = None
    try:
        if folder.is_symlink() or (folder.exists() and not _replaceable(folder)):
            raise ArtifactError(f"{folder} exists and is no opweld artifact; remove it, or name another place")
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_left(folder.parent, _NEW, _OLD)
        workspace = Path(tempfile.mkdtemp(prefix=_NEW, dir=folder.parent))
        yield workspace
        workspace.chmod(0o755)
        _rename(workspace, folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        if workspace is not None:
            shutil.rmtree(workspace, ignore_errors=True)


def _replaceable(folder: Path) -> bool:
    """An artifact, however damaged, or an empty folder."""
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))


def _unwritable(folder: Path, error: OSError) -> OpweldError:
    lacking = describe(error, str(folder))
    if lacking is not None:
        return ShortageError(lacking)
    reason = error.strerror or str(error)
    if isinstance(error, shutil.Error):  # copying a folder goes on after a failure, and tells them all
        reason = str(error.args[0][0][2])
    return ArtifactError(f"cannot write {folder}: {reason}; name another place")


def _write_weights(weights: Path | Iterable[bytes | memoryview], target: Path) -> None:
    if isinstance(weights, Path):
        shutil.move(weights, target)
        return
    with target.open("wb") as file:
        for piece in weights:
            file.write(piece)


def _describe(path: Path, digest: str | None = None) -> FileInfo:
    if digest is None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileInfo(path.stat().st_size, digest)


def _rename(workspace: Path, folder: Path) -> None:
    """Puts `workspace` in the place of `folder`. Between two steps an old artifact may be absent, never half there."""
    try:
        os.rename(workspace, folder)  # succeeds where nothing is there, or an empty folder
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    old = Path(tempfile.mkdtemp(prefix=_OLD, dir=folder.parent))
    try:
        os.rename(folder, old)
        try:
            os.rename(workspace, folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.rename(old, folder)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


# ---- reading ----


def read(folder: Path, *, verify: bool = False) -> Manifest:
    """The manifest of the artifact `folder`, its files checked: by size, and with `verify` by digest.

    What was verified is remembered in the user's cache by inode, size and time of change: a file is read once, at a
    gigabyte a second, and its status from then on. Raises ArtifactError, naming what is missing or damaged and what to
    do.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ArtifactError(f"{folder} {what}; an artifact is a folder that `opweld compile MODEL -o {folder}` writes")
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ArtifactError(f"{path} is too large for a manifest; {AGAIN}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ArtifactError(f"{folder} has no {MANIFEST}: it is no artifact, or damaged; {AGAIN}") from error
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            check_shortage(error)
        raise ArtifactError(f"cannot read {path} ({error}); {AGAIN}") from error
    try:
        manifest = Manifest.from_json(text)
    except ArtifactError as error:
        raise ArtifactError(f"{folder}: {error}") from None
    for name in manifest.needed:
        if not _is_inside(name):
            raise ArtifactError(f"{path} names {name!r}, which is no file of the artifact; {AGAIN}")
        _check_file(folder / name, manifest.files.get(name), verify)
    return manifest


def _is_inside(name: str) -> bool:
    """Whether a name is that of a file of the folder that it is relative to."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name


def remember(folder: Path, cache: Cache) -> None:
    """Tells the cache the digests of an artifact that was just written there, so that no opening has to read it all."""
    for name, file in read(folder).files.items():
        cache.remember_digest(folder / name, file.sha256)


def _check_file(path: Path, expected: FileInfo | None, verify: bool) -> None:
    if expected is None:
        raise ArtifactError(f"{path.parent / MANIFEST} does not describe {path.name}; {AGAIN}")
    try:
        size = path.stat().st_size
        actual = FileInfo(size, Cache.open().file_digest(path) if verify else expected.sha256)
    except OSError as error:
        check_shortage(error)
        raise ArtifactError(f"cannot read {path}: {error.strerror}; {AGAIN}") from error
    if actual.bytes != expected.bytes:
        raise ArtifactError(f"{path} has {actual.bytes} bytes, expected {expected.bytes}: it is damaged; {AGAIN}")
    if actual.sha256 != expected.sha256:
        raise ArtifactError(f"{path} has another content than when it was written: it is damaged; {AGAIN}")
