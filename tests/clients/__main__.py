"""The example files of Triton's Python client, unchanged, beside `opweld serve`: python -m tests.clients FOLDER

FOLDER is src/python/examples of https://github.com/triton-inference-server/client, files that no package has. They call
the ports 8000 and 8001. Prints how each ends; the status is 1 where one fails that should not.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.clients.repository import served, write_models

HTTP, GRPC = 8000, 8001

MORE: Final[dict[str, Sequence[Sequence[str]]]] = {
    "memory_growth_test.py": [["-i", "grpc"]],
    "reuse_infer_objects_client.py": [["-i", "grpc", "-u", f"localhost:{GRPC}"]],
    "simple_grpc_infer_client.py": [["-C", "gzip"]],
    "simple_http_infer_client.py": [
        ["--request-compression-algorithm", one, "--response-compression-algorithm", one] for one in ("gzip", "deflate")
    ],
}
"""Files that are also run with arguments."""

EXCEPTIONS: Final = {
    "*cudashm*": "CUDA shared memory",
    "*image_client.py": "a model's layout and labels, from Triton's config.pbtxt",
    "*_health_metadata.py": "a server that is named triton",
    "*_model_control.py": "a request that changes max_batch_size; here the model's folder says it",
    "*_custom_repeat.py": "a model that answers a call several times",
    "*_sequence_*": "a model that keeps state between calls",
}
"""Files that fail, and what they want."""

SECONDS: Final = 120.0


def main() -> int:
    """Runs each file."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("folder", type=Path, help="src/python/examples of triton-inference-server/client")
    files = sorted(parser.parse_args().folder.glob("*.py"))
    if not files:
        parser.error("there are no examples in the folder")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="opweld-clients-") as folder:
        write_models(Path(folder))
        with served(Path(folder), HTTP, GRPC):
            for file in files:
                wants = next((what for names, what in EXCEPTIONS.items() if fnmatch.fnmatch(file.name, names)), None)
                for arguments in ([], *MORE.get(file.name, [])):
                    said = _fault(file, arguments)
                    wrong += (said is None) != (wants is None)
                    end = "passes" if said is None else f"wants {wants}" if wants else f"FAILS: {said}"
                    print(f"{' '.join([file.name, *arguments]):60} {end}", flush=True)
    return 1 if wrong else 0


def _fault(file: Path, arguments: Sequence[str]) -> str | None:
    """The last line of a file that fails: by its status, or for want of the PASS that it would print."""
    command = [sys.executable, str(file), *arguments]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"no end after {SECONDS:g} s"
    if ran.returncode == 0 and ("PASS" in ran.stdout or "PASS" not in file.read_text()):
        return None
    return ((ran.stdout + ran.stderr).strip() or f"status {ran.returncode}").splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
