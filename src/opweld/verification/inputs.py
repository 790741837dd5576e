"""Inputs for a model that was given none: by declared dtype and shape, the same every time for one seed.

Usual sizes come first, with the numbers that the likeliest variant expects of inputs whose elements decide what runs.
Where the model refuses them, dims that follow from others are made to; then the sizes that the compiler expected are
tried; then another size of one dim, and of two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opweld.errors import AssumptionError, InputError, OptionError
from opweld.runtime import dtypes
from opweld.verification.expected import Expectation, Place

Array = NDArray[Any]

Given: TypeAlias = "str | Array"
"""What an input is to be: an array, or a text that says it."""

_MAX_ELEMENTS = 1 << 30

_SIZES = (
    *(32, 48, 64, 1, 2, 3, 4, 16, 8, 128, 224, 256, 512, 640, 96, 160, 192, 320, 384, 480, 80, 112, 24, 10, 100, 5, 6),
    *(7, 9, 12, 20, 40, 50, 60, 77, 144, 197, 200, 240, 299, 300, 416, 448, 600, 608, 768, 800, 1000, 1024, 1280),
    *(1536, 2048, 3000, 4096, 8000, 16000, 32000),
)
"""What dims are tried at where usual sizes do not fit, what people feed first."""

_MOST_TRIES = 3000
_MOST_FOLLOWING = 256


class Declared(Protocol):
    """What a model declares of an input: `opweld.interface.TensorInfo` is one."""

    @property
    def name(self) -> str:
        """The input's name."""
        ...

    @property
    def dtype(self) -> str:
        """Its dtype, by a name of `opweld.runtime.dtypes.CODES`."""
        ...

    @property
    def shape(self) -> Sequence[int | str] | None:
        """Sizes and names of symbolic dims, which are negative or empty where they have none; None for any rank."""
        ...


def make_inputs(
    declared: Sequence[Declared], *, given: Mapping[str, Given], dims: Mapping[str, int], seed: int = 0
) -> dict[str, Array]:
    """Arrays for all inputs of a model.

    Args:
        declared: the model's inputs.
        given: by input name, an array, or a text: a `.npy` file, a number that fills the input, or a shape such as
            `1x3x224x224`.
        dims: sizes of symbolic dims by name; others get a usual size.
        seed: of the random values: floats normally distributed, integers 0 or 1, which every vocabulary has.

    Raises InputError or OptionError naming the input.
    """
    names = [value.name for value in declared]
    for name in given:
        if name not in names:
            raise OptionError(f"--input {name!r}: the model's inputs are {', '.join(names)}")
    known = {dim for value in declared for dim in value.shape or () if isinstance(dim, str)}
    for name in dims:
        if name not in known:
            raise OptionError(f"--dim {name!r}: the inputs' symbolic dims are {', '.join(sorted(known)) or 'none'}")
    if seed < 0:
        raise OptionError(f"seed is {seed}, expected a whole number of at least 0")
    return _arrays(declared, given, {**dims}, np.random.default_rng(seed))


def _arrays(
    declared: Sequence[Declared],
    given: Mapping[str, Given],
    dims: Mapping[str | Place, int],
    random: np.random.Generator | None,
    numbers: Mapping[Place, int] | None = None,
    indexed: Mapping[str, tuple[int | tuple[Place, int], ...]] | None = None,
) -> dict[str, Array]:
    dims = {**_named(declared, dims), **dims}
    made = {value.name: _make(value, given.get(value.name), dims, random) for value in declared}
    for (name, position), number in (numbers or {}).items():
        if name in made and name not in given and position < made[name].size:
            made[name].reshape(-1)[position] = number
    for name, extents in (indexed or {}).items():
        if name in made and name not in given and extents:
            made[name] %= max(1, min(_extent(extent, made) for extent in extents))
    return made


def _extent(extent: int | tuple[Place, int], made: Mapping[str, Array]) -> int:
    """How long an axis is of which an input chooses elements."""
    if isinstance(extent, int):
        return extent
    (name, axis), divisor = extent
    return made[name].shape[axis] // divisor


