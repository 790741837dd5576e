"""Python's garbage collector while a model is compiled."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator

import pytest

from opweld.collector import SELDOM, collected_seldom, pass_over_what_is_new, pass_over_what_there_is
from opweld.tensor.intern import compilation


@pytest.fixture(autouse=True)
def thresholds() -> Generator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_a_compilation_sets_back_what_there_was() -> None:
    with compilation():
        assert gc.get_threshold() == SELDOM
        with compilation():
            assert gc.get_threshold() == SELDOM
        assert gc.get_threshold() == SELDOM, "the outer one goes on"
    assert gc.get_threshold() == (700, 10, 10)


def test_an_error_sets_it_back_too() -> None:
    with pytest.raises(ValueError, match="inside"), compilation():
        raise ValueError("inside")
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (SELDOM[0] * 2, 5, 5)])
def test_an_application_that_looks_less_often_is_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with collected_seldom():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_an_application_sets_meanwhile_stays() -> None:
    with collected_seldom():
        gc.set_threshold(1000, 1, 1)
    assert gc.get_threshold() == (1000, 1, 1)


class _Part:
    """In a cycle, which only the collector ends."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thawed() -> Generator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_what_a_server_keeps_is_not_looked_at_again_until_it_says_so() -> None:
    kept, gone = _Part(), weakref.ref(_Part())
    pass_over_what_there_is()
    assert gone() is None, "what nobody has goes before"
    assert not any(one is kept for one in gc.get_objects())
    left = weakref.ref(kept)
    del kept
    gc.collect()
    assert left() is not None
    pass_over_what_there_is()
    assert left() is None


@pytest.mark.usefixtures("thawed")
def test_what_is_new_is_passed_over_and_looked_at_where_that_is_asked() -> None:
    first, frozen = weakref.ref(_Part()), gc.get_freeze_count()
    pass_over_what_is_new()
    assert gc.get_freeze_count() > frozen
    second = weakref.ref(_Part())
    pass_over_what_is_new(look=True)
    assert second() is None
    assert first() is not None, "what was passed over is not looked at again"
