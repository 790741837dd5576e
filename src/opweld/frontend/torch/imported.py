"""`Imported`: a graph of PyTorch as a graph of operators."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from opweld.ir import Graph, Value
from opweld.record import FileNode
from opweld.tensor.dtype import DType


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph, its nodes as PyTorch has them, and what it is called."""

    graph: Graph
    nodes: tuple[FileNode, ...]
    name: str

    @property
    def parameters(self) -> dict[str, tuple[int, int]]:
        """Elements and bytes of each stored tensor that counts as parameters."""
        found: dict[str, tuple[int, int]] = {}
        for value in self.graph.stored:
            if value.stored is not None and value.shape and isinstance(value.dtype, DType) and value.dtype.is_float:
                elements = math.prod(value.stored.shape)
                found[value.name] = (elements, elements * value.dtype.bytes)
        return found

    def digest(self) -> str:
        """A hash of the nodes, and of the content of what is stored."""
        found = hashlib.sha256()
        numbers: dict[Value, int] = {}

        def number(value: Value | None) -> int:
            return -1 if value is None else numbers.setdefault(value, len(numbers))

        def add(graph: Graph) -> None:
            for value in graph.inputs:
                found.update(f"input {number(value)} {value.name} {value.dtype} {value.shape}\0".encode())
            for value, content in zip(graph.stored, _digests(graph.stored), strict=True):
                found.update(f"stored {number(value)} {value.name} {content}\0".encode())
            for node in graph.nodes:
                read, made = [number(v) for v in node.inputs], [number(v) for v in node.outputs]
                attributes = sorted((key, repr(value)) for key, value in node.attributes.items())
                found.update(f"{node.domain} {node.op_type} {node.name} {read} {made} {attributes}\0".encode())
                for body in node.bodies:
                    add(body)
            for value in graph.outputs:
                found.update(f"output {number(value)} {value.name}\0".encode())

        add(self.graph)
        return found.hexdigest()


def _digests(stored: Sequence[Value]) -> list[str]:
    """Dtype, shape and a hash of the content of each: 1.1 GB/s a processor, which is most of what a model of half a
    gigabyte waits for when its artifact is in the cache."""

    def digest(value: Value) -> str:
        assert value.stored is not None
        array = np.ascontiguousarray(value.stored.read())
        content = array.reshape(-1).view(np.uint8).data if array.size else b""
        return f"{array.dtype} {array.shape} {hashlib.sha256(content).hexdigest()}"

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(digest, stored))
