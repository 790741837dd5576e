"""What a compiled graph answers, against float64 and ONNX Runtime: right, noise, refused, wrong, an internal error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

import opweld
from opweld.errors import AssumptionError, ModelError, OpweldError, ToolchainError, UnsupportedError
from opweld.options import LevelName
from opweld.verification.compare import compare
from tests.random.evaluate import Step, evaluate, widened
from tests.random.generate import Case

Array = NDArray[Any]

LEVELS = ("none", "basic", "extended", "all")
TRIALS = 4
SPREAD = 16.0
"""How far another order of the same roundings may go beyond the largest disturbance seen in a few trials."""
TOSSES = 32
"""Trials for what a disturbance decides as a coin does, as the sign of a zero: of thousands of elements none may show
the same side in all of them."""
RARE = 512
"""Trials for what some elements show and others do not yet, as codes that move where several ties fall together."""

PRODUCTS = ("MatMul", "MatMulInteger", "Gemm")
"""Operators that sum over an axis which both of their inputs have."""


@dataclass(frozen=True)
class Finding:
    """What became of one graph at one level.

    `outcome` is right, noise, refused, disputed, wrong, internal or crash; `what` says it in words, the same words for
    the same cause where that can be told."""

    seed: int
    level: str
    threads: int
    choice: int
    outcome: str
    what: str = ""

    @property
    def bad(self) -> bool:
        """Whether somebody must look at it."""
        return self.outcome in ("wrong", "internal", "crash")

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


class Judge:
    """Knows the right answers of one case; made lazily, for a graph that is refused needs none.

    `trials`: disturbances that tell how far floats may be off."""

    trials = TRIALS

    def __init__(self, case: Case, asks: bool = True) -> None:
        self.case = case
        self._asks = asks
        self.names = [output.name for output in case.model.graph.output]
        self._steps: list[Step] = []
        self._right: dict[int, list[Array]] = {}
        self._peer: dict[int, list[Array] | str] = {}
        self._session: Any = None

    def steps(self) -> list[Step]:
        """The nodes, ready to be run in float64."""
        self._steps = self._steps or [Step(node) for node in self.case.model.graph.node]
        return self._steps

    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """What each value is in the model."""
        return dtypes_of(self.case.model)

    def known(self, choice: int) -> dict[str, Array]:
        """Inputs and initializers."""
        stored = {t.name: numpy_helper.to_array(t) for t in self.case.model.graph.initializer}
        return stored | self.case.feeds[choice]

    def right(self, choice: int) -> list[Array]:
        """The outputs in float64."""
        if choice not in self._right:
            values = self.all_values(choice)
            self._right[choice] = [values[name] for name in self.names]
        return self._right[choice]

    def all_values(self, choice: int, **disturbance: Any) -> dict[str, Array]:
        """Every value of the graph in float64, disturbed as `evaluate` is told, or not."""
        told: dict[str, Any] = {"dtypes": {}, **disturbance}
        return evaluate(self.steps(), self.known(choice), **told)

    def forget(self) -> None:
        """Right answers are computed again."""
        self._right.clear()

    def peer(self, choice: int) -> list[Array] | str:
        """ONNX Runtime's outputs, unoptimised, or why there are none: where it crashes, it is not asked."""
        if choice not in self._peer:
            self._peer[choice] = self._ask_peer(choice) if self._asks else "it ends the process"
        return self._peer[choice]

    def _ask_peer(self, choice: int) -> list[Array] | str:
        runtime: Any = onnxruntime
        try:
            if self._session is None:
                options = runtime.SessionOptions()
                options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
                options.log_severity_level = 4
                options.intra_op_num_threads = 1
                model = self.case.model.SerializeToString()
                self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            # A value named twice as output is asked for once.
            once = list(dict.fromkeys(self.names))
            answers = dict(zip(once, self._session.run(once, self.case.feeds[choice]), strict=True))
        except Exception as error:  # noqa: BLE001 - its errors have no common class
            return " ".join(str(error).split())[:200]
        return [np.asarray(answers[name]) for name in self.names]

    def arbitrary(self, choice: int) -> set[str]:
        """Values that ONNX Runtime takes from memory as it was: products over an axis of no elements, which it leaves
        unwritten in some shapes where zeros are right, and all that is computed from them."""
        values = self.all_values(choice)
        found: set[str] = set()
        for node in self.case.model.graph.node:
            empty = node.op_type in PRODUCTS and any(not values[name].size for name in node.input[:2])
            if empty or found.intersection(node.input):
                found.update(node.output)
        return found

    def verdict(self, choice: int, outputs: Sequence[Array]) -> tuple[str, str]:
        """(outcome, what) of all outputs at one choice of sizes."""
        right = self.right(choice)
        peer = self.peer(choice)
        worst = ("right", "")
        for position, (name, mine) in enumerate(zip(self.names, outputs, strict=True)):
            other = None if isinstance(peer, str) else peer[position]
            result = compare(name, mine, right[position], other)
            if problem := self.declared_otherwise(position, mine):
                return "wrong", problem
            if result.passed:
                continue
            if other is not None and self._agrees(name, mine, other):
                kind = "noise" if mine.dtype.kind == "f" and np.isfinite(result.error) else "disputed"
                worst = max(worst, (kind, f"with ONNX Runtime, not with float64: {self.maker(name)}"), key=_gravity)
            elif not self.beyond_noise(choice, position, mine):
                worst = max(worst, ("noise", f"roundings move it as far: {self.maker(name)}"), key=_gravity)
            else:
                return "wrong", f"{name} ({self.maker(name)}) {result.problem}"
        return worst

    def _agrees(self, name: str, mine: Array, other: Array) -> bool:
        return compare(name, mine, widened(other)).passed

    def declared_otherwise(self, position: int, mine: Array) -> str:
        """What is wrong with the dtype of an output; empty where it is as declared."""
        output = self.case.model.graph.output[position]
        declared = onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
        return "" if mine.dtype == declared else f"{output.name} is {mine.dtype}, declared {declared}"

    def maker(self, name: str) -> str:
        """The operator that makes a value."""
        return next((node.op_type for node in self.case.model.graph.node if name in node.output), "input")

    def beyond_noise(self, choice: int, position: int, mine: Array) -> bool:
        """Whether disturbing every value by its rounding moves the float64 result less than what was answered.

        Where a disturbance changes an integer, a truth value, a NaN or an infinity, anything may be answered there."""
        right = self.right(choice)[position]
        if mine.shape != right.shape:
            return True
        random = np.random.default_rng(self.case.seed)
        dtypes = self.dtypes()
        off = (mine != right) & ((mine == mine) | (right == right))
        open_ = np.zeros(right.shape, bool)
        reach = np.zeros(right.shape)
        for trial in range(1 + RARE):
            if trial > TOSSES and (np.all(open_[off]) or not np.any(open_[off])):
                break
            # The first is what whoever rounds each result to its dtype gets: chance may miss it.
            once = trial == 0
            drawn = None if once else random
            values = self.all_values(choice, dtypes=dtypes, random=drawn, rounded_once=once)
            moved = values[self.names[position]]
            if moved.shape != right.shape:
                return False
            with np.errstate(all="ignore"):
                distance = np.abs(moved.astype(np.float64) - right.astype(np.float64))
            same = (moved == right) | ((moved != moved) & (right != right))
            open_ |= ~same & (~np.isfinite(distance) | (right.dtype.kind != "f"))
            # One element of integers that a disturbance moves says nothing of the others.
            if trial <= self.trials and right.dtype.kind == "f":
                reach = np.maximum(reach, np.where(same | ~np.isfinite(distance), 0, distance))
        with np.errstate(all="ignore"):
            distance = np.abs(mine.astype(np.float64) - right.astype(np.float64))
        scale = float(np.max(np.abs(right[np.isfinite(right)]), initial=0)) if right.dtype.kind == "f" else 0.0
        allowed = SPREAD * np.maximum(reach, reach.max(initial=0.0) / 4) + 1e-5 * scale
        return bool(np.any(off & ~open_ & ~(distance <= allowed)))


