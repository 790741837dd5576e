"""Kernels in Gluon on a processor, partitions as threads: Triton's interpreter knows none of it.

It is out to find what waits for too little. Copies arrive late, and until then their target is NaN; operands of tensor
cores may not change from when a product begins until it is waited for; what is stored from shared memory is read when
that is waited for, not before; results that are used before fail, and so does a wait that never ends. What of a kernel
depends on layouts is the compiler's to check.
"""

from __future__ import annotations

import operator
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor
from triton.language import constexpr

from tests.patience import PATIENCE_S

DTYPES: Mapping[torch.dtype, Any] = {
    torch.float32: np.dtype(np.float32),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
}


def _plain(value: Any) -> Any:
    """What NumPy computes with."""
    if isinstance(value, Product):
        raise AssertionError("a product of tensor cores is used before it is waited for")
    return value.array if isinstance(value, Tile) else value


class Tile:
    """A tensor in registers."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def to(self, dtype: Any) -> Tile:
        return Tile(self.array.astype(dtype))

    def reshape(self, shape: Sequence[int]) -> Tile:
        return Tile(self.array.reshape(shape))

    def permute(self, order: Sequence[int]) -> Tile:
        return Tile(self.array.transpose(order))

    def split(self) -> tuple[Tile, Tile]:
        return Tile(self.array[..., 0]), Tile(self.array[..., 1])

    def __getitem__(self, index: Any) -> Tile:
        return Tile(self.array[index])


def _binary(function: Callable[[Any, Any], Any], *, swapped: bool = False) -> Callable[[Tile, Any], Any]:
    def apply(self: Tile, other: Any) -> Any:
        if isinstance(other, Pointer):
            return NotImplemented
        left, right = _plain(self), _plain(other)
        return Tile(np.asarray(function(right, left) if swapped else function(left, right)))

    return apply


for _name in ("add", "sub", "mul", "truediv", "lt", "le", "gt", "ge", "eq", "ne", "and_", "or_"):
    _function = getattr(operator, _name)
    setattr(Tile, f"__{_name.rstrip('_')}__", _binary(_function))
    if _name in ("add", "sub", "mul", "truediv"):
        setattr(Tile, f"__r{_name}__", _binary(_function, swapped=True))


class Pointer:
    """An address, or a tensor of addresses, in a flat array."""

    def __init__(self, array: np.ndarray, offset: Any = 0) -> None:
        self.array, self.offset = array, offset

    def __add__(self, other: Any) -> Pointer:
        return Pointer(self.array, self.offset + _plain(other))


class Shared:
    """Shared memory, or a view of it."""

    def __init__(self, array: np.ndarray, owner: Shared | None = None) -> None:
        self.array = array
        self.owner = owner or self

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def index(self, index: Any) -> Any:
        view = self.array[index]
        return view if isinstance(view, Barrier) else Shared(view, self.owner)

    def reshape(self, shape: Sequence[int]) -> Shared:
        return Shared(self.array.reshape(shape, copy=False), self.owner)

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.array.transpose(order), self.owner)

    def load(self, _: Any) -> Tile:
        return Tile(self.array.copy())

    def store(self, tile: Tile) -> None:
        self.array[...] = _plain(tile)
        _thread().stored.append(self.owner)


class Barrier:
    """An mbarrier: a phase ends when so many have arrived and all bytes that are expected have come."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = self.pending = self.bytes = self.phase = 0

    def update(self, arrivals: int, nbytes: int) -> None:
        with self.changed:
            assert self.count, "a barrier is used before it is initialised"
            self.pending -= arrivals
            self.bytes += nbytes
            assert self.pending >= 0, "more arrive at a barrier than it counts"
            if self.pending == 0 and self.bytes == 0:
                self.phase += 1
                self.pending = self.count
                self.changed.notify_all()

    def wait(self, parity: int) -> None:
        with self.changed:
            ended = self.changed.wait_for(lambda: self.phase % 2 != parity, PATIENCE_S / 4)
            assert ended, "a barrier is waited for in vain"


