"""Exports an architecture, with what torch and ONNX Runtime answer at each of its sizes, and remembers it on disk.

A folder of the cache holds model.onnx, or model.pt2 as torch.export saves it, and for each choice of sizes N a file
N.npz: the inputs, torch's outputs in float64 (`right_I`) and float32 (`torch_I`), and ONNX Runtime's (`peer_I`) where
it answers. Or refusal.txt: why the exporter gave nothing. The key is the entry, `FORMAT`, and the versions of what
exports.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import os
import shutil
import tempfile
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.architectures.architecture import PROGRAMS, Architecture

Array = NDArray[Any]

PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
CACHE = Path.home() / ".cache" / "opweld" / "architectures"
FORMAT = 1
"""Raised whenever this file or called.py writes something else."""


def exported(architecture: Architecture, exporter: str) -> Path:
    """The folder of an exported architecture, made where it is not there."""
    folder = CACHE / f"{architecture.name}-{exporter}-{_digest(architecture)}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="making-", dir=CACHE))
        _make(architecture, exporter, made)
        try:
            made.rename(folder)
        except OSError:  # somebody else made it meanwhile
            shutil.rmtree(made)
    return folder


def file_of(exporter: str) -> str:
    """The name of the file that an exporter writes."""
    return "model.pt2" if exporter == PROGRAMS else "model.onnx"


def load_program(path: Path) -> Any:
    """A program that torch.export saved."""
    import torch

    importlib.import_module("transformers.integrations.moe")  # registers operators that programs have
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.load(path)


def _digest(architecture: Architecture) -> str:
    versions = [metadata.version(package) for package in PACKAGES]
    return hashlib.sha256("\n".join((architecture.key(), *versions, str(FORMAT))).encode()).hexdigest()[:16]


def _make(architecture: Architecture, exporter: str, folder: Path) -> None:
    import torch

    from benchmarks.zoo.export import randomise
    from tests.architectures.called import Called

    torch.manual_seed(0)
    # The fused layers that torch prefers have no name in ONNX.
    torch.backends.mha.set_fastpath_enabled(False)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module = Called(architecture).eval()
        randomise(module, architecture.name)
        reason = _export(module, architecture, exporter, folder / file_of(exporter))
        if reason:
            (folder / "refusal.txt").write_text(reason)
            return
        for number, sizes in enumerate(architecture.sizes):
            feeds = architecture.feeds(sizes)
            answers = {f"feed_{name}": array for name, array in feeds.items()}
            plain = _run(module, feeds)
            answers |= {f"torch_{i}": array for i, array in enumerate(plain)}
            answers |= {f"right_{i}": array for i, array in enumerate(_run_wide(module, feeds) or plain)}
            if exporter != PROGRAMS:
                answers |= {f"peer_{i}": array for i, array in enumerate(_ask_peer(folder / "model.onnx", feeds))}
            np.savez(folder / f"{number}.npz", **answers)  # pyright: ignore[reportArgumentType]


def _export(module: Any, architecture: Architecture, exporter: str, path: Path) -> str:
    """Writes the model; returns why it could not, in words."""
    import torch

    names = [item.name for item in architecture.inputs]
    arguments = tuple(torch.from_numpy(array) for array in architecture.feeds(architecture.sizes[0]).values())
    axes = {i.name: {a: d for a, d in enumerate(i.dims) if isinstance(d, str)} for i in architecture.inputs}
    try:
        if exporter == PROGRAMS:
            torch.export.save(_export_aten(module, arguments, list(axes.values())), path)
        elif exporter == "script":
            torch.onnx.export(module, arguments, str(path), dynamo=False, input_names=names, dynamic_axes=axes)
        else:
            _export_dynamo(module, arguments, names, list(axes.values())).save(str(path))
    except Exception as error:  # noqa: BLE001 - exporters raise what they like
        return " ".join(f"{type(error).__name__}: {error}".split())[-3000:]
    return ""


def _export_aten(module: Any, arguments: tuple[Any, ...], axes: list[dict[int, str]]) -> Any:
    """The program, with the dims dynamic that are named, or else those that can be."""
    import torch

    def export(hint: Any) -> Any:
        shapes = tuple(dict.fromkeys(named, hint) for named in axes)
        return torch.export.export(module, arguments, dynamic_shapes=(shapes,))

    try:
        return export(torch.export.Dim.DYNAMIC)
    except Exception as error:
        if "specialized" not in str(error) and "Constraints violated" not in str(error):
            raise
    return export(torch.export.Dim.AUTO)


def _export_dynamo(module: Any, arguments: tuple[Any, ...], names: list[str], axes: list[dict[int, str]]) -> Any:
    """The exported program: with the dims as they are named, or else with those dynamic that can be."""
    import torch

    def export(shapes: list[dict[int, Any]]) -> Any:
        return torch.onnx.export(
            module, arguments, dynamo=True, dynamic_shapes=(tuple(shapes),), input_names=names, verbose=False
        )

    try:
        return export([dict(named) for named in axes])
    except RuntimeError as error:
        if "static shape" not in str(error) and "specialized" not in str(error):
            raise
    return export([dict.fromkeys(named, torch.export.Dim.AUTO) for named in axes])


def _run(module: Any, feeds: dict[str, Array]) -> list[Array]:
    import torch

    return [output.numpy() for output in module(*(torch.from_numpy(array) for array in feeds.values()))]


def _run_wide(module: Any, feeds: dict[str, Array]) -> list[Array]:
    """The outputs in float64; none where the module asks for float32 by name."""
    wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in feeds.items()}
    try:
        return _run(copy.deepcopy(module).double(), wide)
    except RuntimeError:
        return []


def _ask_peer(path: Path, feeds: dict[str, Array]) -> list[Array]:
    """ONNX Runtime's outputs; none where it has none."""
    import onnxruntime

    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        # Inputs that decide nothing are not in the model.
        asked = {item.name for item in session.get_inputs()}
        return session.run(None, {name: array for name, array in feeds.items() if name in asked})
    except Exception:  # noqa: BLE001 - its errors have no common class
        return []
