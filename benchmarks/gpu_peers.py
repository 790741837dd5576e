"""torch.compile on the models of `benchmarks.gpu_models`, in two modes: `python -m benchmarks.gpu_peers --seconds 120`.

max-autotune takes minutes a model, so that all are compiled at the same time, each in a process of its own, and what is
not ready in time is left out. Times are measured one after the other, when nothing compiles. While others compile,
kernels are chosen by noisier times than alone: a peer is the faster of both modes, and of eager PyTorch in a graph."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

MODES = ("reduce-overhead", "max-autotune")


def child(name: str, batch: int, mode: str, folder: Path) -> None:
    """Compiles a model, says that it is ready, waits for its turn, and writes its milliseconds."""
    import torch

    from benchmarks.gpu_models import INPUTS, built, inputs, median_of

    dtype = torch.bfloat16
    with torch.no_grad():
        module = built(name, dtype).cuda()
        sets = [inputs(name, batch, dtype, seed).cuda() for seed in range(INPUTS)]
        if sets[0].dim() == 4:
            module = module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
            sets = [x.to(memory_format=torch.channels_last) for x in sets]
        made = torch.compile(module, mode=mode)
        for x in sets:
            made(x)
        torch.cuda.synchronize()
        (folder / "ready").touch()
        while not (folder / "go").exists():
            time.sleep(0.02)
        (folder / "time").write_text(str(median_of(made, sets)))
        (folder / "done").touch()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_peers")
    parser.add_argument("--seconds", type=float, default=120, help="of both modes together")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=4)
    given = parser.parse_args(arguments)
    if given.child:
        name, batch, mode, folder = given.child
        child(name, int(batch), mode, Path(folder))
        return
    found: dict[str, dict[str, float]] = {}
    _measure(time.monotonic() + given.seconds, found)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    for key, times in found.items():
        print(f"{key:20} " + "  ".join(f"{mode} {time:.3f} ms" for mode, time in times.items()))


def _measure(end: float, found: dict[str, dict[str, float]]) -> None:
    from benchmarks.gpu_models import JOBS

    with tempfile.TemporaryDirectory() as where:
        running: dict[Path, tuple[str, str, subprocess.Popen[bytes]]] = {}
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "2"}
        for mode in MODES:
            for name, batch in JOBS:
                folder = Path(where) / f"{name}-{batch}-{mode}"
                folder.mkdir()
                command = [sys.executable, "-m", "benchmarks.gpu_peers", "--child", name, str(batch), mode, str(folder)]
                process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
                running[folder] = f"{name} {batch}", mode, process
        while time.monotonic() < end - 15 and not all(
            (folder / "ready").exists() or process.poll() is not None for folder, (_, _, process) in running.items()
        ):
            time.sleep(0.2)
        ready = [folder for folder in running if (folder / "ready").exists()]
        for folder, (_, _, process) in running.items():  # what still compiles would disturb
            if folder not in ready:
                _end(process)
        print(f"{len(ready)} of {len(running)} were compiled in time")
        for folder in ready:
            key, mode, process = running[folder]
            (folder / "go").touch()
            until = time.monotonic() + 5
            while not (folder / "done").exists() and time.monotonic() < until:
                time.sleep(0.01)
            if (folder / "done").exists():
                found.setdefault(key, {})[mode] = float((folder / "time").read_text())
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
