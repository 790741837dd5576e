"""A case as files: model.onnx, and feeds_0.npz, feeds_1.npz, ... for its choices of sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from tests.random.generate import Case


def save_case(case: Case, folder: Path) -> None:
    """Writes a case into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seed.txt").write_text(str(case.seed))
    onnx.save(case.model, folder / "model.onnx")
    for old in folder.glob("feeds_*.npz"):
        old.unlink()
    for choice, feeds in enumerate(case.feeds):
        np.savez(folder / f"feeds_{choice}.npz", **feeds)  # pyright: ignore[reportArgumentType]


def load_case(folder: str | Path) -> Case:
    """The case in a folder."""
    folder = Path(folder)
    model = onnx.load(folder / "model.onnx")
    paths = sorted(folder.glob("feeds_*.npz"), key=lambda path: int(path.stem[6:]))
    # NumPy forgets the names of types that are not its own, such as int4.
    kinds = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in model.graph.input}
    feeds = tuple({name: array.view(kinds[name]) for name, array in np.load(path).items()} for path in paths)
    return Case(int((folder / "seed.txt").read_text()), model, feeds)
