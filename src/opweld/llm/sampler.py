"""The choice of a token from logits.

Every request has a generator of its own, which gives one number for each token of its answer, and every row of logits
is looked at alone: an answer depends on its request and its seed, not on what was computed beside it, nor on whether
its tokens were drafted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opweld.errors import OptionError, RunError
from opweld.llm.requests import Chosen, Sampling
from opweld.llm.text import HALF


class Constraint(Protocol):
    """What a grammar allows next."""

    def allowed(self) -> NDArray[np.bool_]:
        """[vocabulary]: the tokens that may come next."""
        ...

    def accept(self, token: int) -> None:
        """Goes on behind a token that was chosen."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        ...


def check(sampling: Sampling, vocabulary: int) -> None:
    """Raises OptionError, naming the field, where a value means nothing."""
    wrong = {
        "temperature": (not 0 <= sampling.temperature < math.inf, "a finite number, at least 0"),
        "top_k": (sampling.top_k < 0, "at least 0"),
        "top_p": (not 0 <= sampling.top_p <= 1, "from 0 to 1"),
        "min_p": (not 0 <= sampling.min_p <= 1, "from 0 to 1"),
        "repetition_penalty": (not 0 < sampling.repetition_penalty < math.inf, "a finite number above 0"),
        "presence_penalty": (not math.isfinite(sampling.presence_penalty), "a finite number"),
        "frequency_penalty": (not math.isfinite(sampling.frequency_penalty), "a finite number"),
        "limit": (sampling.limit is not None and sampling.limit < 1, "at least 1, or None"),
        "stop": (
            "" in sampling.stop or HALF.search("".join(sampling.stop)) is not None,
            "strings that are not empty, without halves of surrogate pairs",
        ),
        "logprobs": (sampling.logprobs is not None and sampling.logprobs < 0, "at least 0, or None"),
    }
    for name, (is_wrong, expected) in wrong.items():
        if is_wrong:
            raise OptionError(f"{name} is {getattr(sampling, name)!r}, expected {expected}")
    for token, value in sampling.bias.items():
        if not 0 <= token < vocabulary:
            raise OptionError(f"bias names token {token}, of a vocabulary of {vocabulary}")
        if not math.isfinite(value):
            raise OptionError(f"bias of token {token} is {value}, expected a finite number")


class Sampler:
    """Chooses the tokens of one answer, one after the other."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], constraint: Constraint | None = None) -> None:
        self._sampling = sampling
        self._constraint = constraint
        self._answer: Counter[int] = Counter()
        self._repeated = dict.fromkeys(prompt) if sampling.repetition_penalty != 1 else {}
        self._bias = np.fromiter(sampling.bias, np.int64), np.fromiter(sampling.bias.values(), np.float32)
        # Seeds of either sign; PCG64 takes any that is not negative.
        self._random = np.random.Generator(np.random.PCG64(None if sampling.seed is None else sampling.seed % 2**64))
        penalties = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1
        self._counts = bool(penalties)
        self._plain = not penalties and not sampling.bias and constraint is None

    @property
    def ended(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self._constraint is not None and self._constraint.ended

    def choose(self, logits: NDArray[np.float32], likeliest: int) -> Chosen:
        """The next token, from its logits [vocabulary], whose first largest one is at `likeliest`.

        Log-probabilities are the model's: those before penalties, bias and grammar. Raises RunError where logits are
        no numbers, or the grammar allows no token."""
        if not math.isfinite(logits[likeliest]):
            raise RunError(f"the largest logit is {logits[likeliest]}, expected a finite number")
        changed = logits if self._plain else self._changed(logits)
        if self._sampling.temperature == 0:
            token = likeliest if self._plain else int(np.argmax(changed))
        else:
            token = self._drawn(changed)
        if self._counts:
            self._answer[token] += 1
        if self._constraint is not None:
            self._constraint.accept(token)
        return self._told(token, logits)

    def _changed(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits after penalties, bias and grammar."""
        sampling = self._sampling
        changed = logits.copy()
        if sampling.repetition_penalty != 1:
            seen = np.fromiter(self._repeated | self._answer, np.int64)
            value = changed[seen]
            factor = np.float32(sampling.repetition_penalty)
            changed[seen] = np.where(value > 0, value / factor, value * factor)
        if self._answer:
            times = np.fromiter(self._answer.values(), np.float32)
            penalty = np.float32(sampling.presence_penalty) + np.float32(sampling.frequency_penalty) * times
            changed[np.fromiter(self._answer, np.int64)] -= penalty
        changed[self._bias[0]] += self._bias[1]
        if self._constraint is not None:
            changed[~self._constraint.allowed()] = -np.inf
            if np.max(changed) == -np.inf:
                raise RunError("the grammar allows no token of the vocabulary")
        return changed

    def _drawn(self, logits: NDArray[np.float32]) -> int:
        """A token drawn by inverting the distribution function, in the order of ids."""
        sampling = self._sampling
        ids = np.sort(likeliest_of(logits, sampling.top_k)) if 0 < sampling.top_k < len(logits) else None
        chances = relative_chances(logits if ids is None else logits[ids], sampling.temperature)
        for limited, kept_of, limit in (
            (sampling.top_p < 1, nucleus, sampling.top_p),
            (sampling.min_p > 0, not_below, sampling.min_p),
        ):
            if limited:
                kept = kept_of(chances, limit)
                ids, chances = kept if ids is None else ids[kept], chances[kept]
        at = inverted(chances, self._random.random())
        return at if ids is None else int(ids[at])

    def _told(self, token: int, logits: NDArray[np.float32]) -> Chosen:
        count = self._sampling.logprobs
        if count is None:
            return Chosen(token)
        sum_of_all = float(np.max(logits)) + math.log(float(relative_chances(logits, 1.0).sum()))
        likeliest = [(id, float(logits[id]) - sum_of_all) for id in likeliest_of(logits, count).tolist()]
        return Chosen(token, float(logits[token]) - sum_of_all, tuple(likeliest))


