from __future__ import annotations

import itertools

import numpy as np
import pytest

from opweld.place.storage import Storage, Term, blocked, dense, lay_out, slice_of
from opweld.tensor.dim import Symbol, as_dim
from opweld.tensor.dtype import DType


def addresses(storage: Storage, shape: tuple[int, ...]) -> list[int]:
    return [
        int(storage.address([as_dim(i) for i in index]))
        for index in itertools.product(*(range(size) for size in shape))
    ]


STORAGES = {
    "row-major": (dense("v", DType.F32, tuple(map(as_dim, (3, 4, 5)))), (3, 4, 5)),
    "permuted": (dense("v", DType.F32, tuple(map(as_dim, (3, 4, 5))), (1, 2, 0)), (3, 4, 5)),
    "ones": (dense("v", DType.F32, tuple(map(as_dim, (1, 4, 1)))), (1, 4, 1)),
    "padded": (dense("v", DType.F32, tuple(map(as_dim, (3, 4))), None, ((1, 2), (0, 3))), (3, 4)),
    "blocked": (blocked("v", DType.F32, (5, 6, 3), (0, 2), 1, 4), (5, 6, 3)),
    "two axes in blocks": (
        Storage(
            "v",
            DType.F32,
            (Term(0, as_dim(1), 1, 3), Term(0, as_dim(24), 3), Term(1, as_dim(3), 2), Term(1, as_dim(12), 1, 2)),
            as_dim(2),
            as_dim(80),
        ),
        (7, 8),
    ),
    "a modulus that is shifted": (
        Storage("v", DType.F32, (Term(0, as_dim(1), 1, 4, 1), Term(0, as_dim(4), 4, None, 1)), as_dim(0), as_dim(16)),
        (9,),
    ),
    "blocked exactly": (blocked("v", DType.F32, (5, 8), (0,), 1, 4), (5, 8)),
}


@pytest.mark.parametrize("name", STORAGES)
def test_every_element_has_a_place_of_its_own(name: str) -> None:
    storage, shape = STORAGES[name]
    found = addresses(storage, shape)
    assert len(set(found)) == len(found)
    assert min(found) >= 0
    assert max(found) < int(storage.elements)


@pytest.mark.parametrize("name", STORAGES)
def test_a_memory_image_holds_each_element_at_its_address(name: str) -> None:
    storage, shape = STORAGES[name]
    array = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    image = lay_out(array, storage)
    np.testing.assert_array_equal(image[addresses(storage, shape)], array.reshape(-1))
    assert np.count_nonzero(image) == array.size


def test_a_block_is_read_front_to_back() -> None:
    storage = blocked("v", DType.F32, (3, 8), (0,), 1, 4)
    assert addresses(storage, (3, 8))[:4] == [0, 1, 2, 3]
    assert int(storage.address([as_dim(1), as_dim(0)])) == 4
    assert int(storage.address([as_dim(0), as_dim(4)])) == 12
    assert storage.stride(1) is None
    assert storage.stride(0) is as_dim(4)


def test_order_and_halo_decide_the_strides() -> None:
    n = Symbol("n").dim
    storage = dense("v", DType.F32, (n, as_dim(8), as_dim(10)), (0, 2, 1), ((0, 0), (0, 0), (1, 1)))
    assert [storage.stride(axis) for axis in range(3)] == [as_dim(96), as_dim(1), as_dim(8)]
    assert storage.elements is 96 * n
    assert storage.padded
    assert int(storage.address([as_dim(0)] * 3)) == 8


def test_a_slice_lies_within_its_parent() -> None:
    parent = dense("whole", DType.F32, tuple(map(as_dim, (2, 7, 3))), (0, 2, 1))
    part = slice_of(parent, 1, as_dim(4))
    whole = np.arange(42).reshape(2, 7, 3)
    image = lay_out(whole, parent)
    np.testing.assert_array_equal(image[addresses(part, (2, 3, 3))], whole[:, 4:, :].reshape(-1))
    assert part.root == "whole"


def test_a_slice_of_a_padded_parent_skips_the_halo() -> None:
    parent = dense("whole", DType.F32, tuple(map(as_dim, (5, 4))), None, ((1, 1), (2, 0)))
    part = slice_of(parent, 0, as_dim(3))
    expected = [int(parent.address([as_dim(3 + i), as_dim(j)])) for i in range(2) for j in range(4)]
    assert addresses(part, (2, 4)) == expected
