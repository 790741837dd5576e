"""Options of how tokens of an answer are chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from opweld.llm.requests import Sampling

MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", min=1, help="The most tokens of an answer; the context's room where not "
                 "given.", show_default=False),
]  # fmt: skip
TemperatureOption = Annotated[
    float | None,
    typer.Option("--temperature", metavar="X", min=0, max=2, help="0 takes the likeliest token; the model's own where "
                 "not given.", show_default=False),
]  # fmt: skip
TopPOption = Annotated[
    float | None,
    typer.Option("--top-p", metavar="X", min=0, max=1, help="Of as few likeliest tokens as have this probability "
                 "together.", show_default=False),
]  # fmt: skip
TopKOption = Annotated[
    int | None,
    typer.Option("--top-k", metavar="N", min=0, help="Of so many likeliest tokens; 0: of all.", show_default=False),
]
MinPOption = Annotated[
    float | None,
    typer.Option("--min-p", metavar="X", min=0, max=1, help="Of tokens that have this times the probability of the "
                 "likeliest.", show_default=False),
]  # fmt: skip
SeedOption = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="The same answer each time.", show_default=False)
]


def sampling_of(own: Sampling, **given: Any) -> Sampling:
    """The model's own way to choose tokens, but for what is given."""
    from dataclasses import replace

    return replace(own, **{name: value for name, value in given.items() if value is not None})
