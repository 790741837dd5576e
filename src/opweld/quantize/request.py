"""What was asked of `opweld.quantize`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from opweld.calibration.budget import Metric, check_budget
from opweld.calibration.progress import Progress
from opweld.errors import OptionError
from opweld.quantize.ranges import METHODS, Method
from opweld.quantize.scales import Codes
from opweld.quantize.versions import Precision

Ranges = Literal["best", "minmax", "percentile", "entropy", "mse"]

OPSETS: dict[Precision, int] = {"int8": 13, "int8-weights": 13, "int4-weights": 21}
"""By precision, the first opset that says it: scales a channel since 13, int4 and blocks since 21."""


@dataclass(frozen=True)
class Request:
    """The options of `opweld.quantize`, but for what is quantised and with which data. Raises OptionError."""

    precision: Precision
    ranges: Ranges
    activations: Codes
    reduce_range: bool
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
        check_budget(self.max_error)
        if self.reduce_range and self.precision != "int8":
            raise OptionError(f"a reduced range is of weights that bytes are multiplied by: {self.precision} has none")
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
