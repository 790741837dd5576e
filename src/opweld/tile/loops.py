"""How the loops of a finished kernel are to be written: unrolled, fetching ahead, sharing loads or not.

None of this changes what a kernel computes. Each choice is put to a callback, so that it can be recorded and overruled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tile.bodies import trips_of
from opweld.tile.matrix import is_matrix
from opweld.tile.prefetch import MOST_LINES, Panel, around_stream, next_panel
from opweld.tile.registers import registers_for, registers_of
from opweld.tile.tile import Accumulate, Kernel, Loop, Statement, Tile
from opweld.tile.unroll import CHOICES, laid_out, unroll_choices

Decide: TypeAlias = Callable[[int, str, Sequence[str], str, str, Mapping[str, str]], str]
"""(number of the loop, rule, alternatives, the wanted one, why, what ruled others out) -> the one to take. The first is
the baseline. Loops about which nothing is asked have no number."""


def as_wanted(
    loop: int, rule: str, alternatives: Sequence[str], prefer: str, reason: str, failed: Mapping[str, str]
) -> str:
    """Takes what is wanted."""
    return prefer


def tune_loops(
    kernel: Kernel,
    target: Target,
    decide: Decide = as_wanted,
    expected: Expected | None = None,
    weights: float = math.inf,
) -> Kernel:
    """The kernel with its loops annotated. Asks for `schedule.unroll`, `schedule.prefetch`, `schedule.separate`.

    weights: bytes of all weights of the model, which pass through the caches from one run to the next."""
    tuning = _Tuning(kernel, target, decide, expected or Expected(), weights)
    return replace(kernel, body=tuning.block(kernel.body, (), ()))


class _Tuning:
    def __init__(self, kernel: Kernel, target: Target, decide: Decide, expected: Expected, weights: float) -> None:
        self._kernel = kernel
        self._target = target
        self._decide = decide
        self._expected = expected
        self._weights = weights
        self._numbers = 0

    def block(
        self, body: tuple[Statement, ...], loops: tuple[Loop, ...], tiles: tuple[Tile, ...]
    ) -> tuple[Statement, ...]:
        """Statements inside these loops and tiles."""
        made: list[Statement] = []
        for statement in body:
            if isinstance(statement, Tile) and is_matrix(statement):
                made.append(statement)  # its loops take as many steps at once as the unit does
            elif isinstance(statement, Tile):
                made.append(replace(statement, body=self.block(statement.body, loops, (*tiles, statement))))
            elif isinstance(statement, Loop):
                inner = replace(statement, body=self.block(statement.body, (*loops, statement), tiles))
                made.append(self._loop(inner, loops, tiles))
            else:
                made.append(statement)
        return tuple(made)

    def _loop(self, loop: Loop, outer: tuple[Loop, ...], tiles: tuple[Tile, ...]) -> Loop:
        number = self._numbers
        loop = replace(loop, unroll=1, fetches=(), separate=None)
        choices = unroll_choices(loop, tiles, self._target)
        if choices is None:
            loop, asked = self._separated(number, loop, tiles)
            self._numbers += asked
            return replace(loop, fetches=around_stream(self._kernel, loop, outer, tiles, self._expected))
        self._numbers += 1
        taken = self._decide(
            number,
            "schedule.unroll",
            tuple(map(str, CHOICES)),
            str(choices.best),
            f"loop {loop.axis}: {choices.reason}",
            {},
        )
        loop, _ = self._separated(number, replace(loop, unroll=int(taken)), tiles)
        return self._fetching(number, loop, outer, tiles)

    def _fetching(self, number: int, loop: Loop, outer: tuple[Loop, ...], tiles: tuple[Tile, ...]) -> Loop:
        """Fetches the next panel where there is one, and that gains something."""
        panel = next_panel(self._kernel, loop, outer, tiles, self._target, self._expected, self._weights)
        counts = tuple(map(str, range(MOST_LINES + 1)))
        if not isinstance(panel, Panel):
            why = f"loop {loop.axis}: {panel.text}"
            self._decide(number, "schedule.prefetch", counts, "0", why, {panel.code: panel.text})
            return loop
        reason = f"loop {loop.axis}: {panel.reason}"
        taken = int(self._decide(number, "schedule.prefetch", counts, str(panel.lines), reason, {}))
        return replace(loop, fetches=(panel.fetch(taken),)) if taken else loop

    def _separated(self, number: int, loop: Loop, tiles: tuple[Tile, ...]) -> tuple[Loop, bool]:
        """Keeps accumulations apart where the loads that they share would take more registers than there are. Answers
        the loop, and whether there was a choice."""
        items = [item for item in loop.body if isinstance(item, Accumulate)]
        if len(items) < 2:
            return loop, False
        registers = registers_for(items, self._target)
        trips = trips_of(loop)
        if trips is None:
            needed = registers_of(items, tiles, self._target.vector_lanes_f32)
        else:
            layout = laid_out(loop, tiles, trips, self._target)
            needed = registers if layout.breaks else layout.held
        wanted = "no" if needed < registers else "yes"
        reason = f"loop {loop.axis}: sharing loads takes {needed} registers of {registers}"
        taken = self._decide(number, "schedule.separate", ("no", "yes"), wanted, reason, {})
        return (replace(loop, separate=min(needed, registers)) if taken == "yes" else loop), True
