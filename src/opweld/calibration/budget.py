"""What the outputs of a changed model may lose, and the first of many settings that loses no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from opweld.calibration.error import error_of
from opweld.calibration.progress import Progress, tell
from opweld.errors import OptionError

Setting = TypeVar("Setting")
Answers = Sequence[Mapping[str, Any]]
"""Arrays by output, sample by sample."""
Metric = Callable[[Answers], float]
"""The score of answers to the samples that errors are measured on, in their order: the larger the better."""


def check_budget(max_error: float | None) -> None:
    """Raises OptionError for what bounds no error."""
    if max_error is not None and not 0 <= max_error < float("inf"):
        raise OptionError(f"max_error is {max_error}, expected a part of the outputs' size, such as 0.01")


def loss_by(metric: Metric | None, right: Answers) -> Callable[[Answers], float]:
    """What answers lose beside the right ones: their error, or what a score falls."""
    if metric is None:
        return lambda answers: error_of(answers, right)
    best = metric(right)
    return lambda answers: best - metric(answers)


def within(
    steps: Sequence[Setting], loss: Callable[[Setting], float], most: float, progress: Progress | None = None
) -> int:
    """The first of the steps whose loss is at most `most`, as far as halving finds it; the last one's is."""
    if loss(steps[0]) <= most:
        return 0
    few, enough = 0, len(steps) - 1  # `few` steps are too few
    while enough - few > 1:
        middle = (few + enough) // 2
        tell(progress, "keeping to the budget", len(steps) - (enough - few), len(steps))
        if loss(steps[middle]) <= most:
            enough = middle
        else:
            few = middle
    return enough
