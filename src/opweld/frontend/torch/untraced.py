"""Why torch.export cannot trace a module, where in its program, and what can be done instead."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch
from torch._dynamo.exc import UserError, UserErrorType
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

from opweld.frontend.torch.size_guards import sizes_told

_PYTORCH, _OPWELD = Path(torch.__file__).parent, Path(__file__).parents[2]
_STANDARD, _PACKAGES = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))

_DATA_DEPENDENT = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)

_BY_PARTS = (
    'torch.compile(module, backend="opweld") compiles what is before and after it, and opweld.compile takes a part of '
    "the module without it, as a backbone or a head"
)


def untraced(error: Exception) -> str:
    """PyTorch's reason, the line of the module's program that it comes from, and a remedy."""
    reason = _reason(error)
    line = _line(error)
    told = f"{reason} ({line})" if line else reason
    causes = list(_causes(error))
    if any(isinstance(own, _DATA_DEPENDENT) for own in causes):
        return f"{told}; what it does depends on the values of tensors: {_BY_PARTS}"
    if any(isinstance(own, ConstraintViolationError) for own in causes):
        return _violated(str(error))
    if isinstance(error, UserError) and error.error_type is UserErrorType.INVALID_INPUT:
        return told
    return f"{told}; where eager mode answers these inputs, {_BY_PARTS}"


def _reason(error: Exception) -> str:
    """The first sentence of an error, without what only developers of PyTorch read in it."""
    line = next((own.strip() for own in str(error).splitlines() if own.strip()), type(error).__name__)
    return re.split(r" \(unhinted: |\.?  \(Size-like| For more information", line)[0]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from, the last one first."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _line(error: Exception) -> str | None:
    """`file:line in function: source` of the innermost call that is the module's own: neither PyTorch's, opweld's nor
    the standard library's."""
    for own in reversed(list(_causes(error))):
        for frame in reversed(traceback.extract_tb(own.__traceback__)):
            if _is_own(Path(frame.filename)):
                return f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return None


def _is_own(path: Path) -> bool:
    standard = path.is_relative_to(_STANDARD) and not path.is_relative_to(_PACKAGES)
    return path.is_file() and not (standard or path.is_relative_to(_PYTORCH) or path.is_relative_to(_OPWELD))


def _violated(text: str) -> str:
    """What a module asks of sizes beyond what `dynamic_shapes` says, and what is to be said there instead."""
    lines = [line.strip() for line in text.splitlines()]
    first = next((line.removeprefix("- ") for line in lines if line.startswith("- ")), lines[0])
    reason = sizes_told(re.split(r"\. If you're|\.?$", first)[0])
    if "specialized it to be a constant" in reason:
        return f"{reason}; leave that dim out of dynamic_shapes, and compile a model for each size"
    _, suggested, rest = text.partition("Suggested fixes:\n")
    fixes = ", ".join(line.strip() for line in rest.partition("\n\n")[0].splitlines())
    wanted = f"PyTorch suggests {fixes}; " if suggested else ""
    return f"{reason}; {wanted}for a text in place of a Dim, as 'n', PyTorch infers what sizes there may be"
