"""Estimators of scikit-learn, XGBoost and LightGBM, by way of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from opweld.errors import ModelTypeError
from opweld.foreign import is_of, of_object
from opweld.frontends.onnx import OnnxSource
from opweld.frontends.source import Source

if TYPE_CHECKING:
    from opweld.build.cache import Cache
    from opweld.frontend.estimators.rows import Columns
    from opweld.frontend.program import Program
    from opweld.ledger import Ledger
    from opweld.options import Options
    from opweld.stages import Stage
    from opweld.verification.check import Check


class Estimator(Protocol):
    """An estimator of scikit-learn, or a wrapper of XGBoost or LightGBM: what learns from rows."""

    @property
    def fit(self) -> Any:
        """The method that learns."""


class Booster(Protocol):
    """A booster of XGBoost or LightGBM: what answers rows."""

    @property
    def predict(self) -> Any:
        """The method that answers."""


_CLASSES = (("sklearn.base", "BaseEstimator"), ("xgboost", "Booster"), ("lightgbm", "Booster"))
"""What is taken: scikit-learn's estimators, of which the wrappers of XGBoost and LightGBM are some, and boosters."""


def estimator_source(model: object, rows: Any = None) -> EstimatorSource | None:
    """The source of an estimator. Imports nothing of which the caller has not imported the libraries.

    Args:
        rows: what it is called with: they tell which columns there are, and their dtypes; one float32 matrix where
            None.

    Raises ModelTypeError where no converter is installed, ModelError for an estimator that is not fitted or needs
    rows, InputError for wrong ones, UnsupportedError for one that has no converter."""
    if not any(is_of(model, *place) for place in _CLASSES):
        return None
    from opweld.frontend.estimators.rows import example_columns, fitted_columns

    columns = fitted_columns(model) if rows is None else example_columns(rows)
    try:
        from opweld.frontend.estimators.converted import converted

        made = converted(model, columns, examples=rows is not None)
    except ImportError as error:
        raise ModelTypeError(f"the model is {of_object(model)} ({error})") from error
    return EstimatorSource(model, columns, OnnxSource(made.SerializeToString()))


@dataclass(frozen=True, eq=False)
class EstimatorSource(Source):
    """An estimator, the columns that it takes, and the graph that it was converted to."""

    estimator: Any
    columns: Columns
    converted: OnnxSource

    @property
    def title(self) -> str:
        """The class of the estimator."""
        return type(self.estimator).__name__

    def digest(self, cache: Cache) -> str:
        """See `Source.digest`: of the graph."""
        return self.converted.digest(cache)

    def read(self, options: Options, ledger: Ledger, stage: Stage) -> Program:
        """See `Source.read`."""
        return self.converted.read(options, ledger, stage)

    def check(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        outputs: Sequence[Any],
        rtol: float | None,
        atol: float | None,
    ) -> Check:
        """Against what the estimator itself answers; against the graph in float64 where that is not known."""
        from opweld.frontend.estimators.answers import answers

        right = answers(self.estimator, self.columns.rows(feeds), names, [own.shape for own in outputs])
        found = self.converted.check(feeds, names, outputs, rtol, atol, right=right)
        return found if right is None else replace(found, reference=f"{self.title} itself")