def _named(declared: Sequence[Declared], dims: Mapping[str | Place, int]) -> dict[str | Place, int]:
    """The sizes of dims with a name that has none yet: usual ones, of the first place that has the name, so that it is
    one size in all inputs."""
    found: dict[str | Place, int] = {}
    for value in declared:
        shape = value.shape or ()
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and dim not in ("", "?") and dim not in dims and (value.name, axis) not in dims:
                floating = value.dtype.startswith(("float", "bfloat"))
                found.setdefault(dim, _size(dim, axis, len(shape), floating, dims))
    return found


def fitting_inputs(
    declared: Sequence[Declared],
    binds: Callable[[Mapping[str, Array]], object],
    *,
    given: Mapping[str, Given],
    dims: Mapping[str, int],
    seed: int = 0,
    expected: Expectation | None = None,
) -> tuple[dict[str, Array], bool]:
    """Arrays for all inputs of a model that it takes, and whether their sizes had to be searched for.

    `binds` raises AssumptionError for arrays that the model does not take; `expected` is what its likeliest variant
    expects, and how far integers may go that choose elements. The others as in `make_inputs`; what is given is never
    changed. Raises AssumptionError, that of the usual sizes, where no other sizes are found."""
    make_inputs(declared, given=given, dims=dims, seed=seed)  # refuses what is wrong with what is given
    refusal: AssumptionError | None = None
    for number, (sizes, numbers) in enumerate(_attempts(declared, given, dims, expected or Expectation())):
        # Which values it would be does not matter to a size.
        try:
            binds(_arrays(declared, given, {**dims, **sizes}, None if number else np.random.default_rng(seed), numbers))
        except AssumptionError as error:
            refusal = refusal or error
            continue
        except InputError:
            if not number:
                raise
            continue
        indexed = None if expected is None else expected.indexed
        random = np.random.default_rng(seed)
        return _arrays(declared, given, {**dims, **sizes}, random, numbers, indexed), bool(sizes)
    assert refusal is not None
    raise refusal


def _attempts(
    declared: Sequence[Declared], given: Mapping[str, Given], dims: Mapping[str, int], expected: Expectation
) -> Iterator[tuple[Mapping[str | Place, int], Mapping[Place, int]]]:
    """Sizes of dims beside those that are given, and numbers, in the order in which they are worth a try."""
    following, free = _following(declared, given, dims, expected)
    choices: list[Mapping[Place, int]] = [expected.numbers] if expected.numbers else []
    for numbers in (*choices, dict[Place, int]()):
        for sizes in ({}, free):
            known = {1, *(_usual(declared, given, dims).get(place, 1) for place in expected.sizes), *sizes.values()}
            yield sizes, numbers
            for chosen in itertools.islice(itertools.product(sorted(known), repeat=len(following)), _MOST_FOLLOWING):
                if following:
                    yield {**sizes, **dict(zip(following, chosen, strict=True))}, numbers
        for sizes in itertools.islice(_tries(declared, given, dims), _MOST_TRIES):
            yield sizes, numbers


def _following(
    declared: Sequence[Declared], given: Mapping[str, Given], dims: Mapping[str, int], expected: Expectation
) -> tuple[list[Place], dict[str | Place, int]]:
    """The dims without a name that follow from others, and the sizes that are expected of those that do not."""
    following: list[Place] = []
    free: dict[str | Place, int] = {}
    for value in declared:
        for axis, dim in enumerate(value.shape or ()) if value.name not in given else ():
            if isinstance(dim, int) and dim >= 0:
                continue
            place = value.name, axis
            name = dim if isinstance(dim, str) and dim else place
            if place in expected.sizes and name not in dims:
                free.setdefault(name, expected.sizes[place])
            elif place not in expected.sizes and expected.sizes and name == place:
                following.append(place)
    return following, free


def _usual(declared: Sequence[Declared], given: Mapping[str, Given], dims: Mapping[str, int]) -> dict[Place, int]:
    """The usual sizes of all dims."""
    shapes = {
        value.name: tuple(
            _size(dim, axis, len(value.shape), value.dtype.startswith(("float", "bfloat")), {**dims})
            for axis, dim in enumerate(value.shape)
        )
        for value in declared
        if value.shape is not None and value.name not in given
    }
    return {(name, axis): size for name, shape in shapes.items() for axis, size in enumerate(shape)}


