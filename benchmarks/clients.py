"""Answers a second when several clients run one model at once, beside other runtimes.

    python -m benchmarks.clients                                1, 2 and 4 clients on models of the zoo
    python -m benchmarks.clients resnet50 --clients 1,2,3,4
    python -m benchmarks.clients --against HEAD~1               beside another revision of opweld

Clients are threads of one process that share a session, each with a run of its own at a time. ONNX Runtime has one
session with all threads; OpenVINO one model with the hint for throughput and a request for each client. Contestants
take turns in blocks. `ratio` is opweld's answers a second by those of the best other one: above 1, opweld serves more.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.paired import REPOSITORY, Contestant, contest, revision
from benchmarks.zoo import fetch, inputs

MODELS = ("silero-vad", "ppocrv4-cls", "minilm", "ppocrv4-rec", "resnet50", "bert-base")


def main() -> int:
    """Measures and prints a line for each model and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, help="of the zoo")
    parser.add_argument("--clients", default="1,2,4", metavar="N,N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vs", default="onnxruntime,openvino", metavar="NAMES")
    parser.add_argument("--against", metavar="REVISION", help="another revision of opweld")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of a contestant")
    options = parser.parse_args()
    with contextlib.ExitStack() as revisions:
        other = revisions.enter_context(revision(options.against)) if options.against else None
        for name in options.models:
            for clients in map(int, options.clients.split(",")):
                with tempfile.TemporaryDirectory(prefix="opweld-clients-") as folder, contextlib.ExitStack() as stack:
                    feeds = Path(folder) / "feeds.npz"
                    np.savez(feeds, allow_pickle=False, **inputs.example(name))

                    def started(name: str = name, clients: int = clients, feeds: Path = feeds) -> Iterator[Contestant]:
                        model = fetch.path(name)
                        sources = [("opweld", REPOSITORY, "opweld")]
                        sources += [(options.against, other, "opweld")] if other else []
                        sources += [(peer, REPOSITORY, peer) for peer in options.vs.split(",") if peer]
                        for title, source, runtime in sources:
                            yield Contestant(title, source, runtime, model, feeds, options.threads, clients=clients)

                    opened = contest(started(), options.rounds, stack, f"{name}: left out: ")
                    rates = {contestant.name: 1 / contestant.median for contestant in opened}
                others = {title: rate for title, rate in rates.items() if title != "opweld"}
                ratio = f"{rates['opweld'] / max(others.values()):.2f}" if others else "-"
                shown = "  ".join(f"{title} {rate:.4g}/s" for title, rate in rates.items())
                print(f"{name:<20} {clients} clients  {shown}  ratio {ratio}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
