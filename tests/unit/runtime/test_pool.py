"""How calls that run at the same time share the threads of the pool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opweld.runtime.library import c_headers, c_sources
from tests.patience import PATIENCE_S

SCENES = """\
alone 8
late 1, then 4 and 4
content 2, 6 and 1
alone again 8
"""


@pytest.mark.parametrize("flags", [(), ("-fsanitize=thread",)], ids=["plain", "races"])
def test_calls_at_once_have_their_parts(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Eight processors: a call alone has all; one that comes late has what is left, and its part from the next run on;
    calls that can all have what they request do."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    for name, text in (c_headers() | {"threads.c": c_sources()["threads.c"]}).items():
        (tmp_path / name).write_text(text)
    program = tmp_path / "pool"
    source = Path(__file__).with_name("pool.c")
    options = ["-std=gnu11", "-O1", "-g", *flags, f"-I{tmp_path}", "-ldl", "-pthread"]
    command = [gcc, str(source), *options, "-o", str(program)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if flags and made.returncode:
        pytest.skip("needs gcc's thread sanitizer")
    assert made.returncode == 0, made.stderr
    answer = subprocess.run([str(program)], capture_output=True, text=True, timeout=PATIENCE_S)
    if flags and "FATAL: ThreadSanitizer" in answer.stderr:
        pytest.skip("needs a kernel that the thread sanitizer runs on")
    assert answer.stdout == SCENES, answer.stderr[:4000]
    assert "WARNING" not in answer.stderr, answer.stderr[:4000]
