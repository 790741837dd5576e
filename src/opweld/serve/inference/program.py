"""A program: Python code of the operator that answers a call by calling other models of the repository.

    @program(
        inputs={"image": (bytes, ())},
        outputs={"boxes": ("float32", ("count", 4, 2)), "texts": (str, ("count",))},
        models=("detect", "recognise"),
    )
    async def read(models, image):
        picture = await models.compute(decoded, image.item())
        found = await models["detect"](x=picture)
        ...
        return {"boxes": boxes, "texts": texts}

It is a file `program.py` in the place of a model. Arrays are handed on as they are, in memory. Each call of a model is
one of its calls, as those of clients are: it waits in the same queue and shares runs with others, those of the same
request too where `asyncio.gather` makes them together. What is late or given up for a client is for the models too.

The code runs in the server, with all that the server may: only the operator's belongs there.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from opweld.errors import ModelError, OptionError
from opweld.runtime.dtypes import CODES, numpy_dtype
from opweld.serve.inference.model import Array, TensorSpec

FILE: Final = "program.py"

T = TypeVar("T")
Declared: TypeAlias = "tuple[Any, tuple[int | str, ...] | None]"
"""Of an input or output: `bytes` or `str`, or a name of a dtype; sizes and names of dims, None for any rank."""
Answer: TypeAlias = Callable[..., Awaitable[Mapping[str, Any]]]

_loads = itertools.count()


@dataclass(frozen=True)
class Program:
    """What a file declares.

    Attributes:
        inputs, outputs: in the order of the declaration. models: the names of those that it calls.
        answer: called with `Models`, and an array for each input by name; returns one, or a list of strings, for each
            output.
    """

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    models: Sequence[str]
    answer: Answer


class Models(Protocol):
    """What the function of a program calls."""

    def __getitem__(self, name: str) -> Callable[..., Awaitable[Mapping[str, Array]]]:
        """A model that the program declares: a function of its inputs, by name or as one mapping, that returns its
        outputs by name."""
        ...

    async def compute(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls a function that takes long, as to decode an image, on one of the threads that run models: neither do
        others wait for it, nor are there more threads than processors."""
        ...


def program(
    inputs: Mapping[str, Declared], outputs: Mapping[str, Declared], models: Sequence[str]
) -> Callable[[Answer], Program]:
    """Declares a program. Raises OptionError for a dtype that there is not, and for a function that cannot be called
    with models and these inputs."""
    given, made = (
        [TensorSpec(name, _dtype(name, dtype), shape) for name, (dtype, shape) in side.items()]
        for side in (inputs, outputs)
    )

    def declared(answer: Answer) -> Program:
        try:
            inspect.signature(answer).bind(None, **dict.fromkeys(inputs))
        except TypeError as error:
            names = ", ".join(map(repr, inputs))
            raise OptionError(f"the program cannot be called with models and the inputs {names}: {error}") from None
        return Program(given, made, tuple(models), answer)

    return declared


def read_program(file: Path) -> tuple[Program, str]:
    """Runs the file of a program, which may import others beside it (`from . import boxes`); returns the name of its
    module too, to be forgotten with it (`forget`).

    Raises ModelError, naming the line, for a file that cannot be run, or declares none or several."""
    name = f"opweld_program_{next(_loads)}"
    try:
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(file.parent)])
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        # Not by the loader, which would take the bytecode of a file of the same second and size.
        exec(compile(file.read_bytes(), file, "exec"), vars(module))
        return _declared(file, module), name
    except ModelError:
        forget(name)
        raise
    except (Exception, SystemExit) as error:  # the file must not end the server
        forget(name)
        raise ModelError(f"{where(error, file)}: {type(error).__name__}: {error}") from error


def forget(name: str) -> None:
    """Drops the module of a program, and those that it imported from beside it."""
    for known in [known for known in list(sys.modules) if known == name or known.startswith(f"{name}.")]:
        sys.modules.pop(known, None)


def check_no_circle(name: str, uses: Mapping[str, Sequence[str]]) -> None:
    """Raises ModelError where a program calls itself by way of others. `uses`: what each program calls."""
    paths = [(name, called) for called in uses.get(name, ())]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        if path[-1] == name:
            raise ModelError(f"programs call each other in a circle: {' -> '.join(path)}")
        if path[-1] not in seen:
            seen.add(path[-1])
            paths += [(*path, called) for called in uses.get(path[-1], ())]


def _declared(file: Path, module: ModuleType) -> Program:
    found = [value for value in vars(module).values() if isinstance(value, Program)]
    if len(found) != 1:
        raise ModelError(f"{file} declares {len(found) or 'no'} programs, expected one function with @program(...)")
    return found[0]


def _dtype(name: str, dtype: Any) -> np.dtype[Any]:
    if dtype in (str, bytes):
        return np.dtype(object)
    if dtype not in CODES:
        raise OptionError(f"{name!r} is declared as {dtype!r}, expected str, bytes, or one of {', '.join(CODES)}")
    return numpy_dtype(dtype)


def where(error: BaseException, file: Path) -> str:
    """The file and line of an error: the innermost that lies beside the program."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(file.parent)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(file)
