from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.unit.serve.fakes import Running, serving


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server with the usual limits and no keys."""
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client:
        yield client
