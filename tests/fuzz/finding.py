"""What came of one mutant: whether the front end takes it, refuses it in its own words, or breaks."""

from __future__ import annotations

import dataclasses
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opweld.errors import OpweldError


@dataclass(frozen=True)
class Finding:
    """`outcome` is accepted, refused, or one of what must never be: internal, memory, crash, hang. `what` says more."""

    seed: int
    outcome: str
    what: str

    @property
    def bad(self) -> bool:
        return self.outcome not in ("accepted", "refused")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def probe(seed: int, name: str, data: bytes, say: Callable[[str], None]) -> Finding:
    """Reads, explores and lowers a model file; `say` is told what begins."""
    from opweld import lower
    from opweld.frontend import explore
    from opweld.frontend import onnx as frontend
    from opweld.frontend.graph import graph_of
    from opweld.ledger import Ledger
    from opweld.tensor.simplify import simplify_flow

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        (path.parent / "w.bin").write_bytes(bytes(12))
        stage = "loading"
        try:
            say(f"{name}: {stage}")
            model = frontend.load(path)
            stage = "exploring"
            say(f"{name}: {stage}")
            segments = explore.segments(graph_of(model))
            stage = "lowering"
            say(f"{name}: {stage}")
            simplify_flow(lower.to_flow(segments), Ledger())
        except OpweldError as error:
            return _refused(seed, error)
        except MemoryError:
            return Finding(seed, "memory", f"{name}: {stage}")
        except Exception as error:  # noqa: BLE001 - each is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            return Finding(
                seed, "internal", f"{name}: {stage}: {type(error).__name__} at {where}: {str(error)[:200]!r}"
            )
    return Finding(seed, "accepted", name)


def _refused(seed: int, error: OpweldError) -> Finding:
    text = str(error)
    if not text or len(text) > 3000 or not text.replace("\n", "").isprintable():
        return Finding(seed, "internal", f"a message that is empty, endless or unsafe: {text[:200]!r}")
    return Finding(seed, "refused", f"{type(error).__name__}: {text[:300]}")