# A vocabulary has some 100,000 tokens, and a small model takes a millisecond for one: what follows reads all of them as
# few times as it can, in float32, whose sums by pairs are exact enough.


COLDEST = 1e-30
"""A temperature below which nothing changes: chances that are not equal are 0, and float32 ends."""


def relative_chances(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Chances [tokens] as parts of that of the likeliest."""
    below = logits - np.max(logits)
    if temperature != 1:
        with np.errstate(over="ignore"):  # at low temperatures: the chance is 0 then
            below /= np.float32(max(temperature, COLDEST))
    return np.exp(below, out=below)


def likeliest_of(logits: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The ids of the `count` largest logits [vocabulary], the largest first, of equals those of smaller ids."""
    count = min(count, len(logits))
    if not count:
        return np.empty(0, np.int64)
    least = np.partition(logits, len(logits) - count)[len(logits) - count]
    above = np.flatnonzero(logits > least)
    ids = np.sort(np.concatenate([above, np.flatnonzero(logits == least)[: count - len(above)]]))
    return ids[np.argsort(-logits[ids], kind="stable")]


def nucleus(chances: NDArray[np.float32], part: float) -> NDArray[np.int64]:
    """The ids, in order, of as few of the largest relative chances [tokens] as make up this part of their sum; at least
    one."""
    wanted = part * float(chances.sum())
    for least in (0.01, 1e-4, 0.0):  # only those that can be needed are sorted, and they are few as a rule
        ids = np.flatnonzero(chances >= least)
        ids = ids[np.argsort(-chances[ids], kind="stable")]
        sums = np.cumsum(chances[ids], dtype=np.float64)
        if sums[-1] >= wanted:
            break
    return np.sort(ids[: int(np.searchsorted(sums, wanted)) + 1])


def not_below(chances: NDArray[np.float32], part: float) -> NDArray[np.int64]:
    """The ids of relative chances [tokens] that are at least this part of the largest."""
    return np.flatnonzero(chances >= part)


BLOCK = 256
"""Chances whose sum is looked at before they are."""


def inverted(chances: NDArray[np.float32], part: float) -> int:
    """Where the sum of chances [tokens] reaches this part, 0 to 1, of all of them; never at a chance of 0."""
    sums = np.cumsum(np.add.reduceat(chances, np.arange(0, len(chances), BLOCK)), dtype=np.float64)
    target = part * float(sums[-1])
    block = reached(sums, target)
    start = block * BLOCK
    inner = np.cumsum(chances[start : start + BLOCK], dtype=np.float64)
    return start + reached(inner, target - (float(sums[block - 1]) if block else 0.0))


def reached(sums: NDArray[np.float64], target: float) -> int:
    """The first index whose sum is above the target; where rounding left none, the first that has the last sum."""
    total = float(sums[-1])
    return int(np.searchsorted(sums, target, side="right") if target < total else np.searchsorted(sums, total))
