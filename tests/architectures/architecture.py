"""An architecture of the catalogue: how its module is built, what it is fed, and at which sizes it is run."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Sizes = dict[str, int]

PROGRAMS = "aten"
"""`torch.export`, whose programs opweld reads itself."""

EXPORTERS = ("dynamo", "script", PROGRAMS)
"""torch's two exporters to ONNX, `torch.onnx.export(dynamo=True)` and the one before it, which traces to TorchScript;
and the programs."""


@dataclass(frozen=True)
class Input:
    """An argument of a module.

    Attributes:
        name: of the parameter that it is passed as.
        dims: sizes, or names of sizes.
        kind: what it holds: "normal" and "uniform" are float32, "ids" int64 below `below`, "mask" int64 with zeros at
            the end of every row but the first, "ones" and "zeros" int64, "boxes" int64 corners in rising order,
            "coordinates" float32 between -1.1 and 1.1, "flags" bool,
            "steps" the int64 3.
        below: the bound of ids and boxes.
    """

    name: str
    dims: tuple[int | str, ...]
    kind: str = "normal"
    below: int = 0

    def array(self, sizes: Sizes, seed: str) -> Array:
        """The input at these sizes, the same for the same seed."""
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims)
        key = hashlib.sha256(f"{seed}/{self.name}/{shape}".encode()).digest()[:8]
        random = np.random.default_rng(int.from_bytes(key, "little"))
        match self.kind:
            case "normal":
                return random.standard_normal(shape, np.float32)
            case "uniform":
                return random.random(shape, np.float32)
            case "coordinates":
                return random.uniform(-1.1, 1.1, shape).astype(np.float32)
            case "ids":
                return random.integers(0, self.below, shape)
            case "flags":
                return random.random(shape) < 0.6
            case "boxes":
                return np.sort(random.integers(0, self.below, shape), axis=-1)[..., [0, 1, 2, 3]]
            case "mask":
                mask = np.ones(shape, np.int64)
                mask[1:, shape[-1] - shape[-1] // 4 :] = 0
                return mask
            case "steps":
                return np.array(3)
            case "zeros":
                return np.zeros(shape, np.int64)
            case "ones":
                return np.ones(shape, np.int64)
            case _:
                raise ValueError(f"input {self.name!r}: no kind of values is called {self.kind!r}")


@dataclass(frozen=True)
class Architecture:
    """An entry of the catalogue. It is data: nothing of torch is imported before it is exported.

    Attributes:
        name: its name.
        module: a class of `transformers`, or of `tests/architectures/modules.py` where there is no `config`.
        config: the class of its configuration.
        options: arguments of the configuration, or of the module where there is none.
        inputs: what it is fed.
        sizes: of the dims that are dynamic; the first are those it is exported with.
        fixed: arguments that are constants of the exported model.
        exporters: those that can export it; `why` says what becomes of the other.
        why: why an exporter is left out.
    """

    name: str
    module: str
    config: str
    options: dict[str, Any]
    inputs: tuple[Input, ...]
    sizes: tuple[Sizes, ...]
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    exporters: tuple[str, ...] = EXPORTERS
    why: str = ""

    def feeds(self, sizes: Sizes) -> dict[str, Array]:
        """The inputs at these sizes by name."""
        return {item.name: item.array(sizes, self.name) for item in self.inputs}

    def only(self, exporter: str) -> Architecture:
        """The entry for one exporter."""
        return replace(self, exporters=(exporter,))

    def using(self, config: str) -> Architecture:
        """The entry with a configuration of another name."""
        return replace(self, config=config)

    def at(self, name: str, *values: int) -> Architecture:
        """The entry with one more dynamic size."""
        return replace(self, sizes=tuple({**s, name: v} for s, v in zip(self.sizes, values, strict=True)))

    def key(self) -> str:
        """Text that changes when what is exported does."""
        source = "" if self.config else _source(self.module)
        return repr((self.name, self.module, self.config, self.options, self.inputs, self.sizes, self.fixed, source))


def _source(name: str) -> str:
    """The source of a class of modules.py."""
    text = Path(__file__).with_name("modules.py").read_text()
    found = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name)
    return ast.get_source_segment(text, found) or ""
