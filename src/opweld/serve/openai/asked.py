"""Which model a request is for, and whether it can do what is asked."""

from __future__ import annotations

import opweld
from opweld.serve.openai.models import Models, Served
from opweld.serve.openai.protocols import Embedder, Engine
from opweld.serve.refusal import Refusal
from opweld.serve.visits import Visit

FINGERPRINT = f"opweld-{opweld.__version__}"
"""What answers of the same request and seed depend on beside the model."""


def model_of(models: Models, name: str, visit: Visit) -> Served:
    """The model of this name."""
    if (model := models.get(name)) is None:
        raise Refusal(
            404,
            f"The model `{name}` does not exist or you do not have access to it.",
            param="model",
            code="model_not_found",
        )
    visit.model = model.name
    return model


def engine_of(model: Served) -> Engine:
    """What continues prompts with it."""
    if model.engine is None:
        served = "v1/rerank" if model.embedder is None else "v1/embeddings and v1/rerank"
        raise Refusal(404, f"The model `{model.name}` writes no text. It serves {served}.", param="model")
    return model.engine


def embedder_of(model: Served) -> Embedder:
    """What makes vectors with it."""
    if model.embedder is None:
        raise Refusal(403, "You are not allowed to generate embeddings from this model", param="model")
    return model.embedder


def check_answers(asked: int, most: int, field: str) -> None:
    """Refuses more answers than a request may ask for."""
    if asked > most:
        raise Refusal(
            400,
            f"Invalid '{field}': integer above maximum value. This server gives {most} answers to a request at most, "
            f"but {asked} were asked for.",
            param=field,
            code="integer_above_max_value",
        )
