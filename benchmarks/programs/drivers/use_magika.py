"""Types of files, from their bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from magika import Magika

FILES = [
    b"#!/bin/sh\nfor f in *.c; do cc -c $f; done\n" * 5,
    b"def main():\n    print('hello')\n\n\nif __name__ == '__main__':\n    main()\n" * 4,
    b'{"name": "opweld", "values": [1, 2, 3], "nested": {"a": null}}\n' * 3,
    b"The quick brown fox jumps over the lazy dog. It does so every day, whatever the weather.\n" * 6,
    bytes(range(256)) * 8,
]


def prepare(folder: Path) -> Callable[[], Any]:
    magika = Magika()
    paths = [folder / f"{i}.bin" for i in range(len(FILES))]
    for path, content in zip(paths, FILES, strict=True):
        path.write_bytes(content)

    def call() -> Any:
        results = [magika.identify_bytes(content) for content in FILES] + magika.identify_paths(paths)
        return [{"label": str(r.output.label), "guess": str(r.dl.label), "score": r.score} for r in results]

    return call
