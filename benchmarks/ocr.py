"""Images a second of examples/ocr, detection and recognition of text, by opweld's server and by ONNX Runtime.

    python -m benchmarks.ocr --images 40 --clients 4

Both run the same program: what is decoded, cut out and scaled is the same code. By opweld the models are those of a
repository, as `opweld serve` has them; by ONNX Runtime they are sessions with as many threads as there are processors,
called on as many threads as there are clients. Blocks of both alternate; the first one of each is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.zoo import fetch, pictures
from examples.ocr.make_repository import make
from opweld.serve.inference.model import Call
from opweld.serve.inference.program import read_program
from opweld.serve.inference.repository import ModelRepository

Array = NDArray[Any]
Read = Callable[[Array], Awaitable[Mapping[str, Any]]]

MODELS = {"detect": "ppocrv4-det", "recognise": "ppocrv4-rec"}
ROUNDS = 3


class Peers:
    """The models of a program, run by ONNX Runtime."""

    def __init__(self) -> None:
        import onnxruntime

        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        self.sessions: dict[str, Any] = {
            name: onnxruntime.InferenceSession(fetch.path(model), options) for name, model in MODELS.items()
        }

    def __getitem__(self, name: str) -> Callable[..., Awaitable[Mapping[str, Array]]]:
        session = self.sessions[name]
        names = [output.name for output in session.get_outputs()]

        async def infer(**feeds: Array) -> Mapping[str, Array]:
            return dict(zip(names, await asyncio.to_thread(session.run, None, feeds), strict=True))

        return infer

    async def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """On a thread, as opweld does."""
        return await asyncio.to_thread(function, *arguments)


def drawn(count: int) -> list[Array]:
    """Signs on photographs, as files."""
    images: list[Array] = []
    for seed in range(count):
        scene = pictures.street_signs(480, 640, np.random.default_rng(seed))
        file = io.BytesIO()
        Image.fromarray((scene * 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        images.append(np.array([file.getvalue()], object))
    return images


async def block(read: Read, images: list[Array], clients: int) -> tuple[float, list[list[str]]]:
    """Images a second, and the texts of each."""
    waiting = iter(enumerate(images))
    texts: dict[int, list[str]] = {}

    async def client() -> None:
        for number, image in waiting:
            texts[number] = list((await read(image))["texts"])

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return len(images) / (time.perf_counter() - begun), [texts[number] for number in range(len(images))]


async def compared(folder: Path, count: int, clients: int) -> None:
    """Prints the rates."""
    repository = ModelRepository([(None, folder)])
    repository.load_all()
    program, _ = read_program(folder / "ocr" / "1" / "program.py")
    peers: Any = Peers()
    readers: dict[str, Read] = {
        "opweld": lambda image: repository.get("ocr").infer({"image": image}, Call()),
        "ONNX Runtime": lambda image: program.answer(peers, image=image),
    }
    images = drawn(count)
    rates: dict[str, list[float]] = {name: [] for name in readers}
    texts: dict[str, list[list[str]]] = {}
    for _ in range(ROUNDS + 1):
        for name, read in readers.items():
            rate, texts[name] = await block(read, images, clients)
            rates[name].append(rate)
    same = sum(a == b for a, b in zip(*texts.values(), strict=True))
    for name, found in rates.items():
        print(f"{name:13}{np.median(found[1:]):7.2f} images/s   ({', '.join(f'{rate:.2f}' for rate in found[1:])})")
    lines = sum(map(len, texts["opweld"]))
    print(f"{count} images, {lines} lines, {clients} clients; the same texts in {same} images")
    await repository.close()


def main() -> None:
    """Makes the repository and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--clients", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), fetch.path(MODELS["detect"]), fetch.path(MODELS["recognise"]))
        asyncio.run(compared(Path(folder), arguments.images, arguments.clients))


if __name__ == "__main__":
    main()
