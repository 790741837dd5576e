"""External data: weights in files beside a model. A model may name only files inside its own folder."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from opweld.errors import ModelError
from opweld.shortage import check_shortage

_REMEDY = (
    "A model may only read files inside its own folder; move the data file beside the model and save the model again."
)


Version = tuple[int, int, int]
"""The inode, size in bytes and time of change in ns of a file."""


@dataclass(frozen=True)
class Extent:
    """A run of bytes of a file, links resolved; `version` tells the file from what takes its place later."""

    path: Path
    offset: int
    length: int
    version: Version

    def read(self, dtype: ir.DataType, shape: tuple[int, ...]) -> NDArray[Any]:
        """The tensor that is stored here. The file is opened anew, since a model may have more files than a process
        may have open, and read, since one that is cut short while it is mapped ends the process.

        Raises ModelError when it cannot be read or has changed, ShortageError when no more files can be open."""
        count = np.prod(shape, dtype=object)
        if not count:
            return np.zeros(shape, dtype.numpy())
        data = np.empty(-(-int(count) * dtype.bitwidth // 8), np.uint8)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self.offset)
                same = version_of(os.fstat(file.fileno())) == self.version and _filled(file, data)
        except OSError as error:
            check_shortage(error)
            raise ModelError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if not same:
            raise ModelError(f"{self.path} has changed since the model was opened. Open the model again.")
        if dtype.bitwidth >= 8:
            return data.view(dtype.numpy()).reshape(shape)
        packed = onnx.TensorProto(dims=shape, data_type=dtype.value, raw_data=data.tobytes())
        return ir.serde.deserialize_tensor(packed).numpy()


def version_of(status: os.stat_result) -> Version:
    """What tells a file from another, and from itself when it was written again."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _filled(file: io.FileIO, data: NDArray[np.uint8]) -> bool:
    """Reads until `data` is full; False where the file ends before."""
    rest = data.data
    while rest.nbytes:
        count = file.readinto(rest)
        if not count:
            return False
        rest = rest[count:]
    return True


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
    status = path.stat()
    size = status.st_size
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

    return Extent(path, offset, length, version_of(status))
