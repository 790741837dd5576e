"""What a model declares to its callers: inputs, outputs, and what it says about itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TensorInfo:
    """An input or output as the model declares it.

    Attributes:
        name: in the model.
        dtype: a name of `opweld.runtime.dtypes.CODES`.
        shape: sizes and names of dims; None where the model does not even fix the rank.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True)
class ModelMetadata:
    """What the model says about itself."""

    producer: str = ""
    graph: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom: dict[str, str] = field(default_factory=dict[str, str])
