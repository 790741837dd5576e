"""What a process lacks is an error of its own, with a remedy, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from opweld import shortage
from opweld.build.cache import Cache
from opweld.errors import OptionError, ShortageError
from opweld.shortage import describe, describe_program, shortages
from opweld.whole import write, write_text
from tests.conftest import REPOSITORY

COMPILING = """
import resource, sys
import numpy as np
from onnx import helper, numpy_helper
import opweld, opweld.pipeline, opweld.frontend.onnx
w = numpy_helper.from_array(np.ones((300, 300), np.float32), "w")
x, y = (helper.make_tensor_value_info(name, 1, ["N", 300]) for name in "xy")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
kind, limit = getattr(resource, sys.argv[1]), int(sys.argv[2])
resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))
try:
    opweld.compile(model)
except opweld.OpweldError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("kind", "limit", "remedy"),
    [("RLIMIT_FSIZE", 20_000, "ulimit -f"), ("RLIMIT_NOFILE", 16, "ulimit -n")],
)
def test_limits_of_a_process(kind: str, limit: int, remedy: str, tmp_path: Path) -> None:
    """A file of weights that may not grow, a compiler that cannot be started."""
    variables = os.environ | {"TMPDIR": str(tmp_path), "OPWELD_CACHE": str(tmp_path / "cache")}
    variables["PYTHONPATH"] = str(REPOSITORY / "src")
    command = [sys.executable, "-c", COMPILING, kind, str(limit)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "ShortageError"), done.stderr
    assert remedy in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_errors_of_the_system_in_words(number: int) -> None:
    error = OSError(number, os.strerror(number), "some/file")
    assert "some/file" in (describe(error) or "")
    with pytest.raises(ShortageError), shortages():
        raise error
    with pytest.raises(ShortageError), shortages():
        raise shutil.Error([("a", "b", f"[Errno {number}] {os.strerror(number)}: 'b'")])


def test_other_errors_are_what_they_are() -> None:
    assert describe(FileNotFoundError(errno.ENOENT, "No such file or directory")) is None
    with pytest.raises(BrokenPipeError), shortages():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    with pytest.raises(ShortageError), shortages():
        raise MemoryError


def test_programs_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ulimit -n" in (describe_program("failed to spawn: ProcessFdQuotaExceeded", 1, tmp_path) or "")
    assert "ulimit -f" in (describe_program("", -signal.SIGXFSZ, tmp_path) or "")
    assert describe_program("m.c:1: error: expected expression", 1, tmp_path) is None
    monkeypatch.setattr(shortage, "_LITTLE", 0)
    assert describe_program("", -signal.SIGABRT, tmp_path) is None
    monkeypatch.setattr(shortage, "_LITTLE", 1 << 62)
    assert "disk is full" in (describe_program("", -signal.SIGABRT, tmp_path) or "")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("before")
    file.chmod(0o640)

    def fill(out: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ShortageError, match=r"--output: the disk is full: cannot write .*report\.html"):
        write(file, "--output", fill)
    assert (file.read_text(), [path.name for path in tmp_path.iterdir()]) == ("before", ["report.html"])
    write_text("after", file, "--output")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o640)
    link = tmp_path / "link"
    link.symlink_to(file)
    write_text("through \ud800", link, "--output")
    assert link.is_symlink() and file.read_text() == "through \\ud800"
    write_text("gone", Path("/dev/null"), "--output")
    with pytest.raises(OptionError, match="--output"):
        write_text("", tmp_path / "absent" / "file", "--output")


def test_files_that_cannot_be_opened_say_nothing_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(**options: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(tempfile, "TemporaryFile", none_left)
    with pytest.raises(ShortageError, match="ulimit -n"):
        Cache(tmp_path).writable_folder("objects")
