"""What was asked of `opweld.compress`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from opweld.calibration.budget import Metric, check_budget
from opweld.calibration.progress import Progress
from opweld.compress.change import Method
from opweld.errors import OptionError


@dataclass(frozen=True)
class Request:
    """The options of `opweld.compress`, but for what is compressed and with which data. Raises OptionError."""

    methods: tuple[Method, ...]
    max_error: float
    metric: Metric | None
    keep: tuple[str, ...]
    without_speedup: bool
    progress: Progress | None

    def __post_init__(self) -> None:
        if not self.methods:
            raise OptionError(f"methods is empty, expected some of {', '.join(get_args(Method))}")
        for method in self.methods:
            if method not in get_args(Method):
                raise OptionError(f"methods has {method!r}, expected some of {', '.join(get_args(Method))}")
        check_budget(self.max_error)

    def check_data(self, data: object, random: int | None) -> None:
        """Raises OptionError for data that are missing, or given twice."""
        if (data is None) == (random is None):
            raise OptionError(
                "data and random samples are both given: choose one" if random is not None else
                "what the outputs may lose is measured with data: give samples, or ask for random ones"
            )  # fmt: skip
