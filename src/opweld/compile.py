"""The flow: a model goes through one stage after another and becomes an artifact."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache as remember
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from opweld.build import artifact
from opweld.build.cache import Cache
from opweld.build.workspace import temporary_folder
from opweld.errors import ArtifactError, ModelError
from opweld.explanation import explain_text
from opweld.ledger import Ledger
from opweld.options import Options
from opweld.runtime.session import Session
from opweld.schedule.file import parse_schedules
from opweld.target import Target

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]
Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""

MAX_MODEL_BYTES = (1 << 31) - 1
"""Protobuf ends here."""


class Model:
    """A compiled model, open and ready to run.

    Attributes:
        session: what runs it. path: the artifact folder.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        self.path = path
        self.session = Session(path, threads=threads)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs the model: input arrays by name in, output arrays by name out, in the model's order."""
        return dict(zip(self.session.output_names, self.session.run(feeds), strict=True))

    def save(self, path: str | Path) -> Path:
        """Copies the artifact to a folder, usually called `*.opweld`; an artifact already there is replaced.

        The number of threads that was asked for becomes the copy's default."""
        folder = Path(path)
        artifact.copy(self.path, folder, self.session.threads)
        return folder


def compile(model: Any, **options: Any) -> Model:
    """Compiles an ONNX model (path, bytes or ModelProto) and opens it; see `opweld.options.Options` for the options.

    Raises OpweldError: ModelError for a bad model, UnsupportedError naming operator and node, OptionError."""
    chosen = Options.of(**options)
    return Model(compile_model(model, chosen), chosen.threads)


def load(path: str | Path, threads: int | None = None) -> Model:
    """Opens a saved artifact. Needs neither onnx nor a compiler.

    threads: at most so many a run; 0 for all processors of this machine; what the artifact says where None."""
    return Model(Path(path), threads)


def explain(model: Any, **options: Any) -> str:
    """How the kernels of a model are computed, and every decision that led there, as text."""
    folder = compile_model(model, Options.of(**options))
    schedules = parse_schedules((folder / artifact.SCHEDULES).read_text(encoding="utf-8"))
    return explain_text(Ledger.loads((folder / artifact.LEDGER).read_text(encoding="utf-8")), schedules)


def compile_model(model: Any, options: Options, progress: Progress | None = None) -> Path:
    """The artifact folder of a model in the user's cache, compiled now if it is not there yet."""
    cache = Cache.open()
    target = Target.of(options.target)
    key = _key(model, options, target, cache)
    found = _cached(cache, key, model)
    if found is not None:
        return found
    from opweld.pipeline import build_artifact
    from opweld.tensor.intern import compilation

    with temporary_folder() as workspace, compilation():
        made = build_artifact(model, options, target, workspace, cache, progress)

        def fill(folder: Path) -> None:
            shutil.copytree(made.folder, folder / "model.opweld")
            (folder / "external.json").write_text(json.dumps(made.external), encoding="utf-8")

        folder = cache.publish_folder("models", key, fill) / "model.opweld"
        artifact.remember(folder, cache)
        return folder


def _key(model: Any, options: Options, target: Target, cache: Cache) -> str:
    from opweld import __version__
    from opweld.build.toolchain import Compiler

    if isinstance(model, str | Path):
        path = Path(model)
        if not path.is_file():
            raise ModelError(f"{path}: no such file; expected an ONNX model or an artifact folder")
        if path.stat().st_size > MAX_MODEL_BYTES:
            raise ModelError(f"{path} is larger than 2 GB, as no ONNX file can be; keep its weights in external data")
        content = cache.file_digest(path)
    elif isinstance(model, bytes):
        content = hashlib.sha256(model).hexdigest()
    else:
        content = hashlib.sha256(cast("onnx.ModelProto", model).SerializeToString(deterministic=True)).hexdigest()
    parts = (content, options.digest(), target.digest(), __version__, Compiler.find().version, sources_digest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@remember
def sources_digest() -> str:
    """The compiler's own text, so that whoever changes it is never served an old artifact."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.[pch]*")):
        if path.suffix in (".py", ".c", ".h"):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _cached(cache: Cache, key: str, model: Any) -> Path | None:
    """The artifact under a key, if it is whole and the model's external data has not changed."""
    folder = cache.find_folder("models", key)
    if folder is None:
        return None
    try:
        artifact.read(folder / "model.opweld", verify=True)
        external = json.loads((folder / "external.json").read_text(encoding="utf-8"))
        current = {name: cache.file_digest(Path(model).parent / name) for name in external}
    except (ArtifactError, OSError, ValueError, TypeError):
        cache.discard("models", key)
        return None
    if current != external:
        cache.discard("models", key)
        return None
    return folder / "model.opweld"
