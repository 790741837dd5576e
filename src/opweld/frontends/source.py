"""`Source`: a model as callers pass it, recognised by a front end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opweld.build.cache import Cache
    from opweld.frontend.program import Program
    from opweld.ledger import Ledger
    from opweld.options import Options
    from opweld.stages import Stage
    from opweld.verification.check import Check


class Source(ABC):
    """A model that one front end reads. It pickles, and does not change."""

    @property
    def title(self) -> str:
        """Its name in messages."""
        return "a model"

    @property
    def folder(self) -> Path:
        """The folder of its external data files."""
        return Path()

    @abstractmethod
    def digest(self, cache: Cache) -> str:
        """A hash of the model without its external data files. Raises ModelError where it cannot be read. `cache`
        remembers digests of files."""

    @abstractmethod
    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        """Reads the model into tensor programs. `ledger` is empty and receives the decisions of rewriting; `stage` runs
        the front end's stages.

        Raises ModelError for whatever is malformed or unsafe, UnsupportedError for what is valid but not supported,
        OptionError for options that this model does not have."""

    @abstractmethod
    def check(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        outputs: Sequence[Any],
        rtol: float | None,
        atol: float | None,
    ) -> Check:
        """Compares outputs of the tensors `names` with the model's own results for these feeds, in float64.

        Raises UnsupportedError where there is no reference."""

    def settled(self) -> Source:
        """The same source with absolute paths, for a process in another folder."""
        return self
