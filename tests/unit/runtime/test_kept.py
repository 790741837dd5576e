"""What is made once a key: by whom, who waits, what is forgotten."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from opweld.runtime.kept import Kept
from tests.patience import PATIENCE_S


def test_each_is_made_once_and_the_oldest_goes() -> None:
    made: list[int] = []
    kept: Kept[int, list[int]] = Kept(2)

    def make(key: int) -> list[int]:
        return kept.get(key, lambda: made.append(key) or [key])

    first = make(1)
    assert make(1) is first
    for key in (2, 1, 3):
        make(key)
    assert make(1) is first, "2 was the oldest"
    make(2)
    assert made == [1, 2, 3, 2]


def test_who_asks_for_the_same_waits_and_who_asks_for_another_does_not() -> None:
    kept: Kept[str, object] = Kept(4)
    begun, go = threading.Event(), threading.Event()

    def slowly() -> object:
        begun.set()
        assert go.wait(PATIENCE_S)
        return object()

    def refuse() -> object:
        raise AssertionError("made twice")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(kept.get, "a", slowly)
        assert begun.wait(PATIENCE_S)
        second = pool.submit(kept.get, "a", refuse)
        assert kept.get("b", lambda: 1) == 1
        go.set()
        assert first.result() is second.result()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_failed_is_made_anew(error: type[BaseException]) -> None:
    kept: Kept[str, int] = Kept(4)

    def fail() -> int:
        raise error

    with pytest.raises(error):
        kept.get("a", fail)
    assert kept.get("a", lambda: 1) == 1
