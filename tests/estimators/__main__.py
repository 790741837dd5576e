"""Every estimator that has a converter: python -m tests.estimators [NAME...]

Each is fitted with 120 rows, compiled, and run with batches of 1, 7 and 120. *right* is one whose labels are the
estimator's own and whose numbers are within 1e-5 of their scale; where float32 is further off, rows of float64 say
whether it was float32 (*float64*). What a converter refuses, or is known to get wrong, is *unconverted*, what opweld
refuses *refused*.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from typing import Any

import numpy as np

import opweld
from opweld.errors import OpweldError
from tests.estimators.answers import wrong
from tests.estimators.every import Fitted, every_estimator, without_converter

BATCHES = (1, 7, 120)


def verdict(fitted: Fitted) -> tuple[str, str]:
    """What became of an estimator, and what there is to say."""
    try:
        estimator, rows = fitted.fit()
    except Exception as error:  # noqa: BLE001 - libraries raise what they like
        return "unfitted", _line(error)
    try:
        found = _judged(estimator, rows)
        if not found:
            return "right", ""
        if (
            isinstance(rows, np.ndarray)
            and rows.dtype == np.float32
            and not _judged(estimator, rows.astype(np.float64))
        ):
            return "float64", found
    except OpweldError as error:
        return ("unconverted" if "converted to ONNX" in str(error) else "refused"), _line(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect
        return "failed", f"{type(error).__name__}: {_line(error)}"
    return "wrong", found


def _judged(estimator: Any, rows: Any) -> str:
    model = opweld.compile(estimator, rows)
    return next((found for batch in BATCHES if (found := wrong(model, estimator, rows[:batch]))), "")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def main() -> int:
    """Prints a line for each estimator, and counts; the status is 1 where anything is wrong or failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.estimators", description=__doc__)
    parser.add_argument("names", nargs="*", help="estimators; all where none is named")
    given = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    for fitted in every_estimator():
        if given.names and fitted.name not in given.names:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, what = verdict(fitted)
        counts[found] += 1
        print(f"{fitted.name:36} {found:12} {what}", flush=True)
    print(dict(counts))
    if not given.names:
        print(f"without a converter: {', '.join(without_converter())}")
    return 1 if counts["wrong"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
