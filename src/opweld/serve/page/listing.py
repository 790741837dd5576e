"""The models of a server, as the page lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opweld.errors import OpweldError
from opweld.interface import symbol_name
from opweld.serve.inference.model import Entry, Repository, TensorModel, TensorSpec
from opweld.serve.openai.models import Models, Served


def listing(repository: Repository | None, language: Models | None) -> list[dict[str, Any]]:
    """An object of JSON types for each version of a model of tensors, and for each language model."""
    tensors = [] if repository is None else [_tensors(repository, entry) for entry in repository.index()]
    return [*tensors, *(_language(model) for model in language or ())]


def _tensors(repository: Repository, entry: Entry) -> dict[str, Any]:
    told = {
        "kind": "tensors",
        "name": entry.name,
        "version": entry.version,
        "state": entry.state,
        "reason": entry.reason,
    }
    if entry.state != "READY":
        return told
    try:
        model = repository.get(entry.name, entry.version)
    except OpweldError:  # unloaded since it was listed
        return told
    return {**told, **_signature(model)}


def _signature(model: TensorModel) -> dict[str, Any]:
    return {
        "inputs": _specs(model.inputs),
        "outputs": _specs(model.outputs),
        "max_batch": model.max_batch,
        "report": model.artifact is not None,
    }


def _specs(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": spec.name,
            "dtype": "string" if spec.dtype == object else spec.dtype.name,
            "shape": None if spec.shape is None else _dims(spec.name, spec.shape),
        }
        for spec in specs
    ]


def _dims(name: str, shape: Sequence[int | str]) -> list[int | str]:
    """Sizes, and names of the others; those that have none are named as options of opweld name them."""
    return [dim if isinstance(dim, int) and dim >= 0 else symbol_name(name, n, dim) for n, dim in enumerate(shape)]


def _language(model: Served) -> dict[str, Any]:
    failed = model.engine is not None and model.engine.closing
    return {
        "kind": "chat" if model.engine is not None else "embed" if model.embedder is not None else "rank",
        "name": model.name,
        "version": "",
        "state": "UNAVAILABLE" if failed else "READY",
        "reason": "its engine has failed; only a new process mends it" if failed else "",
        "context": model.context,
    }
