from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opweld.build import workspace
from opweld.build.workspace import remove_orphans, temporary_folder
from opweld.cached import compile_model
from opweld.errors import OpweldError
from opweld.options import Options
from tests.conftest import REPOSITORY


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary folders."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(workspace, "_YOUNG_S", 0)
    remove_orphans.cache_clear()
    return tmp_path


def sweep() -> None:
    remove_orphans.cache_clear()
    remove_orphans()


def test_a_folder_lives_as_long_as_its_block(temporary: Path) -> None:
    with pytest.raises(ValueError, match="stop"), temporary_folder() as folder:
        (folder / "file").touch()
        sweep()
        assert (folder / "file").exists(), "it is in use"
        raise ValueError("stop")
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed(temporary: Path) -> None:
    code = (
        "import os, signal\n"
        "from opweld.build.workspace import temporary_folder\n"
        "with temporary_folder() as folder:\n"
        "    (folder / 'half').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    variables = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(REPOSITORY / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=variables, check=False).returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    assert (left / "half").exists()
    sweep()
    assert list(temporary.iterdir()) == []


def test_what_is_not_ours_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary / "opweld-notes").mkdir()
    (temporary / "other").mkdir()
    (temporary / "other" / ".lock").touch()
    (temporary / "opweld-link").symlink_to("other")
    sweep()
    assert {path.name for path in temporary.iterdir()} == {"opweld-notes", "other", "opweld-link"}
    monkeypatch.setattr(workspace, "_YOUNG_S", 60)
    (temporary / "opweld-young").mkdir()
    (temporary / "opweld-young" / ".lock").touch()
    sweep()
    assert (temporary / "opweld-young").exists()


def test_old_leftovers_go_young_ones_stay(tmp_path: Path) -> None:
    for name in (".new-a", ".new-b", "kept"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / ".new-b")
    workspace.remove_left(tmp_path, ".new-")
    assert {path.name for path in tmp_path.iterdir()} == {".new-b", "kept"}


def test_no_place_for_a_folder_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(OpweldError, match="TMPDIR"), temporary_folder():
        pass


def test_a_full_disk_is_an_error_other_failures_pass(temporary: Path) -> None:
    with pytest.raises(OpweldError, match="disk is full"), temporary_folder():
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError), temporary_folder():
        (temporary / "absent").read_bytes()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("size", ["16k", "200k", "1m"])
def test_compiling_on_a_full_disk(tmp_path: Path, size: str) -> None:
    """Temporary folder, cache and output on one small disk: a message, and nothing left but what is whole."""
    from tests.unit.frontend.models import model_of, node

    (tmp_path / "m.onnx").write_bytes(model_of([node("Relu", ["x"], "y")], {"x": [3]}, ["y"]).SerializeToString())
    disk, left = tmp_path / "disk", tmp_path / "left"
    disk.mkdir()
    script = (
        f"mount -t tmpfs -o size={size} none {disk} || exit 77\n"
        f"mkdir {disk}/t\n"
        f"{sys.executable} -m opweld.cli.main compile {tmp_path}/m.onnx -o {disk}/m.opweld\n"
        f"status=$?; cd {disk}; find . -path ./c -prune -o -path './t/?*' -print -o -name 'm*' -print > {left}\n"
        "exit $status"
    )
    variables = os.environ | {"TMPDIR": f"{disk}/t", "OPWELD_CACHE": f"{disk}/c", "PYTHONPATH": str(REPOSITORY / "src")}
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare, to mount a disk of its own")
    command = [unshare, "-rm", "sh", "-c", script]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this system lets nobody mount a disk")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("opweld: ")
    assert "disk is full" in done.stderr or "No space left on device" in done.stderr, "the C compiler says it so"
    assert left.read_text() == ""


def test_whatever_is_written_to_a_full_disk_says_so(tmp_path: Path) -> None:
    """Each command that writes a file, and standard output: one message, exit status 1, and no part of a file."""
    from tests.unit.frontend.models import model_of, node

    (tmp_path / "m.onnx").write_bytes(model_of([node("Relu", ["x"], "y")], {"x": [3000]}, ["y"]).SerializeToString())
    compile_model(tmp_path / "m.onnx", Options())
    disk, told = tmp_path / "disk", tmp_path / "told"
    disk.mkdir()
    commands = (
        f"optimize {{}} -o {disk}/a.onnx",
        f"report {{}} -o {disk}/b.html --no-run",
        f"run {{}} --output {disk}/c",
        f"lock {{}} -o {disk}/d",
        f"explain {{}} --json {disk}/e",
        f"analyze {{}} --csv {disk}/f",
        f"compile {{}} -o {disk}/g.opweld",
        "explain {} > /dev/full",
    )
    script = [f"mount -t tmpfs -o size=16k none {disk} || exit 77", f"dd if=/dev/zero of={disk}/fill bs=4k 2>/dev/null"]
    for command in commands:
        line = command.format(tmp_path / "m.onnx")
        script.append(f"{sys.executable} -m opweld.cli.main {line} 2>&1 >/dev/null | tail -1 >> {told}" if ">" not in line
                      else f"{sys.executable} -m opweld.cli.main {line} 2>> {told}")
    script.append(f"cd {disk}; find . -type f -size +0 -print > {told}.left")
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare, to mount a disk of its own")
    variables = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    run = [unshare, "-rm", "sh", "-c", "\n".join(script)]
    done = subprocess.run(run, env=variables, capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this system lets nobody mount a disk")
    lines = told.read_text().splitlines()
    assert len(lines) == len(commands) and all("the disk is full: cannot write" in line for line in lines), lines
    assert (tmp_path / "told.left").read_text() == "./fill\n"
