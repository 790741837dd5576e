"""C text in, shared object out: `zig cc` (or what OPWELD_CC names) in parallel, each object compiled once.

Measured with zig 0.17.0: 0.02 s a small file, 0.02 s a link. The headers of kernels take 0.25 s of processor time,
mostly `immintrin.h`, of 0.75 for a file of 100 KB; so `zig cc` reads them once for all files, as a precompiled header. A
first link that needs zig's compiler runtime builds it, 3 s once a machine. Generated code needs none of it, so it is linked
without (0.3 s the first time), and with it only if that fails. zig's runtime has no `__builtin_cpu_supports`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache as remember
from importlib import metadata, util
from pathlib import Path

from opweld.build.artifact import SOURCES
from opweld.build.cache import Cache
from opweld.shortage import check_shortage, describe_program
from opweld.build.workspace import temporary_folder
from opweld.errors import ShortageError, ToolchainError
from opweld.options import Environment, available_cores
from opweld.target import Target

BASE_FLAGS = (
    "-O3",
    "-std=c11",
    "-fPIC",
    "-fno-sanitize=undefined",  # zig turns it on by default
    "-fwrapv",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-g1",  # functions and lines, for debuggers and profilers; code is the same as without, compiling takes 4% longer
)
"""Flags of every object. No fast-math: NaN and infinity are values."""

_TIMEOUT_S = 600
_TAIL_LINES = 30
_COMMON = "common.h"
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+\.[ch]")

Progress = Callable[[int, int], None]
"""Called with (objects done, objects in all)."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the command that starts it, a text that tells its versions apart, and whether it is zig's clang."""

    command: tuple[str, ...]
    version: str
    is_zig: bool

    @classmethod
    def find(cls) -> Compiler:
        """The compiler that OPWELD_CC names, else zig. Raises ToolchainError where there is none."""
        named = Environment.read().compiler
        return _zig() if named is None else _named(named)

    def flags(self, target: Target) -> tuple[str, ...]:
        """The flags of every object compiled for `target`."""
        if self.is_zig:
            return (*BASE_FLAGS, "-ffp-contract=on", *clang_flags(target))
        # Before gcc 14, `on` meant `off`: no fused multiply-add at all.
        return (*BASE_FLAGS, "-ffp-contract=fast", *gcc_flags(target))


def clang_flags(target: Target) -> tuple[str, ...]:
    """Flags that make `zig cc` compile for a machine; never `native`: equal targets give equal objects."""
    more = [feature.replace("-", "_") for feature in _more(target)]
    if not _DOTS.isdisjoint(more):
        more.append("fast_dpwssd")
    flags = ("-target", target.triple, "-mcpu=" + "+".join((_ZIG_PROCESSORS[target.name], *more)))
    # clang's generic x86-64-v4 prefers 256-bit vectors, for processors that slow down at 512.
    return (*flags, "-mprefer-vector-width=512") if target.vector_bytes == 64 else flags


def gcc_flags(target: Target) -> tuple[str, ...]:
    """The same for gcc and for a clang that is not zig's."""
    if target.name == "aarch64":
        return ("-march=" + "+".join(("armv8-a", *_more(target))),)
    flags = (f"-march={target.name}", *(f"-m{feature}" for feature in _more(target)))
    return (*flags, "-mprefer-vector-width=512") if target.vector_bytes == 64 else flags


_ZIG_PROCESSORS = {"x86-64-v3": "x86_64_v3", "x86-64-v4": "x86_64_v4", "aarch64": "generic"}
_DOTS = frozenset(("avx512vnni", "avxvnni"))
"""Features with vpdpwssd. clang makes a product and a sum of it, in case sums wait for each other; ours have many
accumulators."""


def _more(target: Target) -> tuple[str, ...]:
    """The features that the generic target of its name lacks."""
    return tuple(feature for feature in target.features if feature not in Target.of(target.name).features)


@remember
def _zig() -> Compiler:
    found = util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise ToolchainError(
            "compiling needs a C compiler: pip install ziglang, or set OPWELD_CC to the path of gcc or clang"
        )
    # The program itself, not `python -m ziglang`: that would start another Python for every file.
    program = Path(found.submodule_search_locations[0]) / "zig"
    if not program.exists():
        raise ToolchainError(f"the ziglang package lacks {program}; install it anew with pip, or set OPWELD_CC")
    return Compiler((str(program), "cc"), f"zig {metadata.version('ziglang')}", is_zig=True)


