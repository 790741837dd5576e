from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.serve.open_inference.running import Running, serving


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server with the usual limits, without keys, that takes shared memory."""
    with serving() as running:
        yield running
