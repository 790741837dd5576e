"""Families of models through both of PyTorch's doors: python -m tests.pytorch.families [SOURCE|FAMILY...]

The smallest models of timm and torchvision, models of diffusers and every task head of transformers in tiny
configurations, with random weights, at two shapes, through `torch.compile` and through `opweld.compile`. timm,
torchvision and diffusers are not among what the tests install: pip install --no-deps timm torchvision diffusers.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.pytorch.families import diffusers_models, task_heads, timm_models, torchvision_models
from tests.pytorch.families.family import Family, Source
from tests.pytorch.families.judge import Verdict, judged
from tests.pytorch.opinfo import said

SOURCES: dict[str, Source] = {
    "timm": timm_models.families,
    "torchvision": torchvision_models.families,
    "diffusers": diffusers_models.families,
    "transformers": task_heads.families,
}


def chosen(names: set[str]) -> Iterator[Family]:
    """Those that are named, by source or by family; all where none is."""
    for source, families in SOURCES.items():
        try:
            for family in families():
                if not names or {source, family.name} & names:
                    yield family
        except ImportError as error:
            if not names or source in names:
                print(f"{source}: {error}", flush=True)


def verdicts(family: Family, seconds: int, options: dict[str, Any], once: bool) -> list[Verdict]:
    """What became of a family, within so many seconds of this process's own: what runs beside it does not count."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s of processor time")

    torch.manual_seed(0)
    signal.signal(signal.SIGPROF, late)
    found: list[Verdict] = []
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module, inputs = family.make()
            _fill_zeros(module)
            with torch.no_grad():
                for fed in inputs:
                    module(**fed)
        found.extend(judged(module, inputs, options, once=once))
    except Exception as error:  # noqa: BLE001 - a library raises what it likes
        found.append(("eager mode", "absent", said(error)))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return found


def _fill_zeros(module: torch.nn.Module) -> None:
    """Gives parameters that begin as zeros small random numbers: what a layer of zeros answers shows nothing of what
    comes before it."""
    with torch.no_grad():
        for own in module.parameters():
            if own.is_floating_point() and not bool(own.any()):
                own.normal_(std=0.02)


def main() -> int:
    """Prints a line for each family and door, and counts; the status is 1 where anything is wrong or failed."""
    from tests.backends.interpret import ENTRY_POINTS
    from tests.unit.packages import installed

    parser = argparse.ArgumentParser(prog="python -m tests.pytorch.families", description=__doc__)
    parser.add_argument("names", nargs="*", help="sources or families; all where none is named")
    parser.add_argument("--interpret", action="store_true", help="with the interpreter: what rows mean, not C")
    parser.add_argument(
        "--once", action="store_true", help="torch.compile is told which sizes differ: one trace a model"
    )
    parser.add_argument("--seconds", type=int, default=300, help="the most processor time that a family may take")
    parser.add_argument("--results", type=Path, help="a file of JSON lines; what it has is not run again")
    given = parser.parse_args()
    logging.getLogger("torch").setLevel(logging.ERROR)
    # Tracers make much and drop little: collections are a sixth of a large model's time.
    gc.set_threshold(100_000, 50, 50)
    done: dict[str, list[Verdict]] = {}
    if given.results and given.results.exists():
        done = dict(json.loads(line) for line in given.results.read_text().splitlines())
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, installed(Path(folder), ENTRY_POINTS):
        os.environ.setdefault("OPWELD_CACHE", f"{folder}/cache")
        options: dict[str, Any] = {"target": "interpret"} if given.interpret else {}
        for family in chosen(set(given.names)):
            key = f"{family.source} {family.name}"
            found = done.get(key)
            if found is None:
                if given.results:  # a crash of the process is a finding, which the next line replaces
                    _add(given.results, key, [("either", "failed", "the process ended")])
                found = verdicts(family, given.seconds, options, given.once)
                if given.results:
                    _add(given.results, key, found)
                for door, verdict, what in found:
                    print(f"{family.source:12} {family.name:40} {door:14} {verdict:9} {what}", flush=True)
            counts.update(verdict for _, verdict, _ in found)
    print(dict(counts))
    return 1 if counts["wrong"] or counts["failed"] else 0


def _add(path: Path, key: str, found: list[Verdict]) -> None:
    with path.open("a") as file:
        file.write(json.dumps([key, found]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