@remember
def _named(program: Path) -> Compiler:
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"OPWELD_CC names {program}, which does not answer --version: {error}") from error
    return Compiler((str(program),), answer.stdout.strip(), is_zig=False)


def build_shared(
    sources: Mapping[str, str],
    out: Path,
    *,
    target: Target,
    headers: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: Cache | None = None,
    keep: bool = False,
) -> None:
    """Compiles C files and links them into the shared object `out`, which appears whole or not at all.

    Args:
        sources: C text by file name.
        out: the shared object to write; its folder must be there.
        target: the machine to compile for.
        headers: text by file name of what the sources include with quotes; part of every object's identity.
        flags: more compiler flags, after those of `BASE_FLAGS` and the target.
        jobs: how many compilers run at a time; the number of cores where None.
        progress: called as objects get done.
        cache: where objects are kept; the user's where None.
        keep: whether the shared object is kept in the cache too, for what every model links anew.

    Raises ToolchainError with the compiler's last lines when it rejects something, or when there is no compiler.
    """
    compiler, cache = Compiler.find(), cache or Cache.open()
    with Objects(target=target, headers=headers, flags=flags, jobs=jobs, cache=cache) as objects:
        if not keep:
            objects.link(sources, out, progress)
            return
        # The names of objects carry digests of their contents.
        names = dict.fromkeys(path.name for path in objects.collect(sources, progress))
        key = _key(compiler, clang_flags(target), {}, "\n".join(names))
        linked = cache.find_file("shared", key, ".so")
        if linked is None:
            with temporary_folder() as folder:
                made = folder / "made.so"
                objects.link(sources, made)
                linked = cache.publish_file("shared", key, ".so", made)
    handle, name = tempfile.mkstemp(prefix=".new-", suffix=".so", dir=out.parent)
    os.close(handle)
    try:
        shutil.copyfile(linked, name)
        os.chmod(name, 0o755)
        os.replace(name, out)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def compile_objects(
    sources: Mapping[str, str],
    *,
    target: Target,
    headers: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> list[Path]:
    """Compiles C files to objects, in the order of `sources`; equal texts share one object. See `build_shared`."""
    with Objects(target=target, headers=headers, flags=flags, jobs=jobs, cache=cache) as objects:
        return objects.collect(sources, progress)


class Objects:
    """C files on their way to objects, several at a time, each from when it is there. As a context manager: what was
    not begun by the end of the block never is. Arguments as of `build_shared`, whose errors it raises.

    `common`: what most files begin with, such as headers. Where the compiler is zig's, it is compiled once for all."""

    def __init__(
        self,
        *,
        target: Target,
        headers: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        jobs: int | None = None,
        cache: Cache | None = None,
        common: str = "",
    ) -> None:
        self._compiler, self._cache = Compiler.find(), cache or Cache.open()
        self._common = common if self._compiler.is_zig else ""
        self._precompiled: Future[str | None] | None = None
        self._target = target
        self._headers = headers or {}
        self._flags = (*self._compiler.flags(target), *flags)
        self._jobs = jobs or available_cores()
        self._open = contextlib.ExitStack()
        self._holding: Path | None = None
        self._at_work: tuple[Path, ThreadPoolExecutor] | None = None
        self._names: dict[str, str] = {}
        self._done: dict[str, Path] = {}
        self._tasks: dict[str, Future[Path]] = {}
        for name in self._headers:
            _check_name(name)

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def prepare(self) -> None:
        """Begins with what files have in common, before the first of them is there."""
        self._begun()

    def add(self, name: str, text: str) -> str:
        """Begins to compile a file, unless its object is there or on its way. Answers the key of the object.

        Raises ValueError for a name that another text has."""
        _check_name(name)
        shared = bool(self._common) and text.startswith(self._common)
        key = _key(self._compiler, (*self._flags, *(["-include-pch"] if shared else [])), self._headers, text)
        if self._names.setdefault(name, key) != key:
            raise ValueError(f"{name} has two texts")
        if key in self._done or key in self._tasks:
            return key
        found = self._find(key)
        if found is not None:
            self._done[key] = found
            return key
        workspace, pool = self._begun()
        (workspace / name).write_text(text, encoding="utf-8")
        precompiled = self._precompiled if shared else None
        self._tasks[key] = pool.submit(_compile, self._compiler, self._flags, workspace, name, self._cache, precompiled)
        return key

    def collect(self, sources: Mapping[str, str], progress: Progress | None = None) -> list[Path]:
        """The objects of all files, in their order, those that were added before among them."""
        keys = [self.add(name, text) for name, text in sources.items()]
        waiting = {self._tasks[key]: key for key in keys if key in self._tasks}
        done = sum(key in self._done for key in keys)
        if progress:
            progress(done, len(keys))
        for task in as_completed(waiting):
            key = waiting[task]
            self._done[key] = self._publish(key, task.result())
            del self._tasks[key]
            done += keys.count(key)
            if progress:
                progress(done, len(keys))
        return [self._done[key] for key in keys]

    def link(self, sources: Mapping[str, str], out: Path, progress: Progress | None = None) -> None:
        """Links the objects of all files into the shared object `out`. Raises ToolchainError."""
        link([self._held() / path.name for path in self.collect(sources, progress)], out, self._target, self._cache)

    def _find(self, key: str) -> Path | None:
        """An object of the cache, held."""
        found = self._cache.find_file("objects", key, ".o")
        try:
            if found is not None:
                _link_or_copy(found, self._held() / found.name)
        except FileNotFoundError:  # gone since
            return None
        return found

    def _publish(self, key: str, made: Path) -> Path:
        """Puts an object into the cache, and holds it."""
        place = self._cache.publish_file("objects", key, ".o", made)
        _link_or_copy(made, self._held() / place.name)
        return place

    def _held(self) -> Path:
        """A folder of objects to link, which stay there whatever other processes remove from the cache."""
        if self._holding is None:
            self._holding = self._open.enter_context(temporary_folder())
        return self._holding

    def _begun(self) -> tuple[Path, ThreadPoolExecutor]:
        """A folder with the headers, and the threads that wait for compilers."""
        if self._at_work is None:
            workspace = self._open.enter_context(temporary_folder())
            for name, text in self._headers.items():
                (workspace / name).write_text(text, encoding="utf-8")
            pool = ThreadPoolExecutor(self._jobs)
            self._open.callback(pool.shutdown, wait=True, cancel_futures=True)
            if self._common:
                (workspace / _COMMON).write_text(self._common, encoding="utf-8")
                self._precompiled = pool.submit(_precompile, self._compiler, self._flags, workspace, self._cache)
            self._at_work = workspace, pool
        return self._at_work


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _check_name(name: str) -> None:
    if not _FILE_NAME.fullmatch(name):
        raise ToolchainError(f"{name!r} is no name for a C file: expected letters, digits and _, then .c or .h")


def assembly(sources: Mapping[str, str], *, target: Target, headers: Mapping[str, str]) -> dict[str, str]:
    """The assembly that the compiler makes of C files, by their names, as it compiles them for `build_shared`.

    Raises ToolchainError as `build_shared` does."""
    compiler, cache = Compiler.find(), Cache.open()
    found: dict[str, str] = {}
    with temporary_folder() as workspace:
        for name, text in (*headers.items(), *sources.items()):
            (workspace / name).write_text(text, encoding="utf-8")
        for name in sources:
            out = workspace / f"{name}.s"
            _run((*compiler.command, *compiler.flags(target), "-S", name, "-o", out.name), workspace, name, cache)
            found[name] = out.read_text(encoding="utf-8")
    return found


def _key(compiler: Compiler, flags: Sequence[str], headers: Mapping[str, str], text: str) -> str:
    """The identity of an object: everything that its bytes depend on."""
    digest = hashlib.sha256()
    for part in (compiler.version, *flags, *(part for item in sorted(headers.items()) for part in item), text):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:40]


