"""`opweld cache`: what compiled models take on the disk, and how to get it back."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from opweld.build.cache import KINDS, Cache, Entry
from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.options import Environment, byte_count
from opweld.table import Column, of_words

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_DAY_S = 86400


@app.callback(invoke_without_command=True)
def cache(context: typer.Context, json: arguments.JsonOption = None) -> None:
    """Show what compiled models take on the disk, or remove some.

    \b
    opweld cache
        how much there is
    opweld cache prune
        down to the limit, the least recently used first
    opweld cache prune --limit 1G --days 30
        down to 1 GiB, and whatever nobody used for 30 days
    opweld cache clear
        all of it

    OPWELD_CACHE_LIMIT=SIZE is the limit, 20G where it is not set: compiling ends with `prune` now and then.
    """
    if context.invoked_subcommand is not None:
        return
    place = Cache.open()
    entries = place.entries()
    limit = Environment.read().cache_limit
    rows = [_row(kind, [entry for entry in entries if entry.kind == kind]) for kind in KINDS]
    total = _row("all", entries)
    if json is not None:
        kinds = {row[0]: {"entries": int(row[1]), "bytes": _bytes(entries, row[0])} for row in rows}
        show.write_json({"folder": str(place.root), "limit": limit, "kinds": kinds}, json)
        if str(json) == "-":
            return
    columns = (of_words("kind"), Column("entries"), Column("size"), Column("unused for days, at most", 1))
    show.table(f"{place.root}, limit {show.byte_count(limit)}", columns, [*rows, total])


@app.command()
def prune(
    limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What may stay, as 500M; OPWELD_CACHE_LIMIT where not given.")
    ] = None,
    days: Annotated[
        float | None, typer.Option(metavar="N", min=0, help="Remove what nobody used for so long, too.")
    ] = None,
) -> None:
    """Remove the least recently used entries. What was used within the last ten minutes stays."""
    bytes_left = Environment.read().cache_limit if limit is None else byte_count("--limit", limit)
    removed = Cache.open().prune(bytes_left, None if days is None else days * _DAY_S)
    show.text(f"removed {len(removed)} entries, {show.byte_count(sum(entry.bytes for entry in removed))}")


@app.command()
def clear() -> None:
    """Remove all entries, and what the C compiler keeps. Models that run, or are being compiled, are not disturbed."""
    place = Cache.open()
    try:
        place.clear()
    except OSError as error:
        raise OptionError(f"{place.root} cannot be cleared: {error.strerror}") from error
    show.text(f"{place.root} is empty")


def _bytes(entries: list[Entry], kind: str) -> int:
    return sum(entry.bytes for entry in entries if entry.kind == kind)


def _row(title: str, entries: list[Entry]) -> tuple[str, str, str, str]:
    size = show.byte_count(sum(entry.bytes for entry in entries))
    oldest = min((entry.used for entry in entries), default=None)
    return title, str(len(entries)), size, "-" if oldest is None else f"{(time.time() - oldest) / _DAY_S:.1f}"
