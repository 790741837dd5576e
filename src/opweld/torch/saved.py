"""What a compiled graph is saved as: its artifact, how it is called, and the graph, to be compiled again where another
processor or other parameters ask for it."""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opweld import __version__, cached
from opweld.build import artifact as artifacts
from opweld.compile import Model, load
from opweld.errors import ArtifactError
from opweld.frontend.torch.convention import CallingConvention
from opweld.frontend.torch.dtypes import as_array
from opweld.frontend.torch.imported import Imported


@dataclass(frozen=True)
class SavedArtifact:
    """An artifact. key: its own in the cache. files: its content, by name; it goes into the cache where it lacks."""

    key: str
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, folder: Path) -> SavedArtifact:
        """An artifact of the cache."""
        return cls(*cached.kept(folder))

    def opened(self, threads: int) -> Model | None:
        """The model; None where it is for another processor, or damaged."""
        try:
            return load(cached.restored(self.key, self.files), threads)
        except ArtifactError:
            return None


@dataclass(frozen=True)
class Saved:
    """A compiled graph without its parameters, which its caller hands in.

    Attributes:
        options: those of `opweld.compile`. artifact: None for a graph that computes nothing.
        graph: what `pickled` made of it. checksums: of the parameters' content, by position among the arguments.
    """

    convention: CallingConvention
    options: Mapping[str, Any]
    artifact: SavedArtifact | None
    graph: bytes
    checksums: Mapping[int, int]

    def __reduce__(self) -> tuple[Any, ...]:
        """What it holds are this version's classes: they are read once it is known that they are."""
        described = pickle.dumps((self.convention, self.options, self.checksums), pickle.HIGHEST_PROTOCOL)
        return read, (__version__, described, self.artifact, self.graph)


def read(version: str, described: bytes, artifact: SavedArtifact | None, graph: bytes) -> Saved:
    """What was saved. Raises ArtifactError where another version of opweld did."""
    if version != __version__:
        raise ArtifactError(f"the function was saved by opweld {version}, this is {__version__}; {artifacts.AGAIN}")
    convention, options, checksums = pickle.loads(described)
    return Saved(convention, options, artifact, graph, checksums)


def checksums(tensors: Mapping[int, torch.Tensor]) -> dict[int, int]:
    """CRC-32 of the content of each, which says that it is another one by chance, not by intent: whoever could write
    parameters that collide has written the artifact too. Reads 3 GB/s a thread."""

    def checksum(tensor: torch.Tensor) -> int:
        own = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor
        return zlib.crc32(as_array(own).reshape(-1).view(np.uint8).data)

    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        return dict(zip(tensors, pool.map(checksum, tensors.values()), strict=True))


def pickled(imported: Imported, parameters: Mapping[int, torch.Tensor]) -> bytes:
    """A graph, with positions in the place of these parameters."""
    positions = {id(tensor): position for position, tensor in parameters.items()}

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> int | None:
            return positions.get(id(obj))

    file = io.BytesIO()
    Pickler(file, pickle.HIGHEST_PROTOCOL).dump(imported)
    return file.getvalue()


def unpickled(data: bytes, parameters: Mapping[int, torch.Tensor]) -> Imported:
    """The graph that `pickled` was given, with these parameters."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> torch.Tensor:
            return parameters[pid]

    return Unpickler(io.BytesIO(data)).load()