def described(feeds: Mapping[str, Array], given: Mapping[str, Given]) -> str:
    """What is fed, for people: shapes of what was made up at random, numbers as they are; what was given is named."""
    told: list[str] = []
    for name, array in feeds.items():
        shape = "x".join(map(str, array.shape)) or "scalar"
        if name in given:
            told.append(f"{name} {shape} as given")
        elif array.size == 1 and array.dtype.kind in "iub":
            told.append(f"{name} {array.reshape(-1)[0]}")
        else:
            told.append(f"{name} {shape} of random {array.dtype}")
    return ", ".join(told) or "nothing"


def made_up_hint(names: Iterable[str]) -> str:
    """What to say where a run fails for inputs of these names that were made up."""
    told = ", ".join(repr(name) for name in names)
    return f"the inputs {told} were made up, and may be none that the model takes: feed real ones"


def _tries(
    declared: Sequence[Declared], given: Mapping[str, Given], dims: Mapping[str, int]
) -> Iterator[dict[str | Place, int]]:
    """Sizes of one symbolic dim, then of two."""
    open_dims = [
        dim if isinstance(dim, str) and dim else (value.name, axis)
        for value in declared
        if value.name not in given
        for axis, dim in reversed(list(enumerate(value.shape or ())))
        if not isinstance(dim, int) or dim < 0
    ]
    free: list[str | Place] = [key for key in dict.fromkeys(open_dims) if key not in dims]
    for count in (1, 2):
        for sizes in itertools.product(_SIZES, repeat=count):
            for chosen in itertools.combinations(free, count):
                yield dict(zip(chosen, sizes, strict=True))


def _make(
    value: Declared, text: Given | None, dims: Mapping[str | Place, int], random: np.random.Generator | None
) -> Array:
    """The array of an input; zeros without `random`."""
    if isinstance(text, np.ndarray):
        return text
    if text is not None and text.endswith(".npy"):
        return _load(value.name, Path(text))
    if value.shape is None:
        raise InputError(f"input {value.name!r} has no declared rank: give it as --input {value.name}=FILE.npy")
    dtype = dtypes.numpy_dtype(value.dtype)
    rank = len(value.shape)
    floating = dtype.kind == "f"
    shape = tuple(
        dims[value.name, i] if (value.name, i) in dims else _size(dim, i, rank, floating, dims)
        for i, dim in enumerate(value.shape)
    )
    if text is None:
        return _random(value.name, shape, dtype, random)
    if _is_shape(text):
        shape = tuple(int(size) for size in text.split("x"))
        if len(shape) != rank:
            raise InputError(f"--input {value.name}={text}: the model declares rank {rank}, this is rank {len(shape)}")
        return _random(value.name, shape, dtype, random)
    try:
        return np.full(shape, float(text) if dtype.kind == "f" else int(text), dtype)
    except (ValueError, OverflowError) as error:
        raise OptionError(
            f"--input {value.name}={text}: expected a .npy file, a {dtype} number, or a shape such as 1x128"
        ) from error


def given_array(value: Declared, text: Given, dims: Mapping[str, int]) -> Array:
    """What a text says of an input, as for `make_inputs`: the array of a file, or one of the shape that it names, of
    zeros. Raises InputError or OptionError naming the input."""
    return _make(value, text, {**dims}, None)


def _is_shape(text: str) -> bool:
    parts = text.split("x")
    return len(parts) > 1 and all(part.isascii() and part.isdigit() for part in parts)


def _load(name: str, path: Path) -> Array:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"--input {name}={path}: no array in that file: {error}") from error


def _size(dim: int | str, axis: int, rank: int, floating: bool, dims: Mapping[str | Place, int]) -> int:
    """The size of a dim: as declared or given, else what models of this rank usually take."""
    if isinstance(dim, int) and dim >= 0:
        return dim
    if isinstance(dim, str) and dim in dims:
        return dims[dim]
    if axis == 0:
        return 1
    if rank == 4 and axis >= 2:
        return 320  # height and width: a multiple of 32, as feature pyramids want
    if rank == 2:
        return 512 if floating else 64  # samples of sound, or words
    return 3 if rank == 4 else 64


def _random(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], random: np.random.Generator | None) -> Array:
    elements = 1
    for size in shape:
        elements *= size
    if elements > _MAX_ELEMENTS:
        raise InputError(f"input {name!r} of shape {list(shape)} has {elements} elements; give it as a .npy file")
    if random is None:
        return np.zeros(shape, dtype)
    if dtype.kind == "f":
        return random.standard_normal(shape, np.float32).astype(dtype)
    return random.integers(0, 2, shape).astype(dtype)
