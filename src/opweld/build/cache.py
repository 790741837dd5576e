"""The folder of compiled things: entries found by key, published whole or not at all, never trusted to be sound.

Layout under the root (`OPWELD_CACHE`, or `~/.cache/opweld`):

    objects/ab/KEY-DIGEST.o    a file entry; the name carries a digest of the content, so that a damaged file is seen
    shared/ab/KEY-DIGEST.so   the runtime, linked
    models/ab/KEY/             a folder entry, renamed into place when complete
    served/ab/KEY/             a folder entry: the copy of an artifact that a server maps
    newest/ab/KEY             the key of a model's artifact, under what it would be of any C compiler
    digests/ab/KEY             size, time of change, inode and digest of a big file seen before
    machines/ab/KEY            what a machine's ceilings were measured to be
    zig/                       the C compiler's own cache
    turns/KEY                  locked by the process that makes what is to lie under the key
    pruned                     empty; its time of change is that of the last `prune_at_times`

The time of change of an entry is that of its last use: `prune` takes the least recently used first.

What is found is run as a program. So the root is its user's alone (mode 0700): one that belongs to somebody else, or
that others may write to, is not used. A root that cannot be written (read-only, full) is still read; new entries then go
to a temporary folder that lives as long as the process.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache as remember
from pathlib import Path

from opweld.build.turns import Holder, turn
from opweld.build.workspace import make_folder, remove_left, remove_orphans
from opweld.errors import ShortageError
from opweld.options import Environment
from opweld.shortage import NO_DESCRIPTOR, check_shortage

KINDS = ("models", "served", "newest", "accounts", "objects", "shared", "binaries", "digests", "machines")
"""The folders of entries."""

_IN_USE_S = 600

_RECENT_NS = 2_000_000_000
"""A file changed within the last two seconds may change again without its time of change moving."""


@dataclass(frozen=True)
class Entry:
    """One of `KINDS`: where it lies, bytes on disk, and when it was last used, in seconds since the epoch."""

    kind: str
    path: Path
    bytes: int
    used: float


@dataclass(frozen=True)
class Cache:
    """A cache folder. `Cache.open()` gives the user's."""

    root: Path

    @classmethod
    def open(cls, root: Path | None = None) -> Cache:
        """The cache at `root`, or where the environment says. Touches no file."""
        return cls(root or Environment.read().cache or _default_root())

    def find_file(self, kind: str, key: str, suffix: str) -> Path | None:
        """The file stored under `key`, its content checked; None where there is none that is sound."""
        for root in self._roots():
            folder = root / kind / key[:2]
            try:
                names = [name for name in os.listdir(folder) if name.startswith(key + "-") and name.endswith(suffix)]
            except OSError:
                continue
            for name in names:
                path = folder / name
                try:
                    digest = _content_digest(path)
                except OSError:
                    continue
                if digest == name[len(key) + 1 : len(name) - len(suffix)]:
                    _touch(path)
                    return path
                with contextlib.suppress(OSError):
                    path.unlink()
        return None

    def publish_file(self, kind: str, key: str, suffix: str, source: Path) -> Path:
        """Moves the file `source` into the cache under `key`, atomically, and returns where it lies now. Raises
        OSError where it cannot be read."""
        digest = _content_digest(source)
        return self._publish(kind, f"{key}-{digest}{suffix}", lambda place: _copy_then_rename(source, place))

    def find_folder(self, kind: str, key: str) -> Path | None:
        """The folder stored under `key`, or None. The caller checks the content and discards it if damaged."""
        for root in self._roots():
            folder = root / kind / key[:2] / key
            if folder.is_dir():
                _touch(folder)
                return folder
        return None

    def publish_folder(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """Has `fill` write an empty folder, then moves it into the cache under `key`, and returns where it lies.

        If another process was first, its folder stays.
        """

        def place_folder(place: Path) -> None:
            staging = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
            try:
                fill(staging)
                staging.chmod(0o755)
                try:
                    staging.rename(place)
                except OSError:
                    if not place.is_dir():
                        raise
            finally:
                shutil.rmtree(staging, ignore_errors=True)

        return self._publish(kind, key, place_folder)

    def find_text(self, kind: str, key: str) -> str | None:
        """The text stored under `key`, or None. The caller checks what it says."""
        for root in self._roots():
            path = root / kind / key[:2] / key
            with contextlib.suppress(OSError, ValueError):
                text = path.read_text(encoding="utf-8")
                _touch(path)
                return text
        return None

    def publish_text(self, kind: str, key: str, text: str) -> Path:
        """Puts a text into the cache under `key`, in the place of one that lies there, and returns where it lies."""
        return self._publish(kind, key, lambda place: _write_then_rename(text.encode(), place))

    def discard(self, kind: str, key: str) -> None:
        """Removes the folder entry under `key`, as far as that is allowed."""
        for root in self._roots():
            folder = root / kind / key[:2] / key
            if folder.is_dir():
                _remove(folder)

    def entries(self) -> list[Entry]:
        """What the cache holds, the least recently used first, and what interrupted processes left there."""
        found: list[Entry] = []
        for kind in KINDS:
            for path in (self.root / kind).glob("*/*"):
                with contextlib.suppress(OSError):  # removed meanwhile
                    found.append(Entry(kind, path, _bytes_of(path), path.stat().st_mtime))
        return sorted(found, key=lambda entry: entry.used)

    def prune(self, limit: int, unused: float | None = None) -> list[Entry]:
        """Removes entries, the least recently used first, and returns them.

        What was used within the last ten minutes stays: a process may be about to open it. What runs already is not
        disturbed by removal.

        Args:
            limit: bytes that may stay.
            unused: seconds after whose end without use an entry goes in any case.
        """
        entries, now = self.entries(), time.time()
        total = sum(entry.bytes for entry in entries)
        removed: list[Entry] = []
        for entry in entries:
            age = now - entry.used
            if age < _IN_USE_S or (total <= limit and (unused is None or age < unused)):
                continue
            _remove(entry.path)
            if not entry.path.exists():
                removed.append(entry)
                total -= entry.bytes
        return removed

    def prune_at_times(self, limit: int) -> None:
        """`prune`, unless some process did so within the last ten minutes: it looks at every file."""
        stamp = self.root / "pruned"
        try:
            if time.time() - stamp.stat().st_mtime < _IN_USE_S:
                return
        except OSError:
            pass
        with contextlib.suppress(OSError):  # a cache that is read only has nothing to remove
            stamp.touch()
            self.prune(limit)

    def clear(self) -> None:
        """Removes all entries, and what the C compiler keeps. Raises OSError where that is not allowed.

        Each folder is renamed first: other processes, which compile meanwhile, find all of it or nothing, and what
        they publish lies in a new one."""
        if not self.root.is_dir():
            return
        self._remove_renamed()  # by a process that was interrupted
        for name in (*KINDS, "zig"):
            with contextlib.suppress(FileNotFoundError):
                (self.root / name).rename(self.root / f".old-{os.getpid()}-{name}")  # a full disk has room for that
        self._remove_renamed()

    def _remove_renamed(self) -> None:
        for folder in self.root.glob(".old-*"):
            shutil.rmtree(folder, onerror=_unless_busy)

    def file_digest(self, path: Path) -> str:
        """SHA-256 of a file's content, remembered by path, size, time of change and inode. Raises OSError."""
        path = path.resolve()
        status = path.stat()
        stamp, key = _stamp(status), _path_key(path)
        for root in self._roots():
            with contextlib.suppress(OSError, ValueError):
                known, digest = (root / "digests" / key[:2] / key).read_text().splitlines()
                if known == stamp and len(digest) == 64:
                    return digest
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if time.time_ns() - status.st_mtime_ns > _RECENT_NS:
            self._keep_digest(key, stamp, digest)
        return digest

    def remember_digest(self, path: Path, digest: str) -> None:
        """Tells the digest of a file that the caller has just written and nobody else writes to."""
        with contextlib.suppress(OSError):
            path = path.resolve()
            self._keep_digest(_path_key(path), _stamp(path.stat()), digest)

    def _keep_digest(self, key: str, stamp: str, digest: str) -> None:
        text = f"{stamp}\n{digest}\n".encode()
        with contextlib.suppress(OSError):
            self._publish("digests", key, lambda place: _write_then_rename(text, place))

    def writable_folder(self, name: str) -> Path:
        """The folder `name` under the root, made if need be, or under the temporary root if that cannot be written.

        Raises ShortageError when neither can be, or when no file can be opened."""
        for root in (*([self.root] if _make_private(self.root) else []), _temporary_root()):
            folder = root / name
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder) as probe:
                    probe.write(b"\0" * 4096)
                    probe.flush()
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    check_shortage(error)  # that no file can be opened says nothing of the folder
                continue
            return folder
        raise ShortageError(
            f"neither {self.root} nor {tempfile.gettempdir()} can be written: the disk is full, or read-only; "
            "make room, or name other folders with TMPDIR and OPWELD_CACHE"
        )

    @contextlib.contextmanager
    def turn(self, key: str, waiting: Callable[[Holder | None], None]) -> Generator[None]:
        """Keeps other processes from making what lies under `key` during the block; see `turns.turn`. Where the root
        cannot be written nobody is kept."""
        folder = self.root / "turns"
        if _make_private(self.root):
            with contextlib.suppress(OSError):
                folder.mkdir(exist_ok=True)
        with turn(folder / key, waiting):
            yield

    def _roots(self) -> Iterator[Path]:
        if _is_private(self.root):
            yield self.root
        if _temporary_root.cache_info().currsize:
            yield _temporary_root()

    def _publish(self, kind: str, name: str, place: Callable[[Path], None]) -> Path:
        """Puts an entry under the root, or else under the temporary root."""
        if _make_private(self.root):
            target = self.root / kind / name[:2] / name
            with contextlib.suppress(OSError):
                target.parent.mkdir(parents=True, exist_ok=True)
                remove_left(target.parent, ".new-", ".old-")
                place(target)
                return target
        target = _temporary_root() / kind / name[:2] / name
        target.parent.mkdir(parents=True, exist_ok=True)
        place(target)
        return target


