"""ONNX: files, their bytes, and ModelProtos."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from opweld.build.workspace import temporary_folder
from opweld.errors import MissingModelError, ModelError, ModelTypeError
from opweld.foreign import of_object
from opweld.frontends.source import Source

if TYPE_CHECKING:
    import onnx

    from opweld.build.cache import Cache
    from opweld.frontend.program import Program
    from opweld.ledger import Ledger
    from opweld.options import Options
    from opweld.stages import Stage
    from opweld.verification.check import Check

MAX_MODEL_BYTES = (1 << 31) - 1
"""The size limit of protobuf, in bytes."""


def onnx_source(model: object) -> OnnxSource | None:
    """The source of the path of an ONNX file, its bytes, a ModelProto or a model of onnx_ir. Raises ModelError for an
    empty path."""
    if isinstance(model, str | os.PathLike):
        if not os.fspath(cast("str | os.PathLike[str]", model)):
            raise ModelError("the path of the model is empty; expected that of an ONNX file")
        return OnnxSource(Path(cast("str | os.PathLike[str]", model)))
    if isinstance(model, bytes | bytearray | memoryview):
        return OnnxSource(bytes(cast("bytes | bytearray", model)))
    library = sys.modules.get("onnx_ir")  # imported if the caller has such a model
    if library is not None and isinstance(model, library.Model):
        return OnnxSource(library.to_proto(model))
    if of_object(model) is None and hasattr(model, "SerializeToString"):
        return OnnxSource(cast("onnx.ModelProto", model))
    return None


def onnx_model(model: object) -> Path | bytes | onnx.ModelProto:
    """The path, bytes or ModelProto that a model is, for features of ONNX models only. Raises ModelTypeError for
    another one."""
    source = onnx_source(model)
    if source is None:
        what = of_object(model) or f"of type {type(model).__name__}"
        raise ModelTypeError(f"the model is {what}; expected the path of an ONNX file, its bytes, or a ModelProto")
    return source.model


@dataclass(frozen=True, eq=False)
class OnnxSource(Source):
    """An ONNX model: the path of its file, the bytes, or the parsed model, which is not modified."""

    model: Path | bytes | onnx.ModelProto

    @property
    def title(self) -> str:
        """The path, if there is one."""
        return str(self.model) if isinstance(self.model, Path) else "a model"

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.model.parent if isinstance(self.model, Path) else Path()

    def digest(self, cache: Cache) -> str:
        """See `Source.digest`."""
        if isinstance(self.model, Path):
            return _file_digest(self.model, cache)
        data = self.model if isinstance(self.model, bytes) else self.model.SerializeToString(deterministic=True)
        return hashlib.sha256(data).hexdigest()

    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        """See `Source.read`."""
        from opweld.frontend import onnx
        from opweld.frontend.graph import graph_of
        from opweld.frontends.graph import graph_program
        from opweld.rewrite.hoist import hoist

        loaded = stage("load", onnx.load_file, self.model, options.specialisation)
        unwritten = graph_of(loaded.model)
        model = stage("rewrite", hoist, loaded.model, ledger, options.rules)
        rewritten = any(decision.fired for decision in ledger)  # only rewriting has been decided so far
        return graph_program(
            graph_of(model) if rewritten else unwritten,
            options,
            ledger,
            stage,
            metadata=loaded.metadata,
            nodes=loaded.nodes,
            parameters=loaded.parameters,
            external=loaded.external,
            structure=loaded.structure,
            library=loaded.library,
            unwritten=unwritten if rewritten else None,
        )

    def check(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        outputs: Sequence[Any],
        rtol: float | None,
        atol: float | None,
        right: Sequence[Any] | None = None,
    ) -> Check:
        """Against ONNX's evaluator in float64, or `right`, and ONNX Runtime if installed."""
        from opweld.verification.check import check_outputs

        if isinstance(self.model, Path):
            return check_outputs(self.model, feeds, names, outputs, rtol=rtol, atol=atol, right=right)
        with temporary_folder() as folder:
            file = folder / "model.onnx"
            file.write_bytes(self.model if isinstance(self.model, bytes) else self.model.SerializeToString())
            return check_outputs(file, feeds, names, outputs, rtol=rtol, atol=atol, right=right)

    def settled(self) -> OnnxSource:
        """With an absolute path."""
        return OnnxSource(self.model.absolute()) if isinstance(self.model, Path) else self


def _file_digest(path: Path, cache: Cache) -> str:
    try:
        if path.is_dir():
            raise ModelError(f"{path} is a folder; expected an ONNX model or an artifact folder")
        if path.stat().st_size > MAX_MODEL_BYTES:
            raise ModelError(f"{path} is larger than 2 GB, as no ONNX file can be; keep its weights in external data")
        return cache.file_digest(path)
    except FileNotFoundError as error:
        raise MissingModelError(f"{path}: no such file; expected an ONNX model or an artifact folder") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from error