def _compile(
    compiler: Compiler,
    flags: Sequence[str],
    workspace: Path,
    name: str,
    cache: Cache,
    precompiled: Future[str | None] | None = None,
) -> Path:
    """Compiles a file of the workspace; `precompiled`: what its text begins with, as `_precompile` makes it."""
    out = workspace / (name[:-2] + ".o")
    common = None if precompiled is None else precompiled.result()
    known = () if common is None else ("-include-pch", common)
    _run((*compiler.command, *flags, _place(workspace), *known, "-c", name, "-o", out.name), workspace, name, cache)
    return out


def _precompile(compiler: Compiler, flags: Sequence[str], workspace: Path, cache: Cache) -> str | None:
    """Compiles `_COMMON`, and answers the name of what it became; None where the compiler cannot. Files that begin with
    it compile without too, and to the same code."""
    made = f"{_COMMON}.pch"
    command = (*compiler.command, *flags, _place(workspace), "-x", "c-header", _COMMON, "-o", made)
    try:
        _run(command, workspace, _COMMON, cache)
    except ToolchainError:
        return None
    return made


def _place(workspace: Path) -> str:
    """A flag by which objects are the same in every workspace, and lines are those of the sources that an artifact
    keeps."""
    return f"-fdebug-prefix-map={workspace.resolve()}={SOURCES}"


