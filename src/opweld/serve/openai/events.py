"""Server-sent events of OpenAI's streams."""

from __future__ import annotations

import json
from typing import Any

from opweld.serve.openai.answers import Usage
from opweld.serve.openai.fields import StreamOptions

DONE = b"data: [DONE]\n\n"


def event(value: dict[str, Any], name: str = "") -> bytes:
    """An event that carries an object, with a name or without."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" * bool(name) + f"data: {data}\n\n").encode(errors="replace")


def usage_so_far(usage: Usage, options: StreamOptions) -> dict[str, Any]:
    """What each event says of usage: nothing, where it is not asked for; null where the last event alone tells it."""
    if not options.include_usage:
        return {}
    return {"usage": usage.told() if options.continuous_usage_stats else None}
