"""The part of a machine that a process has."""

from __future__ import annotations

import pytest

from opweld.serve.inference.settings import Settings
from opweld.serve.limits import Limits
from opweld.serve.processes import part as module
from opweld.serve.processes.part import Part


@pytest.mark.parametrize(("processors", "parts"), [(8, [4, 4]), (7, [4, 3]), (7, [3, 2, 2]), (1, [1, 1]), (2, [2])])
def test_all_parts_are_the_processors(processors: int, parts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_cores", lambda: processors)
    assert [Part(number, len(parts)).processors for number in range(len(parts))] == parts


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_cores", lambda: 8)
    whole = Settings(queue=5)
    assert Part().settings(whole) is whole
    assert Part(0, 2).settings(whole) == Settings(queue=3, threads=4)
    assert Part(0, 2).settings(Settings(queue=0, threads=3)) == Settings(queue=0, threads=3)
    assert Part(0, 2).settings(Settings(threads=6)) == Settings(queue=512, threads=4)


def test_memory_of_requests_has_room_for_one_at_least() -> None:
    whole = Limits(body=1000, in_flight=10_000)
    assert Part().limits(whole) is whole
    assert Part(0, 3).limits(whole) == Limits(body=1000, in_flight=3334)
    assert Part(0, 20).limits(whole) == Limits(body=1000, in_flight=1000)
