"""All benchmarks of a GPU, one after the other: what this machine is, attention, the other kernels, whole models.

    python -m benchmarks.gpu                                 all of it
    python -m benchmarks.gpu --quick --json gpu.json         a few minutes: fewer sizes and samples
    python -m benchmarks.gpu device attention --limit 120    two parts, each ended after two minutes

Each part runs in a process of its own: an error of one kernel, after which the GPU's context is lost, leaves the other
parts alone, and so does one that does not end. What a part has measured is in the JSON file as soon as it is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

PARTS = {
    "device": "benchmarks.gpu_device",
    "attention": "benchmarks.gpu_attention",
    "kernels": "benchmarks.gpu_kernels",
    "contractions": "benchmarks.gpu_contractions",
    "suite": "benchmarks.gpu_suite",
    "models": "benchmarks.gpu_models",
    "checks": "benchmarks.gpu_checks",
}
"""The module of each part. Its function `main(quick)` prints what it measures and returns it as JSON types, or yields
it bit by bit."""

TAIL_LINES = 15
"""How much of an error is shown."""


def run(parts: Mapping[str, str], quick: bool, limit: float, file: Path | None) -> dict[str, Any]:
    """Runs the parts in turn; `limit` is the seconds of each. Writes the file after each, too, and answers its content:
    of each part its seconds, its result, and the end of its error."""
    found: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "quick": quick, "parts": {}}
    for name, module in parts.items():
        print(f"== {name}", flush=True)
        start = time.perf_counter()
        result, error = _run_alone(module, quick, limit, lambda so_far, name=name: _write(found, name, so_far, file))
        seconds = round(time.perf_counter() - start, 1)
        found["parts"][name] = {"seconds": seconds, "result": result, "error": error}
        _write(found, name, result, file)
        print(*([error] if error else []), f"== {name}: {'failed' if error else 'done'} in {seconds} s", sep="\n")
    return found


def _run_alone(module: str, quick: bool, limit: float, keep: Any) -> tuple[Any, str]:
    """The result of a part, or what there is of it, and the last lines of its error."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "result.json", Path(folder) / "error.txt"
        command = [sys.executable, "-m", "benchmarks.gpu_part", module, str(file), *(["--quick"] if quick else [])]
        with log.open("wb") as errors, _started(command, errors) as process:
            end, error = time.monotonic() + limit, ""
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                keep(_read(file))
                if process.returncode is None and time.monotonic() > end:
                    os.killpg(process.pid, signal.SIGKILL)  # with what it has started, as compilers
                    error = f"ended after {limit:g} s"
                    break
        if process.returncode:
            said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
            error = "\n".join([*said, error or f"exit status {process.returncode}"])
        return _read(file), error


def _started(command: Sequence[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stderr=errors, env=environment, start_new_session=True)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _write(found: dict[str, Any], name: str, result: Any, file: Path | None) -> None:
    """Writes the file, with what there is of the part `name` if it has not ended."""
    if file is None:
        return
    parts = dict(found["parts"])
    parts.setdefault(name, {"seconds": None, "result": result, "error": "has not ended"})
    whole = file.with_name(f".{file.name}")
    whole.write_text(json.dumps({**found, "parts": parts}, indent=1) + "\n", encoding="utf-8")
    whole.replace(file)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; answers its exit status, 1 where a part failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all where none is named")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is measured there, too")
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="end a part after so many seconds (600)")
    given = parser.parse_args(arguments)
    if unknown := [part for part in given.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: expected some of {', '.join(PARTS)}")
    found = run({name: PARTS[name] for name in given.parts or PARTS}, given.quick, given.limit, given.json)
    return int(any(part["error"] for part in found["parts"].values()))


if __name__ == "__main__":
    sys.exit(main())
