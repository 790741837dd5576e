"""What was asked of `opweld.quantize`, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from opweld.errors import OptionError
from opweld.quantize.data import Progress
from opweld.quantize.ranges import METHODS, Method
from opweld.quantize.scales import Codes
from opweld.quantize.versions import Precision

Ranges = Literal["best", "minmax", "percentile", "entropy", "mse"]
Metric = Callable[[Sequence[Mapping[str, Any]]], float]
"""The score of answers, dicts of arrays by output, to the samples that errors are measured on, in their order."""


@dataclass(frozen=True)
class Request:
    """The options of `opweld.quantize`, but for what is quantised and with which data. Raises OptionError."""

    precision: Precision
    ranges: Ranges
    activations: Codes
    max_error: float | None
    metric: Metric | None
    keep: tuple[str, ...]
    progress: Progress | None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("precision", self.precision, get_args(Precision)),
            ("ranges", self.ranges, get_args(Ranges)),
            ("activations", self.activations, get_args(Codes)),
        ):
            if value not in known:
                raise OptionError(f"{name} is {value!r}, expected {', '.join(known)}")
        if self.max_error is not None and not 0 <= self.max_error < float("inf"):
            raise OptionError(f"max_error is {self.max_error}, expected a part of the outputs' size, such as 0.01")
        if self.metric is not None and self.max_error is None:
            raise OptionError("a metric needs a budget: say with max_error how much the score may fall")

    @property
    def methods(self) -> tuple[Method, ...]:
        """The ways to choose ranges that are compared."""
        if self.precision != "int8":
            return ("minmax",)
        return METHODS if self.ranges == "best" else (self.ranges,)

    def check_data(self, data: object, held_out: object, random: int | None) -> None:
        """Raises OptionError for data that are missing, or given twice."""
        if data is not None and random is not None:
            raise OptionError("data and random samples are both given: choose one")
        if data is None and random is None:
            if self.precision == "int8":
                raise OptionError("int8 needs data for its ranges: give samples, or ask for random ones")
            if self.max_error is not None:
                raise OptionError("a budget of error needs data to measure it with: give a folder of samples")
            if held_out is not None:
                raise OptionError("held-out samples are given and no data: give a folder of samples too")
