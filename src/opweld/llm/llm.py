"""A language model as an object: prompts in, answers out."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from opweld.errors import OptionError
from opweld.llm.engine import Engine, Outcome
from opweld.llm.requests import Chosen, Delta, Finish, Request, Sampling
from opweld.llm.settings import Settings
from opweld.llm.step import Progress, Runner
from opweld.llm.text import Tokenizer

if TYPE_CHECKING:
    from opweld.llm.load import CacheType, Precision


class TextTokenizer(Tokenizer, Protocol):
    """A tokenizer that reads prompts, too."""

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a prompt."""
        ...


@dataclass
class Answer:
    """What a model answered.

    Attributes:
        tokens: those of the answer, with the one that ended it.
        logprobs: of each token, where `Sampling.logprobs` asked for them; else empty.
    """

    text: str = ""
    tokens: list[int] = field(default_factory=list[int])
    finish: Finish | None = None
    logprobs: list[Chosen] = field(default_factory=list[Chosen])


class LLM:
    """A language model for one thread. `AsyncEngine` serves many callers at once.

    Attributes:
        tokenizer: between texts and tokens. engine: what answers. sampling: how tokens are chosen where a call does not
            say: as the model's files have it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        memory: int | None = None,
        threads: int | None = None,
        context: int | None = None,
        cache: CacheType | None = None,
        target: str = "native",
        precision: Precision | None = None,
        settings: Settings | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Loads a model; see `opweld.llm.load.load` for the arguments and errors. settings: of the engine."""
        from opweld.llm.load import load

        loaded = load(
            path,
            memory=memory,
            threads=threads,
            context=context,
            cache=cache,
            target=target,
            precision=precision,
            progress=progress,
        )
        self._begin(Engine(loaded.runner, loaded.opened.tokenizer, settings), loaded.opened.tokenizer)
        self.sampling = loaded.opened.generation

    @classmethod
    def of(
        cls, runner: Runner, tokenizer: TextTokenizer, settings: Settings | None = None, draft: Runner | None = None
    ) -> LLM:
        """One of a model that runs already; draft: a smaller one, which guesses what it will say."""
        made = cls.__new__(cls)
        made._begin(Engine(runner, tokenizer, settings, draft), tokenizer)
        return made

    def _begin(self, engine: Engine, tokenizer: TextTokenizer) -> None:
        self.tokenizer, self.engine, self.sampling = tokenizer, engine, Sampling()
        self._ids = map(str, itertools.count())
        self._told: dict[str, deque[tuple[str, Outcome]]] = {}

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int]],
        sampling: Sampling | Sequence[Sampling] | None = None,
    ) -> list[Answer]:
        """The answers to prompts, texts or tokens, in their order. sampling: one for all, or one for each; the model's
        where None.

        Raises InputError or OptionError where a prompt cannot be answered, and RunError where the model fails; no
        answer is given then."""
        sampling = self.sampling if sampling is None else sampling
        several = [prompts] if isinstance(prompts, str) else list(prompts)
        ways = [sampling] * len(several) if isinstance(sampling, Sampling) else list(sampling)
        if len(ways) != len(several):
            raise OptionError(
                f"there are {len(ways)} samplings for {len(several)} prompts, expected one or one for each"
            )
        requests = [self._request(prompt, way) for prompt, way in zip(several, ways, strict=True)]
        answers = {request.id: Answer() for request in requests}
        logprobs = {request.id: request.sampling.logprobs is not None for request in requests}
        for id, delta in self._run(requests):
            answer = answers[id]
            answer.text += delta.text
            answer.finish = delta.finish
            answer.tokens += [chosen.token for chosen in delta.chosen]
            if logprobs[id]:
                answer.logprobs += delta.chosen
        return list(answers.values())

    def stream(self, prompt: str | Sequence[int], sampling: Sampling | None = None) -> Generator[Delta]:
        """The answer to a prompt, piece by piece. Closing the iterator ends the request."""
        for _, delta in self._run([self._request(prompt, sampling or self.sampling)]):
            yield delta

    def _request(self, prompt: str | Sequence[int], sampling: Sampling) -> Request:
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        return Request(next(self._ids), tuple(tokens), sampling)

    def _run(self, requests: Sequence[Request]) -> Generator[tuple[str, Delta]]:
        """What is told of some requests. Iterators may be used by turns: each keeps what it gets from others' steps."""
        unfinished = {request.id for request in requests}
        told: deque[tuple[str, Outcome]] = deque()
        try:
            for request in requests:
                self.engine.add(request)
                self._told[request.id] = told
            while unfinished:
                while not told:
                    for id, outcome in self.engine.step():
                        self._told[id].append((id, outcome))
                id, outcome = told.popleft()
                if not isinstance(outcome, Delta):
                    raise outcome
                if outcome.finish is not None:
                    unfinished.remove(id)
                yield id, outcome
        finally:
            for request in requests:
                self.engine.abort(request.id)
                self._told.pop(request.id, None)