class Descriptor:
    """A tensor in global memory by tiles: zeros are loaded from beyond it, nothing is stored there."""

    def __init__(self, described: Any) -> None:
        self.array = to_numpy(described.base)
        self.block_shape = list(described.block_shape)
        self.layout = described.layout
        self.dtype = self.array.dtype
        self.block_type = SimpleNamespace(nbytes=int(np.prod(self.block_shape)) * self.dtype.itemsize)

    def places(self, at: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Of a tile what is inside: its place in the tensor, and in the tile."""
        ends = [
            max(first, min(first + length, size))
            for first, length, size in zip(at, self.block_shape, self.array.shape, strict=True)
        ]
        of_tensor = tuple(slice(first, end) for first, end in zip(at, ends, strict=True))
        return of_tensor, tuple(slice(0, end - first) for first, end in zip(at, ends, strict=True))


class Product:
    """A product of tensor cores that is under way."""

    def __init__(self, compute: Callable[[], np.ndarray]) -> None:
        self.compute = compute
        self.array: np.ndarray | None = None


class _State(threading.local):
    """What a partition has under way."""

    def __init__(self) -> None:
        self.products: list[Product] = []
        self.stores: list[Callable[[], None]] = []
        self.stored: list[Shared] = []


_states = _State()
_program = threading.local()


def _thread() -> _State:
    return _states


def _multiply(a: Any, b: Shared, accumulator: Any, *, use_acc: Any = True, is_async: bool = False) -> Product:
    assert is_async
    left = a if isinstance(a, Shared) else Tile(_plain(a))
    read = left.array.copy(), b.array.copy()

    def compute() -> np.ndarray:
        same = all(one.tobytes() == other.tobytes() for one, other in zip(read, (left.array, b.array), strict=True))
        assert same, "an operand changes while tensor cores read it"
        product = read[0].astype(np.float32) @ read[1].astype(np.float32)
        if not use_acc:
            return product
        if isinstance(accumulator, Product):
            assert accumulator.array is not None
            return accumulator.array + product
        return accumulator.array + product

    product = Product(compute)
    _thread().products.append(product)
    return product


def _wait_products(outstanding: int, *, deps: Sequence[Any]) -> Any:
    state = _thread()
    while len(state.products) > outstanding:
        product = state.products.pop(0)
        product.array = product.compute()
    done = tuple(Tile(one.array) if isinstance(one, Product) and one.array is not None else one for one in deps)
    return done[0] if len(done) == 1 else done


def _copy_in(source: Descriptor, at: Sequence[int], barrier: Barrier, target: Shared) -> None:
    target.array[...] = np.nan
    of_tensor, of_tile = source.places(at)
    tile = np.zeros(source.block_shape, source.dtype)
    tile[of_tile] = source.array[of_tensor]

    def arrive() -> None:
        time.sleep(random.random() * 2e-4)
        target.array[...] = tile
        barrier.update(0, -source.block_type.nbytes)

    threading.Thread(target=arrive, daemon=True).start()


def _copy_out(target: Descriptor, at: Sequence[int], source: Shared) -> None:
    state = _thread()
    assert all(one is not source.owner for one in state.stored), "what was stored is copied without a fence"
    of_tensor, of_tile = target.places(at)

    def store() -> None:
        target.array[of_tensor] = source.array[of_tile]

    state.stores.append(store)


def _wait_stores(outstanding: int) -> None:
    stores = _thread().stores
    while len(stores) > outstanding:
        stores.pop(0)()


def _specialize(partitions: Sequence[tuple[Any, tuple[Any, ...]]], *_: Any) -> None:
    errors: list[BaseException] = []
    place = _program.place

    def run(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        _program.place = place
        try:
            function(*arguments)
            state = _thread()
            assert not state.products, "a partition ends with products under way"
            assert not state.stores, "a partition ends before its stores have read shared memory"
        except BaseException as error:  # noqa: BLE001 - raised again in the kernel's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=partition, daemon=True) for partition in partitions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _allocate(dtype: Any, shape: Sequence[int], _: Any) -> Shared:
    if dtype == "barrier":
        barriers = np.empty(shape[0], object)
        barriers[:] = [Barrier() for _ in range(shape[0])]
        return Shared(barriers)
    array = np.empty(shape, dtype)
    array[...] = np.nan
    return Shared(array)


def _init(barrier: Barrier, *, count: int) -> None:
    barrier.count = barrier.pending = count


def _arrive(barrier: Barrier, *, count: int = 1, pred: Any = True) -> None:
    if pred:
        barrier.update(count, 0)
        if random.random() < 0.05:
            time.sleep(2e-3)  # what waited goes on, while this partition has gone no further


def _store(pointer: Pointer, value: Tile, mask: Tile) -> None:
    array, offset = pointer.array, np.asarray(pointer.offset)
    array[offset[mask.array]] = value.array[mask.array]


def _load(pointer: Pointer, mask: Tile, other: float) -> Tile:
    offset = np.where(mask.array, pointer.offset, 0)
    return Tile(np.where(mask.array, pointer.array[offset], np.asarray(other, pointer.array.dtype)))


def _lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy on tiles and numbers."""

    def call(*values: Any) -> Any:
        result = function(*map(_plain, values))
        return Tile(result) if any(isinstance(value, Tile) for value in values) else result

    return call


def _where(condition: Tile, left: Any, right: Any) -> Tile:
    kind = next(value.dtype for value in (left, right) if isinstance(value, Tile))
    return Tile(np.where(condition.array, _plain(left), _plain(right)).astype(kind))


def _erf(x: Tile) -> Tile:
    return Tile(torch.erf(torch.from_numpy(np.ascontiguousarray(x.array))).numpy())


_LANGUAGE = SimpleNamespace(
    constexpr=constexpr,
    float32=np.float32,
    int64="barrier",  # what is allocated of it; a cast to it changes no number here
    program_id=lambda _: _program.place[0],
    num_programs=lambda _: _program.place[1],
    static_range=range,
    static_assert=lambda condition: None,
    cdiv=lambda a, b: -(-a // b),
    cast=lambda value, _: value,
    minimum=_lifted(np.minimum),
    maximum=_lifted(np.maximum),
    exp=_lifted(np.exp),
    exp2=_lifted(np.exp2),
    log2=_lifted(np.log2),
    erf=_erf,
    where=_where,
    max=lambda tile, axis: Tile(tile.array.max(axis)),
    sum=lambda tile, axis: Tile(tile.array.sum(axis)),
    zeros=lambda shape, dtype, _=None: Tile(np.zeros(shape, dtype)),
    full=lambda shape, value, dtype, _=None: Tile(np.full(shape, value, dtype)),
    arange=lambda first, end, _=None: Tile(np.arange(first, end)),
    convert_layout=lambda tile, _: tile,
    load=_load,
    store=_store,
    allocate_shared_memory=_allocate,
    warp_specialize=_specialize,
    **dict.fromkeys(("SliceLayout", "NVMMADistributedLayout", "DotOperandLayout"), lambda *_: None),
)
_REPLACED: Mapping[str, Any] = {
    "gl": _LANGUAGE,
    "tl": _LANGUAGE,
    "mbarrier": SimpleNamespace(
        MBarrierLayout=lambda: None,
        init=_init,
        expect=lambda barrier, nbytes: barrier.update(1, nbytes),
        arrive=_arrive,
        wait=lambda barrier, phase, pred=True: barrier.wait(int(phase)) if pred else None,
    ),
    "tma": SimpleNamespace(
        async_copy_global_to_shared=_copy_in, async_copy_shared_to_global=_copy_out, store_wait=_wait_stores
    ),
    "warpgroup_mma": _multiply,
    "warpgroup_mma_wait": _wait_products,
    "fence_async_shared": lambda: _thread().stored.clear(),
}


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The tensor's memory as an array of NumPy, which has bfloat16 by ml_dtypes."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(DTYPES[tensor.dtype])
    return tensor.numpy()


def _interpreted(function: Any, known: dict[int, dict[str, Any]]) -> Any:
    """A function of `gluon.jit` or `triton.jit` as one of Python, with all that it calls."""
    of_python: FunctionType = function.fn
    scope = known.get(id(of_python.__globals__))
    if scope is None:
        scope = known[id(of_python.__globals__)] = dict(of_python.__globals__)
        for name, value in of_python.__globals__.items():
            if name in _REPLACED:
                scope[name] = _REPLACED[name]
            elif isinstance(value, constexpr):
                scope[name] = value.value
            elif hasattr(value, "fn") and isinstance(value.fn, FunctionType):
                scope[name] = _interpreted(value, known)
    return FunctionType(of_python.__code__, scope, of_python.__name__, of_python.__defaults__)


def run(launch: Any) -> None:
    """Runs a `Launch` of a kernel in Gluon on tensors of the processor, program after program."""
    kernel = _interpreted(launch.kernel, {})
    arguments = {
        name: Descriptor(value)
        if hasattr(value, "block_shape")
        else Pointer(to_numpy(value).reshape(-1))
        if isinstance(value, Tensor)
        else value
        for name, value in launch.arguments.items()
    }
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for program in range(launch.programs):
            _program.place = (program, launch.programs)
            kernel(**arguments)
