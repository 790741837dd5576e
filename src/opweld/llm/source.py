"""Language models: decoders and encoders by their configuration and their weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opweld.errors import UnsupportedError
from opweld.frontends.source import Source
from opweld.tensor.dtype import DType

if TYPE_CHECKING:
    from opweld import ir
    from opweld.build.cache import Cache
    from opweld.frontend.program import Program
    from opweld.ledger import Ledger
    from opweld.llm.config import Config
    from opweld.llm.encoder_config import EncoderConfig
    from opweld.llm.weights import Weights
    from opweld.options import Options
    from opweld.stages import Stage
    from opweld.verification.check import Check


STATES = {"keys.*": "keys_after.*", "values.*": "values_after.*"}
"""The states of a decoder's graph, as `opweld.compile` takes them."""


@dataclass(frozen=True, eq=False)
class LanguageSource(Source):
    """A model whose graph opweld makes itself.

    Attributes:
        config, weights: what it computes. block: tokens of a block of keys and values.
        identity: a hash of the configuration and the content of all weights, given the cache of digests.
    """

    config: Config | EncoderConfig
    weights: Weights
    block: int
    identity: Callable[[Cache], str]

    @abstractmethod
    def graph(self) -> ir.Graph:
        """What one step computes."""

    @property
    def title(self) -> str:
        """Its architecture."""
        return f"a language model ({self.config.architecture})"

    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        """See `Source.read`."""
        from opweld.frontends.graph import graph_program
        from opweld.interface import ModelMetadata

        metadata = ModelMetadata(producer="opweld", graph=self.config.architecture)
        return graph_program(stage("load", self.graph), options, ledger, stage, metadata=metadata)

    def check(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        outputs: Sequence[Any],
        rtol: float | None,
        atol: float | None,
    ) -> Check:
        """There is none: a step depends on what the cache holds."""
        raise UnsupportedError("a language model has no reference of a single step; compare what it generates")


@dataclass(frozen=True, eq=False)
class DecoderSource(LanguageSource):
    """A decoder, whose graph `llm/graph.py` makes. pool: what keys and values are kept as. for_gpu: integers in blocks
    are decoded, and products of the same operand are one. rounded: what integers in blocks are multiplied by is
    rounded to 8 bits. paired: keys and values lie in pairs of bfloat16, see `tensor/paged.py`."""

    config: Config
    pool: DType = DType.F32
    for_gpu: bool = False
    rounded: bool = False
    paired: bool = False

    def digest(self, cache: Cache) -> str:
        """See `Source.digest`."""
        return f"decoder {self.block} {self.pool!r} {self.for_gpu} {self.rounded} {self.paired} {self.identity(cache)}"

    def graph(self) -> ir.Graph:
        """See `LanguageSource.graph`."""
        from opweld.llm.graph import decoder_graph
        from opweld.llm.weights import decoded

        weights = decoded(self.weights) if self.for_gpu else self.weights
        return decoder_graph(self.config, weights, self.block, self.pool, self.for_gpu, self.rounded, self.paired)


@dataclass(frozen=True, eq=False)
class EncoderSource(LanguageSource):
    """An encoder, whose graph `llm/encoder_graph.py` makes."""

    config: EncoderConfig

    def digest(self, cache: Cache) -> str:
        """See `Source.digest`."""
        return f"encoder {self.block} {self.identity(cache)}"

    def graph(self) -> ir.Graph:
        """See `LanguageSource.graph`."""
        from opweld.llm.encoder_graph import encoder_graph

        return encoder_graph(self.config, self.weights, self.block)
