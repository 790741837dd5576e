"""One contestant of `benchmarks.paired`: a process that runs one model, a block of runs for each line it reads.

It knows nothing of the zoo, so that `PYTHONPATH` may give it the opweld of another revision.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def main() -> int:
    """Opens the model and prints what that took (seconds to open and of the first run, peak bytes of memory), then
    answers each number of seconds with that many seconds of run times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", help="opweld, onnxruntime, openvino or inductor; torch:NAME of benchmarks.modules")
    parser.add_argument(
        "model", type=Path, help="ONNX; of opweld an artifact too, of inductor a torch.export file, of torch:NAME none"
    )
    parser.add_argument("feeds", type=Path, help="an npz file")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--clients", type=int, default=1, help="threads that run the model at once")
    parser.add_argument("--disable", action="append", default=[], help="of opweld: a rule that stays at its baseline")
    parser.add_argument("--limit", default="", help="of opweld: a target whose instructions are all that it may use")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: time that this process had a core")
    options = parser.parse_args()
    if options.limit and options.runtime == "opweld":
        _limit(options.limit)
    feeds = dict(np.load(options.feeds))
    if options.clients > 1 and options.runtime == "openvino":
        return _serve(_requests(options.model, feeds, options.threads, options.clients))
    open_ = _opener(options.runtime, options.model, feeds, options.threads, options.disable)
    times = [time.perf_counter()]
    try:
        run = open_()
    except Exception as error:  # noqa: BLE001 - each runtime has errors of its own; one line of them says enough
        sys.exit(f"{options.runtime}: {str(error).splitlines()[0][:300]}")
    times.append(time.perf_counter())
    run()
    times.append(time.perf_counter())
    run()
    if options.clients > 1:
        return _serve([run] * options.clients)
    print(json.dumps({"open": times[1] - times[0], "first": times[2] - times[1], "peak": _peak_bytes()}), flush=True)
    for line in sys.stdin:
        print(*_block(run, float(line), CLOCKS[options.clock]), flush=True)
    return 0


def _limit(name: str) -> None:
    """Lets opweld take this machine, with its cores and caches, for one that has the instructions of a target only."""
    from opweld.target import Target

    native, other = Target.native(), Target.of(name)
    limited = dataclasses.replace(
        native,
        name=name,
        vector_bytes=other.vector_bytes,
        vector_registers=other.vector_registers,
        features=other.features,
    )
    Target.native = staticmethod(lambda: limited)  # pyright: ignore[reportAttributeAccessIssue]


def _serve(runs: Sequence[Callable[[], object]]) -> int:
    """Answers each number of seconds, or as many as a few answers take, with the seconds that an answer took of all
    clients together."""
    print(json.dumps({"open": 0.0, "first": 0.0, "peak": _peak_bytes()}), flush=True)
    with ThreadPoolExecutor(len(runs)) as clients:
        for line in sys.stdin:
            warm = time.perf_counter()
            list(clients.map(_answers, runs, [warm] * len(runs)))
            start = time.perf_counter()
            end = start + max(float(line), 5 * (start - warm))
            answers = sum(clients.map(_answers, runs, [end] * len(runs)))
            print((time.perf_counter() - start) / answers, flush=True)
    return 0


def _answers(run: Callable[[], object], end: float) -> int:
    count = 0
    while not count or time.perf_counter() < end:
        run()
        count += 1
    return count


def _requests(model: Path, feeds: dict[str, Any], threads: int, clients: int) -> list[Callable[[], object]]:
    """OpenVINO as its users serve several clients: one model, tuned for throughput, a request for each."""
    from opweld.experiments.peers import openvino

    compiled = openvino(model, feeds, threads, "THROUGHPUT")
    requests = [compiled.create_infer_request() for _ in range(clients)]
    return [partial(request.infer, feeds, share_inputs=True, share_outputs=True) for request in requests]


def _peak_bytes() -> int:
    """The most memory that this program had; what getrusage says may be the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def _opener(
    runtime: str, model: Path, feeds: dict[str, Any], threads: int, disable: Sequence[str]
) -> Callable[[], Callable[[], object]]:
    """What opens the model; the runtime is imported before, for programs do that once."""
    if runtime == "opweld":
        import opweld

        if model.suffix == ".opweld":
            load = opweld.load
            return lambda: partial(load(model, threads=threads).run, feeds)
        return lambda: partial(opweld.compile(str(model), threads=threads, disable=disable).run, feeds)
    if runtime == "inductor":
        return _inductor(model, feeds, threads)
    if runtime.startswith("torch:"):
        from benchmarks.modules import opener

        return opener(runtime.removeprefix("torch:"), str(model), feeds, threads)
    from opweld.experiments.peers import prepare

    with contextlib.suppress(ImportError):
        import_module(runtime)
    return lambda: prepare(runtime, model, feeds, threads)


def _inductor(model: Path, feeds: dict[str, Any], threads: int) -> Callable[[], Callable[[], object]]:
    """torch.compile at its best: weights frozen, constants folded into them."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)

    def open_() -> Callable[[], object]:
        config: Any = import_module("torch._inductor.config")
        config.freezing = True
        module: Any = torch.compile(torch.export.load(model).module())
        values = {name: torch.from_numpy(array) for name, array in feeds.items()}
        return lambda: module(**values)

    return open_


def _block(run: Callable[[], object], seconds: float, clock: Callable[[], float]) -> list[float]:
    """Times of runs by a clock, after one that wakes threads and fills caches."""
    run()
    end = clock() + seconds
    times: list[float] = []
    while not times or clock() < end:
        start = clock()
        run()
        times.append(clock() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())
