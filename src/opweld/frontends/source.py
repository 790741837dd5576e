"""What a front end takes: a model as callers have it."""

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
        """How messages call it."""
        return "a model"

    @property
    def folder(self) -> Path:
        """Where the files lie that it refers to."""
        return Path()

    @abstractmethod
    def digest(self, cache: Cache) -> str:
        """A hash of all that the model is, but for the files that it refers to. Raises ModelError where it cannot be
        read. `cache` remembers digests of files."""

    @abstractmethod
    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        """The model as tensor programs. `ledger` is empty, and decides about rewriting; the front end's stages are run
        by `stage`.

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
        """Compares outputs of the tensors `names` with what the model itself gives for these feeds, in float64.

        Raises UnsupportedError where nobody can say."""

    def settled(self) -> Source:
        """The same for a process in another folder."""
        return self
