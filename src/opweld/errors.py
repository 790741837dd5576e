"""The errors opweld raises. Each message names the node or value, what was expected, and what to do about it."""


def printable(text: str) -> str:
    """The text with control and unprintable characters escaped, as `repr` writes it; line breaks stay.

    Names come from models: they may hold escape sequences, marks that reverse the text, halves of surrogate pairs."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def in_line(text: str) -> str:
    """`printable` with line breaks escaped too, for a name in a line without quotes."""
    return printable(text).replace("\n", "\\n")


class OpweldError(Exception):
    """Root of all errors that opweld raises on purpose. Its message is safe to print."""

    def __init__(self, message: str = "", *details: object) -> None:
        super().__init__(printable(message), *details)


class ModelError(OpweldError):
    """The model is malformed or inconsistent: bad protobuf, wrong rank, contradicting shapes, unsafe external data."""


class MissingModelError(ModelError):
    """There is no file or folder where the model should be."""


class DamagedModelError(ModelError):
    """The file is no ONNX model: truncated, or of another format."""


class UnsupportedError(OpweldError):
    """The model is valid, but uses an operator, attribute or type that opweld does not compile yet."""


class UnspecifiedError(UnsupportedError):
    """The model can only be compiled for a known property of an input, which no option gives.

    Attributes:
        option: the option that gives it: lengths, ranks, constants or dims.
        name: the input; empty for dims, where any of several may help.
    """

    def __init__(self, message: str = "", option: str = "", name: str = "") -> None:
        super().__init__(message)
        self.option, self.name = option, name


class OperatorError(OpweldError):
    """An operator of another package failed."""


class RuleError(OpweldError):
    """A rule of another package failed: it raised, returned something of a wrong type, or left an invalid graph. The
    model is unchanged."""


class InputError(OpweldError, ValueError):
    """A feed is missing, unknown, or has the wrong dtype, rank or shape."""


class AssumptionError(InputError):
    """The shapes or small integer inputs of a call violate the assumptions of every compiled variant."""


class RunError(OpweldError, RuntimeError):
    """A run failed: a kernel met a bad index, memory ran out, or the caller ended it."""


class StateError(RunError):
    """A state cannot be used: another run uses it, or a failed run has lost its contents. It is unchanged."""


class QueueFull(OpweldError):  # noqa: N818 - as the standard library's queue.Full
    """As many requests wait as may: the caller should come again later."""


class LateError(OpweldError):
    """A request was not begun, or its answer not waited for, as it could not be ready by its deadline."""


class ClosedError(OpweldError):
    """What answers requests takes no more of them."""


class ToolchainError(OpweldError):
    """The C compiler is missing or rejected generated source."""


class ShortageError(OpweldError):
    """The machine or a limit of the process is exhausted: disk space, open files, memory. Partial results are
    removed."""


class DeviceError(OpweldError, RuntimeError):
    """There is no GPU that can be used, or its driver reports an error."""


class ArtifactError(OpweldError):
    """An artifact is missing, corrupted, of another format version, or built for another processor."""


class OptionError(OpweldError, ValueError):
    """An option or environment variable has a value that opweld does not know."""


class ModelTypeError(OptionError, TypeError):
    """An object of a type that is no model was given as one."""