def _make_private(root: Path) -> bool:
    """Makes the folder, and says whether it may be used; a folder that cannot be made may not."""
    with contextlib.suppress(OSError):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
    return _is_private(root)


def _is_private(root: Path) -> bool:
    """Whether the folder is there, and nobody but its user, who is this one, can have put anything there."""
    try:
        status = root.stat()
    except OSError:
        return False
    why = "it belongs to another user" if status.st_uid != os.geteuid() else "other users may write to it"
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        warnings.warn(
            f"the cache {root} is not used, for what is found there is run: {why}. "
            "Empty it, make it yours with mode 700, or name another one with OPWELD_CACHE.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    if status.st_mode & 0o055:
        with contextlib.suppress(OSError):  # read-only, and nobody else can write either
            root.chmod(0o700)
    return True


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_dev}"


def _path_key(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()


def _default_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "opweld"
    try:
        return Path.home() / ".cache" / "opweld"
    except RuntimeError:
        return _temporary_root()


@remember
def _temporary_root() -> Path:
    """A folder of this process, removed at its end."""
    remove_orphans()
    folder, _ = make_folder()
    owner = os.getpid()

    def remove() -> None:
        # A forked child inherits this hook but not the folder.
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):  # a cache that is read only has no order of use
        os.utime(path)


def _remove(path: Path) -> None:
    """Removes an entry as far as that is allowed; renamed first, so that nobody finds half of it."""
    doomed = path.with_name(f".old-{os.getpid()}-{path.name}")
    with contextlib.suppress(OSError):
        path.rename(doomed)
        if doomed.is_dir():
            shutil.rmtree(doomed, ignore_errors=True)
        else:
            doomed.unlink()


def _unless_busy(_: object, path: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
    """Of `rmtree`: raises what failed, unless another process removed it first, or a compiler still writes there; what
    that leaves goes the next time."""
    error = failure[1]
    if not isinstance(error, OSError) or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
        raise error


def _bytes_of(path: Path) -> int:
    """Bytes that a file or a folder takes on disk."""
    total = path.lstat().st_blocks * 512
    if path.is_dir():
        with os.scandir(path) as files:
            total += sum(_bytes_of(Path(file.path)) for file in files)
    return total


def _content_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _copy_then_rename(source: Path, place: Path) -> None:
    _write_then_rename(source.read_bytes(), place)


def _write_then_rename(data: bytes, place: Path) -> None:
    """Writes a file that nobody can see half of."""
    handle, name = tempfile.mkstemp(prefix=".new-", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
