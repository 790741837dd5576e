"""External data: weights in files beside a model. A model may name only files inside its own folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import onnx

from opweld.errors import ModelError

_REMEDY = (
    "A model may only read files inside its own folder; move the data file beside the model and save the model again."
)


@dataclass(frozen=True)
class Extent:
    """A run of bytes of a file, links resolved."""

    path: Path
    offset: int
    length: int


def external_extent(tensor: onnx.TensorProto, model: Path | None) -> Extent:
    """The extent of a tensor's external data; rejected if it is outside of the model's folder or of its file.

    A symbolic link is followed; it may lead anywhere below the folder of the model, or below the folder where a linked
    model really lies. Raises ModelError naming the tensor.
    """
    fields: dict[str, object] = {entry.key: entry.value for entry in tensor.external_data}
    texts = {key: value for key, value in fields.items() if isinstance(value, str)}
    if len(texts) < len(fields):
        raise ModelError(f"tensor {tensor.name[:200]!r}: the description of its external data is not valid UTF-8")
    title = f"tensor {tensor.name[:200]!r}"
    location = texts.get("location", "")
    if model is None:
        raise ModelError(
            f"{title}: its data is in the external file {location[:200]!r}, "
            "which is known only for a model loaded from a file. Pass the path of the model, "
            "or load the external data first."
        )
    if not location or "\0" in location or "\\" in location:
        raise ModelError(f"{title}: {location[:200]!r} is not an external data file. {_REMEDY}")
    relative = Path(location)
    if relative.is_absolute() or ".." in relative.parts:
        raise ModelError(f"{title}: external data {location[:200]!r} is outside of the model's folder. {_REMEDY}")
    try:
        path = (model.parent / relative).resolve()
        homes = (model.parent.resolve(), model.resolve().parent)
    except (OSError, RuntimeError) as error:  # cyclic links, a name too long
        raise ModelError(f"{title}: external data {location[:200]!r} cannot be resolved: {error}. {_REMEDY}") from error
    if not any(path.is_relative_to(home) for home in homes):
        raise ModelError(
            f"{title}: external data {location[:200]!r} leads out of the model's folder to {path}. {_REMEDY}"
        )
    if not os.path.isfile(path):  # also for a name that is too long, at which `Path.is_file` raises
        raise ModelError(f"{title}: external data file {location[:200]!r} does not exist in {model.parent}.")
    return _extent(title, texts, path)


def _extent(title: str, fields: dict[str, str], path: Path) -> Extent:
    size = path.stat().st_size
    try:
        offset = int(fields.get("offset") or 0)
        length = int(fields["length"]) if fields.get("length") else size - offset
    except ValueError:
        raise ModelError(f"{title}: offset and length of its external data must be integers") from None
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"{title}: bytes {offset} to {offset + length} of its external data are outside of the file, "
            f"which has {size}. The file is truncated or belongs to another model."
        )

    return Extent(path, offset, length)
