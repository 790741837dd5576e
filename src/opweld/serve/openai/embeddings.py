"""POST /v1/embeddings and /v1/rerank."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opweld.serve.limits import Limits
from opweld.serve.openai.asked import embedder_of, model_of
from opweld.serve.openai.fields import EmbeddingBody, RerankBody
from opweld.serve.openai.metrics import TokenMetrics
from opweld.serve.openai.models import Models, Served
from opweld.serve.openai.prompts import tokenized, tokens_of
from opweld.serve.openai.protocols import Embedder, Reranker
from opweld.serve.openai.sampling import check_room
from opweld.serve.refusal import Refusal
from opweld.serve.visits import Visit

_MOST = 2048
"""Texts of a request, as OpenAI has it."""


class Embeddings:
    """Makes vectors of texts, and compares texts by them."""

    def __init__(self, models: Models, limits: Limits, metrics: TokenMetrics) -> None:
        self._models, self._limits, self._metrics = models, limits, metrics

    async def create(self, body: EmbeddingBody, request: Request) -> Response:
        """A vector for each text; shortened ones have length 1 again."""
        visit: Visit = request.state.visit
        model = model_of(self._models, body.model, visit)
        embedder = embedder_of(model)
        if body.dimensions is not None and body.dimensions > embedder.dimensions:
            raise Refusal(
                400,
                f"Invalid 'dimensions': this model's vectors have {embedder.dimensions}, "
                f"but {body.dimensions} were asked for.",
                param="dimensions",
                code="integer_above_max_value",
            )
        texts = await tokens_of(body.input, model.tokenizer, "input", embedder.shortened if body.truncate else None)
        vectors = await self._vectors(model, embedder, texts, "input", visit)
        if body.dimensions is not None and body.dimensions < embedder.dimensions:
            vectors = _of_length_one(vectors[:, : body.dimensions])
        data = [
            {"object": "embedding", "index": index, "embedding": _written(vector, body.encoding_format == "base64")}
            for index, vector in enumerate(vectors)
        ]
        return JSONResponse({"object": "list", "data": data, "model": model.name, "usage": _usage(visit)})

    async def rerank(self, body: RerankBody, request: Request) -> Response:
        """Documents by the score that the model gives each beside the query, or by the cosine of their vectors, the
        best first."""
        visit: Visit = request.state.visit
        model = model_of(self._models, body.model, visit)
        documents = [one if isinstance(one, str) else one.text for one in body.documents]
        if model.reranker is None:
            embedder = embedder_of(model)
            shortened = embedder.shortened if body.truncate else None
            texts = await tokens_of([body.query, *documents], model.tokenizer, "documents", shortened)
            vectors = _of_length_one(await self._vectors(model, embedder, texts, "documents", visit))
            scores = vectors[1:] @ vectors[0]
        else:
            scores = await self._scores(model, model.reranker, body, documents, visit)
        order = np.argsort(-scores, kind="stable")[: body.top_n]
        results: list[dict[str, Any]] = []
        for index in order.tolist():
            result: dict[str, Any] = {"index": index, "relevance_score": float(scores[index])}
            if body.return_documents:
                result["document"] = {"text": documents[index]}
            results.append(result)
        identity = f"rerank-{visit.id.removeprefix('req_')}"
        return JSONResponse({"id": identity, "model": model.name, "results": results, "usage": _usage(visit)})

    async def _vectors(
        self, model: Served, embedder: Embedder, texts: Sequence[Sequence[int]], param: str, visit: Visit
    ) -> NDArray[np.float32]:
        self._check(model, texts, param, visit)
        async with model.embedding:
            return await asyncio.to_thread(embedder.embed, texts)

    async def _scores(
        self, model: Served, reranker: Reranker[Any], body: RerankBody, documents: Sequence[str], visit: Visit
    ) -> NDArray[np.float32]:
        query, truncate = body.query, bool(body.truncate)
        size = sum(map(len, documents)) + len(query) * len(documents)
        pairs = await tokenized(size, lambda: [reranker.pair(query, text, truncate) for text in documents], "documents")
        self._check(model, [pair.tokens for pair in pairs], "documents", visit)
        async with model.embedding:
            return await asyncio.to_thread(reranker.score, pairs)

    def _check(self, model: Served, texts: Sequence[Sequence[int]], param: str, visit: Visit) -> None:
        """Refuses too many texts, and those that are too long; counts the tokens of the others."""
        if len(texts) > _MOST:
            raise Refusal(
                400,
                f"Invalid '{param}': array too long. Expected {_MOST} texts at most, but got {len(texts)} instead.",
                param=param,
                code="array_above_max_length",
            )
        for text in texts:
            check_room(model, len(text), None, self._limits.prompt, param, answered=False)
        visit.prompt_tokens = sum(map(len, texts))
        self._metrics.embedded(model.name, visit.prompt_tokens)


def _of_length_one(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def _written(vector: NDArray[np.float32], as_base64: bool) -> str | list[float]:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector.tolist()


def _usage(visit: Visit) -> dict[str, int]:
    return {"prompt_tokens": visit.prompt_tokens, "total_tokens": visit.prompt_tokens}
