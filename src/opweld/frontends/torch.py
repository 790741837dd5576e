"""PyTorch: programs of `torch.export`, and modules with example inputs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from opweld.errors import ModelTypeError, UnsupportedError
from opweld.frontends.source import Source

if TYPE_CHECKING:
    from opweld.build.cache import Cache
    from opweld.frontend.program import Program
    from opweld.frontend.torch.imported import Imported
    from opweld.ledger import Ledger
    from opweld.options import Options
    from opweld.stages import Stage
    from opweld.verification.check import Check


def torch_source(model: object) -> TorchSource | None:
    """The source of a program of torch.export. Imports nothing that the caller has not imported.

    Raises ModelTypeError for a module, of which it takes example inputs to know what it computes."""
    library: Any = sys.modules.get("torch.export")
    if library is not None and isinstance(model, library.ExportedProgram):
        from opweld.frontend.torch.exported import imported

        return TorchSource(imported(cast("Any", model)), model)
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        raise ModelTypeError(
            "the model is a PyTorch module: give it example inputs, opweld.compile(module, (x,)), "
            'or let PyTorch call it: torch.compile(module, backend="opweld")'
        )
    return None


def module_source(module: object, example_inputs: Any, dynamic_shapes: Any) -> TorchSource:
    """The source of a PyTorch module; see `opweld.compile`. Raises ModelTypeError for anything else."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise ModelTypeError(
            "example inputs are for a PyTorch module, or for an estimator of scikit-learn, XGBoost or LightGBM; "
            f"the model is of type {type(module).__name__}"
        )
    from opweld.frontend.torch.exported import exported, imported

    program = exported(cast("Any", module), example_inputs, dynamic_shapes)
    return TorchSource(imported(program, dynamic_shapes, type(module).__name__), program)


@dataclass(frozen=True, eq=False)
class TorchSource(Source):
    """A graph of PyTorch, imported. program: what answers are compared with; None where there is none."""

    imported: Imported
    program: Any

    @property
    def title(self) -> str:
        """The class of the module."""
        return self.imported.name or "a program of torch.export"

    @cached_property
    def _digest(self) -> str:
        return self.imported.digest()

    def digest(self, cache: Cache) -> str:
        """See `Source.digest`: of the graph and of the content of parameters."""
        return self._digest

    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        """See `Source.read`."""
        from opweld.frontends.graph import graph_program
        from opweld.interface import ModelMetadata

        return graph_program(
            self.imported.graph.copied(),
            options,
            ledger,
            stage,
            metadata=ModelMetadata(producer="PyTorch", graph=self.imported.name),
            nodes=self.imported.nodes,
            parameters=self.imported.parameters,
        )

    def check(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        outputs: Sequence[Any],
        rtol: float | None,
        atol: float | None,
    ) -> Check:
        """Against the program itself, run node by node in float64."""
        if self.program is None:
            raise UnsupportedError("a graph of torch.compile has no reference; compile the module with example inputs")
        from opweld.frontend.torch.widened import float64_outputs
        from opweld.verification.check import FLOAT64, Check
        from opweld.verification.compare import compare

        right = [value.numpy() for value in float64_outputs(self.program, feeds)]
        pairs = zip(names, outputs, right, strict=True)
        found = (compare(name, output, own, None, rtol=rtol, atol=atol) for name, output, own in pairs)
        return Check(tuple(found), FLOAT64, ())

    def __getstate__(self) -> tuple[Imported, bytes | None]:
        if self.program is None:
            return self.imported, None
        from opweld.frontend.torch.exported import saved

        return self.imported, saved(self.program)

    def __setstate__(self, state: tuple[Imported, bytes | None]) -> None:
        from opweld.frontend.torch.exported import loaded

        made, data = state
        object.__setattr__(self, "imported", made)
        object.__setattr__(self, "program", None if data is None else loaded(data))
