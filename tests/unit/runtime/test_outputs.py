"""Memory of outputs: whoever holds an array, or a view of one, keeps it; what nobody holds is used again."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from opweld.runtime.outputs import KEPT, LARGE, Outputs

ROWS = LARGE // 4 // 64
WANTED = (((ROWS, 64), np.dtype(np.float32)), ((3,), np.dtype(np.int64)), ((5, ROWS, 64), np.dtype(np.bool_)))


def start(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_arrays_are_as_wanted_and_aligned() -> None:
    made = Outputs().make(WANTED)
    assert [(a.shape, a.dtype) for a in made] == list(WANTED)
    for array in made:
        assert array.flags.c_contiguous
        assert array.flags.writeable
    assert start(made[0]) % 64 == 0
    made[0][:] = 1.0
    made[0].tobytes()


def test_what_nobody_holds_is_used_again() -> None:
    outputs = Outputs()
    places = [start(outputs.make(WANTED)[0]) for _ in range(3)]
    assert len(set(places)) == 1


@pytest.mark.parametrize("kept", [lambda a: a, lambda a: a[3:], lambda a: a.T, lambda a: memoryview(a)])
def test_what_somebody_holds_is_not(kept: object) -> None:
    outputs = Outputs()
    first = outputs.make(WANTED)[0]
    first[:] = 7.0
    held = kept(first)  # type: ignore[operator]
    del first
    gc.collect()
    for _ in range(3):
        outputs.make(WANTED)[0][:] = 1.0
    assert np.all(np.asarray(held) == 7.0)


def test_few_are_kept_and_only_for_the_last_shapes() -> None:
    outputs = Outputs()
    alive = [outputs.make(WANTED) for _ in range(3 * KEPT)]
    del alive
    _, sizes, free = outputs._last
    assert [len(free[size].free) for size in (sizes[0], sizes[2])] == [KEPT, KEPT]
    outputs.make((((LARGE,), np.dtype(np.uint8)),))
    assert list(outputs._last[2]) == [LARGE]


def test_a_little_more_finds_the_same_memory() -> None:
    """As a cache that is fed back grows row by row."""
    outputs, places = Outputs(), list[int]()
    for rows in range(1000, 1100):
        (made,) = outputs.make((((rows, 64), np.dtype(np.float32)),))
        assert made.shape == (rows, 64)
        made[:] = rows
        places.append(start(made))
        del made
    assert len(set(places)) <= 3


def test_all_of_one_size_are_kept() -> None:
    """As keys and values of every layer are."""
    outputs, wanted = Outputs(), (((LARGE,), np.dtype(np.uint8)),) * 24
    first = outputs.make(wanted)
    places = {start(array) for array in first}
    second = outputs.make(wanted)
    places |= {start(array) for array in second}
    for _ in range(4):
        first, second = second, []
        second = outputs.make(wanted)
        assert {start(array) for array in second} < places


def test_threads_never_share_a_buffer() -> None:
    outputs = Outputs()

    def use(value: int) -> bool:
        for _ in range(200):
            array = outputs.make(WANTED)[0]
            array[:] = value
            if not np.all(array == value):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(4)))
