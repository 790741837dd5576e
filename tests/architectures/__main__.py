"""Exported architectures, compiled and compared: python -m tests.architectures [--only RE] [--json]."""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.architectures.architecture import EXPORTERS
from tests.architectures.catalogue import CATALOGUE
from tests.architectures.judge import Finding
from tests.architectures.suite import judged
from tests.random.__main__ import environment


def main() -> int:
    """Prints what is found as it comes; the status is 1 when anything is refused or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.architectures", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression: architectures whose names hold it")
    parser.add_argument("--exporter", choices=EXPORTERS, help="what this exporter makes alone")
    parser.add_argument("--json", action="store_true", help="one object a line instead of the table")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compiler", choices=("quick", "product"), default="quick", help="gcc -O1, or zig cc -O3")
    given = parser.parse_args()
    chosen = [architecture for architecture in CATALOGUE if re.search(given.only, architecture.name)]
    if given.exporter:
        chosen = [a.only(given.exporter) for a in chosen if given.exporter in a.exporters]
    started = time.monotonic()
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="opweld-architectures-") as folder:
        for finding in judged(chosen, given.workers, environment(Path(folder), given.compiler)):
            findings.append(finding)
            print(json.dumps(finding.to_json()) if given.json else _line(finding), flush=True)
    if not given.json:
        counts = collections.Counter(finding.verdict for finding in findings)
        print(f"{len(chosen)} architectures, {time.monotonic() - started:.0f} s:", dict(counts))
    return 1 if any(finding.bad for finding in findings) else 0


def _line(finding: Finding) -> str:
    sizes = f"{finding.runs} sizes" + (f", {finding.void} void" if finding.void else "")
    return f"{finding.name:28} {finding.exporter:7} {sizes:16} {finding.verdict:9} {finding.what[:200]}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
