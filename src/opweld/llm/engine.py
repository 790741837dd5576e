"""Many requests, one model: each step computes something of several of them, and tells what is new of their answers."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from opweld.errors import InputError, OptionError, OpweldError, RunError
from opweld.llm.blocks import BlockManager
from opweld.llm.grammar import Grammars
from opweld.llm.requests import Chosen, Delta, Finish, Request
from opweld.llm.sampler import Sampler, check
from opweld.llm.scheduler import Scheduler, Work
from opweld.llm.sequence import Sequence
from opweld.llm.settings import Settings
from opweld.llm.speculation import Drafter, DraftModel, Lookup
from opweld.llm.step import Runner, Span
from opweld.llm.text import Text, Tokenizer

Outcome: TypeAlias = Delta | OpweldError
"""What a step tells of a request: a piece of its answer, or why it has none; nothing follows an error."""


@dataclass(frozen=True)
class Statistics:
    """What an engine has and what it did.

    Attributes:
        running, waiting: requests. blocks: of the pool. blocks_in_use: by running requests. blocks_cached: those that
            hold a known prefix, in use or not.
        prompt_tokens, generated_tokens: of requests so far. cached_tokens: of prompts, found in the cache.
        steps: so far. preemptions: of requests that were put back. drafted, accepted: tokens of drafts.
    """

    running: int
    waiting: int
    blocks: int
    blocks_in_use: int
    blocks_cached: int
    prompt_tokens: int
    generated_tokens: int
    cached_tokens: int
    steps: int
    preemptions: int
    drafted: int
    accepted: int


class Engine:
    """Answers requests with a runner. Its methods are called by one thread, but for `prepare`.

    Attributes:
        settings, runner: as given. blocks: who owns which block of the runner's cache. scheduler: who is computed when.
        drafter: what drafts, where `settings.lookup` asks for it.
    """

    def __init__(
        self, runner: Runner, tokenizer: Tokenizer, settings: Settings | None = None, draft: Runner | None = None
    ) -> None:
        """draft: a smaller model of the same tokens, which drafts up to `settings.lookup` of them a step; without it
        they are looked up in the text before."""
        self.settings = settings or Settings()
        self.runner, self._tokenizer = runner, tokenizer
        self._vocabulary = min(runner.vocabulary, tokenizer.vocabulary)  # rows that pad an embedding are no tokens
        self._grammars = Grammars(tokenizer, self._vocabulary)
        self.blocks = BlockManager(runner.blocks, runner.block_size, runner.window)
        self.scheduler = Scheduler(self.blocks, self.settings)
        self.drafter: Drafter = Lookup() if draft is None else DraftModel(draft, self._vocabulary, self.settings.budget)
        self._sequences: dict[str, Sequence] = {}
        self._prompt_tokens = self._generated_tokens = self._cached_tokens = 0
        self._steps = self._drafted = self._accepted = 0

    @property
    def unfinished(self) -> int:
        """Requests that run or wait."""
        return len(self._sequences)

    @property
    def statistics(self) -> Statistics:
        """What it has and what it did so far."""
        return Statistics(
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            blocks=self.blocks.count,
            blocks_in_use=self.blocks.in_use,
            blocks_cached=self.blocks.cached,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated_tokens,
            cached_tokens=self._cached_tokens,
            steps=self._steps,
            preemptions=self.scheduler.preemptions,
            drafted=self._drafted,
            accepted=self._accepted,
        )

    def add(self, request: Request) -> None:
        """Puts a request at the end of the queue. Raises what `prepare` and `submit` raise."""
        self.submit(self.prepare(request))

    def prepare(self, request: Request) -> Sequence:
        """Checks a request and compiles its grammar. Any thread may call it, beside steps.

        Raises InputError where the prompt is empty, has unknown tokens, or can never fit with its answer, and
        OptionError where what it asks for means nothing."""
        check(request.sampling, self._vocabulary)
        prompt, limit = request.prompt, request.sampling.limit
        if not prompt:
            raise InputError("the prompt is empty, expected at least one token")
        for token in (min(prompt), max(prompt)):
            if not 0 <= token < self.runner.vocabulary:
                raise InputError(f"the prompt has token {token}, of a vocabulary of {self.runner.vocabulary}")
        pool = self.runner.blocks * self.runner.block_size
        room, holder = min((self.runner.context, "the context"), (pool, "the cache"))
        if len(prompt) + (limit or 1) > room:
            raise InputError(
                f"a prompt of {len(prompt)} tokens and an answer of {limit or 'at least 1'} do not fit into {holder} "
                f"of {room} tokens: shorten the prompt, or lower the limit"
            )
        grammar = request.sampling.grammar
        constraint = self._grammars.matcher(grammar) if grammar else None
        limit = limit or room - len(prompt)
        sampler = Sampler(request.sampling, prompt, constraint)
        return Sequence(request, limit, sampler, Text(self._tokenizer, request, limit))

    def submit(self, sequence: Sequence) -> None:
        """Puts a prepared request at the end of the queue. Raises OptionError where its id is in use."""
        id = sequence.request.id
        if id in self._sequences:
            raise OptionError(f"there is a request {id!r} already, expected an id that is not in use")
        self._sequences[id] = sequence
        self._prompt_tokens += len(sequence.request.prompt)
        self.scheduler.add(sequence)

    def abort(self, id: str) -> None:
        """Ends a request without a word, and frees its blocks. One that has ended already, or never was, is none."""
        if (sequence := self._sequences.get(id)) is not None:
            self._end(sequence)

    def step(self) -> list[tuple[str, Outcome]]:
        """Computes one step, and tells what is new, by id; nothing where all of it are parts of prompts.

        A runner that fails ends the requests of the step with a RunError, and no others."""
        work = self.scheduler.schedule()
        if not work:
            return []
        self._steps += 1
        try:
            self.drafter.draft(work)
            logits = self._run(work)
        except Exception as error:  # noqa: BLE001 - whatever a runner raises
            return [self._fail(item.sequence, error) for item in work]
        return self._choose(work, logits)

    def _run(self, work: Rows[Work]) -> NDArray[np.float32]:
        logits = self.runner.run([span(item) for item in work])
        expected = sum(item.outputs for item in work), self.runner.vocabulary
        if logits.shape != expected:
            raise RunError(f"the runner returned logits {list(logits.shape)}, expected {list(expected)}")
        return logits[:, : self._vocabulary]

    def _choose(self, work: Rows[Work], logits: NDArray[np.float32]) -> list[tuple[str, Outcome]]:
        likeliest = logits.argmax(axis=1)
        told: list[tuple[str, Outcome]] = []
        row = 0
        for item in work:
            rows = slice(row, row := row + item.outputs)
            self.scheduler.advance(item.sequence, item.count)
            if not item.outputs:
                continue
            try:
                delta = self._answer(item, logits[rows], likeliest[rows].tolist())
            except Exception as error:  # noqa: BLE001 - of a grammar, or of a tokenizer; the other rows have their answers
                told.append(self._fail(item.sequence, error))
            else:
                told.append((item.sequence.request.id, delta))
                if delta.finish is not None:
                    self._end(item.sequence)
        return told

    def _answer(self, item: Work, logits: NDArray[np.float32], likeliest: Rows[int]) -> Delta:
        """The tokens that one row's logits give: one behind each draft that is accepted, and one more."""
        sequence = item.sequence
        first = len(sequence.tokens) == len(sequence.request.prompt)
        chosen: list[Chosen] = []
        text = ""
        finish: Finish | None = None
        for at, token in enumerate(likeliest):
            choice = sequence.sampler.choose(logits[at], token)
            chosen.append(choice)
            sequence.tokens.append(choice.token)
            certain, finish = sequence.text.feed(choice.token, last=sequence.sampler.ended)
            text += certain
            if finish is not None or item.drafts[at : at + 1] != [choice.token]:
                break
        self._generated_tokens += len(chosen)
        self._drafted += len(item.drafts)
        self._accepted += len(chosen) - 1
        if first:
            self._cached_tokens += sequence.cached or 0
        if len(chosen) > 1:
            self.scheduler.advance(sequence, len(chosen) - 1)
        return Delta(text, tuple(chosen), finish, (sequence.cached or 0) if first else 0)

    def _fail(self, sequence: Sequence, error: Exception) -> tuple[str, Outcome]:
        self._end(sequence)
        if isinstance(error, OpweldError):
            return sequence.request.id, error
        told = RunError(f"the answer failed: {type(error).__name__}: {error}")
        told.__cause__ = error
        return sequence.request.id, told

    def _end(self, sequence: Sequence) -> None:
        self.scheduler.remove(sequence)
        self.drafter.forget(sequence)
        del self._sequences[sequence.request.id]


def span(item: Work) -> Span:
    """What the runner computes for it: the next known tokens, and drafts behind them."""
    sequence = item.sequence
    tokens = sequence.tokens[sequence.computed : sequence.computed + item.count]
    return Span((*tokens, *item.drafts), sequence.computed, sequence.table.blocks, item.outputs)
