"""OpenAI's API as an interface of the server."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opweld.serve.interface import Interface
from opweld.serve.limits import Limits
from opweld.serve.metrics import Metrics
from opweld.serve.openai.asked import model_of
from opweld.serve.openai.chat import Chat
from opweld.serve.openai.completions import Completions
from opweld.serve.openai.conversation import Conversations
from opweld.serve.openai.embeddings import Embeddings
from opweld.serve.openai.errors import broken, faults, refuse
from opweld.serve.openai.metrics import TokenMetrics
from opweld.serve.openai.models import Models, Served
from opweld.serve.openai.responses import Responses
from opweld.serve.routes import Router


def openai_interface(models: Models, limits: Limits, metrics: Metrics) -> Interface:
    """Chat, responses, completions, embeddings and models, under /v1."""
    router = Router(prefix="/v1")
    listing = _Listing(models)
    tokens = TokenMetrics(models, metrics.registry)
    embeddings = Embeddings(models, limits, tokens)
    conversations = Conversations(models, limits, tokens)
    router.add("/chat/completions", Chat(conversations).create, ["POST"])
    router.add("/responses", Responses(conversations).create, ["POST"])
    router.add("/completions", Completions(models, limits, tokens).create, ["POST"])
    router.add("/embeddings", embeddings.create, ["POST"])
    router.add("/rerank", embeddings.rerank, ["POST"])
    router.add("/models", listing.all)
    router.add("/models/{name:path}", listing.one)
    return Interface("/v1", router, refuse, faults, broken)


class _Listing:
    """GET /v1/models."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def all(self) -> Response:
        """All models."""
        return JSONResponse({"object": "list", "data": [_told(model) for model in self._models]})

    async def one(self, name: str, request: Request) -> Response:
        """One model."""
        return JSONResponse(_told(model_of(self._models, name, request.state.visit)))


def _told(model: Served) -> dict[str, Any]:
    # max_model_len is vLLM's word; benchmarks and agents read it.
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "opweld",
        "max_model_len": model.context,
    }