def dtypes_of(model: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """What each value of a model is; what onnx cannot infer is taken for float32."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    found = {name: np.dtype(np.float32) for node in inferred.node for name in node.output}
    for item in (*inferred.input, *inferred.value_info, *inferred.output):
        if item.type.tensor_type.elem_type:
            found[item.name] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type))
    for tensor in inferred.initializer:
        found[tensor.name] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    return found


def _gravity(finding: tuple[str, str]) -> int:
    return ("right", "refused", "noise", "disputed", "wrong", "internal", "crash").index(finding[0])


PEER = "asking ONNX Runtime"
"""What is being done when a crash is not ours: nothing of the case has been compiled by then."""


def judge_level(
    judge: Judge,
    level: LevelName,
    threads: Sequence[int],
    note: Callable[[str], None] = lambda text: None,
    target: str = "native",
) -> Finding:
    """Compiles a case at a level, runs it at every choice of sizes and number of threads, and says what came of it.

    `note` is told what is about to be done, for whoever reads the last words of a process that crashes."""
    case = judge.case
    count, choice = threads[0], 0
    worst = Finding(case.seed, level, count, 0, "right")
    # Before anything of ours runs: what it breaks may crash later, and then is not for another to answer.
    note(PEER)
    for sizes in range(len(case.feeds)):
        judge.peer(sizes)
    try:
        note(f"{level}: compiling")
        compiled = opweld.compile(case.model, target=target, level=level, threads=threads[0])
        for count in threads:
            model = compiled if count == threads[0] else opweld.load(compiled.path, threads=count)
            for choice in range(len(case.feeds)):
                note(f"{level}: running sizes {choice} on {count} threads")
                try:
                    outputs = [np.array(a) for a in model.session.run(case.feeds[choice])]
                except AssumptionError as error:
                    refusal = Finding(case.seed, level, count, choice, "refused", _brief(error))
                    worst = max(worst, refusal, key=lambda f: _gravity((f.outcome, "")))
                    continue
                outcome, what = judge.verdict(choice, outputs)
                worst = max(
                    worst,
                    Finding(case.seed, level, count, choice, outcome, what),
                    key=lambda f: _gravity((f.outcome, "")),
                )
                if worst.bad:
                    return worst
    except ToolchainError as error:
        return Finding(case.seed, level, count, choice, "internal", f"ToolchainError: {_brief(error)}")
    except UnsupportedError as error:
        return Finding(case.seed, level, count, choice, "refused", _brief(error))
    except ModelError as error:
        # The model is valid: ONNX Runtime runs it, or the reference does. Calling it malformed loses nothing but the
        # model, and is counted apart from what is unsupported.
        return Finding(case.seed, level, count, choice, "refused", f"called malformed: {_brief(error)}")
    except OpweldError as error:
        return Finding(case.seed, level, count, choice, "internal", f"{type(error).__name__}: {_brief(error)}")
    except Exception as error:  # noqa: BLE001 - any other exception is what is looked for
        return Finding(case.seed, level, count, choice, "internal", _where(error))
    return worst


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _where(error: Exception) -> str:
    """The exception, and the places in opweld that it passed last."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "opweld" in f.filename]
    places = " < ".join(f"{f.filename.rpartition('opweld/')[2]}:{f.lineno} {f.name}" for f in frames[:-4:-1])
    return f"{type(error).__name__}: {_brief(error)} at {places}"
