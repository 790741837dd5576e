"""Tensors of safetensors files, mapped: processes that read the same file share its memory.

A file is the length of its header, 8 bytes; the header in JSON; the data. The package `safetensors` copies what it
reads, and has no bfloat16 for NumPy.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from opweld.errors import DamagedModelError, MissingModelError, ModelError, UnsupportedError
from opweld.llm.fields import Fields
from opweld.llm.weights import Weight

_DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
_LONGEST_HEADER = 100_000_000
"""The format's own limit."""


@dataclass(frozen=True, eq=False)
class FileTensor:
    """A tensor in a file. shape: its dimensions; read: what maps it, or reads its integers."""

    file: Path
    name: str
    shape: tuple[int, ...]
    read: Callable[[], Weight]


def read_tensors(folder: Path) -> dict[str, FileTensor]:
    """All tensors of a folder: of model.safetensors, or of the files that its index names.

    Raises:
        MissingModelError: there is none, or the index names a file that is not there.
        DamagedModelError: a file is truncated, or no safetensors file.
        ModelError: a header contradicts itself; the index names a file outside of the folder.
    """
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if single.is_file():
        return read_file(single)
    if not index.is_file():
        found = sorted(folder.glob("*.safetensors"))
        if len(found) == 1:
            return read_file(found[0])
        raise MissingModelError(
            f"{folder} has no model.safetensors and no index of several; models in other formats (pytorch_model.bin) "
            "are saved with safetensors by transformers' save_pretrained"
        )
    where = read_json(index).inner("weight_map").values
    files = {str(name) for name in where.values()}
    for name in files:
        if Path(name).name != name or name in ("", ".", ".."):
            raise ModelError(f"{index} names {name!r}: files beside it are read, no others")
    tensors: dict[str, FileTensor] = {}
    for name in sorted(files):
        tensors |= read_file(folder / name)
    for name, file in where.items():
        if name not in tensors:
            raise ModelError(f"{index}: {name} should be in {file}, which does not have it; fetch the folder again")
    return tensors


def files_of(tensors: Mapping[str, FileTensor]) -> tuple[Path, ...]:
    """The files that tensors lie in, each once, in the order of their names."""
    return tuple(sorted({tensor.file for tensor in tensors.values()}))


def read_file(path: Path) -> dict[str, FileTensor]:
    """The tensors of one file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 10 or not 2 <= length <= min(size - 8, _LONGEST_HEADER):
                raise DamagedModelError(f"{path} is truncated, or no safetensors file; fetch it again")
            try:
                header = json.loads(file.read(length))
            except (ValueError, RecursionError) as error:
                raise DamagedModelError(f"{path}: the header is not JSON: {error}; fetch it again") from error
            mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise MissingModelError(f"cannot open {path}: {error.strerror}") from error
    if not isinstance(header, dict):
        raise DamagedModelError(f"{path}: the header is no object; fetch it again")
    entries, data = Fields(cast("dict[str, object]", header), str(path)), mapped[8 + length :]
    return {name: _tensor(entries.inner(name), path, name, data) for name in entries.values if name != "__metadata__"}


def _tensor(entry: Fields, path: Path, name: str, data: NDArray[np.uint8]) -> FileTensor:
    kind = entry.text("dtype")
    shape = tuple(_size(entry, one) for one in entry.sequence("shape"))
    offsets = [_size(entry, one) for one in entry.sequence("data_offsets")]
    if kind not in _DTYPES:
        return FileTensor(path, name, shape, _unreadable(entry.file, kind))
    dtype = np.dtype(_DTYPES[kind])
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise ModelError(f"{entry.file}: data_offsets {offsets} are not those of {list(shape)} numbers of {kind}")
    first, last = offsets
    if last > len(data):
        raise DamagedModelError(
            f"{entry.file} is truncated: it should end at byte {last} of {len(data)}; fetch the file again"
        )
    return FileTensor(path, name, shape, lambda: _array(data[first:last], dtype, shape))


def _array(raw: NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The numbers; of float64 in float32, which kernels compute in."""
    found = np.frombuffer(raw, dtype).reshape(shape)
    return found.astype(np.float32) if found.dtype == np.float64 else found


def _unreadable(where: str, kind: str) -> Callable[[], NDArray[Any]]:
    def read() -> NDArray[Any]:
        raise UnsupportedError(
            f"{where}: numbers of the type {kind} are not supported; opweld reads {', '.join(_DTYPES)}"
        )

    return read


def _size(entry: Fields, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ModelError(f"{entry.file}: shape and data_offsets should be numbers from 0, not {value!r}")
    return value


def read_json(path: Path) -> Fields:
    """The object in a JSON file.

    Raises MissingModelError where it cannot be opened, and DamagedModelError where it is no JSON object."""
    found = _parsed(path)
    if not isinstance(found, dict):
        raise DamagedModelError(f"{path} should be a JSON object; fetch it again")
    return Fields(cast("dict[str, object]", found), str(path))


def read_optional_json(path: Path) -> Fields:
    """The same; nothing of a file that is not there."""
    return read_json(path) if path.is_file() else Fields({}, str(path))


def read_json_list(path: Path) -> list[Fields]:
    """The objects in a list that a JSON file holds. Raises what `read_json` does."""
    found = _parsed(path)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in cast("list[object]", found)):
        raise DamagedModelError(f"{path} should be a list of JSON objects; fetch it again")
    return [Fields(one, str(path)) for one in cast("list[dict[str, object]]", found)]


def _parsed(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise MissingModelError(f"cannot open {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedModelError(f"{path} is not JSON: {error}; fetch it again") from error