def link(objects: Sequence[Path], out: Path, target: Target, cache: Cache | None = None) -> None:
    """Links objects, each once, into the shared object `out`: to a temporary name in its folder, then renamed.

    Raises ToolchainError when the linker rejects something."""
    compiler, cache = Compiler.find(), cache or Cache.open()
    where = clang_flags(target)[:2] if compiler.is_zig else ()
    libraries = ("-lc", "-lm", "-lpthread", "-Wl,-z,defs", "-Wl,--build-id=none")
    handle, name = tempfile.mkstemp(prefix=".new-", suffix=".so", dir=out.parent)
    os.close(handle)
    try:
        with temporary_folder() as folder:
            # A file instead of arguments: hundreds of paths may be too long for a command line.
            arguments = folder / "objects.txt"
            quoted = ('"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"' for path in dict.fromkeys(objects))
            arguments.write_text("\n".join(quoted), encoding="utf-8")
            command = (*compiler.command, *where, "-O3", "-shared", f"@{arguments}", *libraries, "-o", name)
            try:
                _run((*command, "-nostdlib"), folder, out.name, cache)
            except ToolchainError:
                _run(command, folder, out.name, cache)
        os.chmod(name, 0o755)
        os.replace(name, out)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _run(command: Sequence[str], folder: Path, subject: str, cache: Cache) -> None:
    """Runs a compiler command in `folder`; zig keeps its files in the cache, and for this file's own in `folder`."""
    failure = _attempt(command, folder, cache.writable_folder("zig"))
    if failure is not None and f"{subject}:" not in failure.text and "undefined symbol" not in failure.text:
        # No complaint about the text itself: zig's own cache may be damaged, or its disk full.
        spare = folder / f".zig-{subject}"
        failure = _attempt(command, folder, spare)
        shutil.rmtree(spare, ignore_errors=True)
    if failure is not None:
        _check_shortage(failure, folder)
        tail = "\n".join(failure.text.splitlines()[-_TAIL_LINES:])
        raise ToolchainError(f"{' '.join(command[:2])} failed on {subject}:\n{tail}")


@dataclass(frozen=True)
class _Failure:
    """What a compiler said, and its exit status."""

    text: str
    status: int


def _check_shortage(failure: _Failure, folder: Path) -> None:
    """Raises ShortageError where the compiler failed for want of files, memory, or room in `folder`."""
    reason = describe_program(failure.text, failure.status, folder)
    if reason is not None:
        raise ShortageError(f"the C compiler failed: {reason}")


def _attempt(command: Sequence[str], folder: Path, zig_cache: Path) -> _Failure | None:
    """Runs a command; None if it succeeded."""
    variables = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(zig_cache), "ZIG_LOCAL_CACHE_DIR": str(folder), "LC_ALL": "C"}
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        check_shortage(error)
        raise ToolchainError(f"cannot start the C compiler {command[0]}: {error}") from error
    except subprocess.TimeoutExpired:
        return _Failure(f"no answer within {_TIMEOUT_S} s", 0)
    if answer.returncode == 0:
        return None
    return _Failure(answer.stderr or answer.stdout or f"exit status {answer.returncode}", answer.returncode)
