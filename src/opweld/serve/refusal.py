"""Why a request is not answered, in no protocol's terms."""

from __future__ import annotations

from opweld.errors import (
    ClosedError,
    InputError,
    LateError,
    ModelError,
    OptionError,
    OpweldError,
    QueueFull,
    ShortageError,
    UnsupportedError,
)


class Refusal(OpweldError):  # noqa: N818 - it is no fault of the server
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        param: the field at fault. code: a word for programs.
        retry_after: seconds after which another try may succeed.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after


def internal() -> Refusal:
    """A fault of the server, of which a client learns nothing."""
    return Refusal(500, "The server had an error while processing your request. Its log says more.")


def stopping() -> Refusal:
    """The server is going to end."""
    return Refusal(503, "The server is stopping.", code="server_stopping", retry_after=5)


def foreign(origin: str) -> Refusal:
    """A web page of elsewhere asks."""
    known = origin not in ("", "null")
    remedy = f"start it with --cors {origin}" if known else "give the page an origin that --cors can name"
    return Refusal(403, f"The request comes from a web page that may not call this server; {remedy}.")


def busy() -> Refusal:
    """Requests that are being answered have all the memory that there is for them."""
    return Refusal(
        429,
        "Other requests take all memory there is for them.",
        code="server_busy",
        retry_after=1,
    )


def too_large(limit: int) -> Refusal:
    """A request has more bytes than it may."""
    return Refusal(413, f"The request is larger than {limit} bytes.", code="request_too_large")


def out_of_time(seconds: float) -> Refusal:
    """A request took longer than it may."""
    return Refusal(503, f"The request took longer than {seconds:g} seconds.", code="timeout", retry_after=5)


def refusal_of(error: OpweldError) -> Refusal | None:
    """The refusal that an error of an engine or tokenizer means; None if it is a fault of ours."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, QueueFull):
        return Refusal(429, str(error), code="queue_full", retry_after=1)
    if isinstance(error, LateError):
        return Refusal(504, str(error), code="deadline_exceeded")
    if isinstance(error, ClosedError):
        return Refusal(503, str(error), code="closed", retry_after=5)
    if isinstance(error, ShortageError):
        return Refusal(503, str(error), code="shortage", retry_after=5)
    if isinstance(error, (OptionError, ModelError, InputError, UnsupportedError)):
        return Refusal(400, str(error), code="invalid_value")
    return None
