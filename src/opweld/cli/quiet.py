"""The option --quiet of all commands that may take long."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from opweld.cli import show

QuietOption = Annotated[bool, typer.Option("--quiet", help="Do not show how far it is.")]


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the option, of which its function need not know: `show.progress` asks for it."""

    @wraps(command)
    def run(*arguments: Any, quiet: bool, **options: Any) -> None:
        with show.quiet(quiet):
            command(*arguments, **options)

    own = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=QuietOption)
    run.__annotations__ = get_type_hints(command, include_extras=True) | {"quiet": QuietOption}
    run.__dict__["__signature__"] = own.replace(parameters=[*own.parameters.values(), option])
    return run
