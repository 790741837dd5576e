"""One HTML file that shows a compilation: the document as data, the page's own code, and the libraries that draw.

Nothing of it comes from a network, and its policy forbids that any of it asks for one. Names in a model are untrusted:
the document is embedded as JSON that cannot end its element, and the page's code makes text of it, never markup."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

MODULES = (
    "dom",
    "format",
    "state",
    "model",
    "layout",
    "graph",
    "graphs",
    "highlight",
    "decisions",
    "charts",
    "panel",
    "summary",
    "roofline",
    "timeline",
    "memory",
    "kernels",
    "ledger",
    "numerics",
    "search",
    "main",
)
"""The page's own code, in order: one scope, in which each file uses those before it as it loads."""

_PARTS = files("opweld.report")
_ENDING = "</script"


def page(document: Mapping[str, Any]) -> str:
    """The page of a document: what `document.Document` makes.

    Raises ValueError where the document has numbers that JSON has not."""
    own = "\n".join(_read(f"static/{name}.js") for name in MODULES)
    scripts = [_read("vendor/echarts.min.js"), f'"use strict";\n(() => {{\n{own}\n}})();\n']
    worker = {"viz": _read("vendor/viz-global.js"), "layout-worker": _read("static/layout-worker.js")}
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(str(document['title']))} · opweld</title>",
        f"<style>\n{_read('static/page.css')}</style>",
        "</head>",
        "<body>",
        f'<script type="application/json" id="document">{embedded(document)}</script>',
        *(f'<script type="text/plain" id="{name}">{text}</script>' for name, text in worker.items()),
        *(f"<script>{text}</script>" for text in scripts),
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def embedded(document: Mapping[str, Any]) -> str:
    """The document as JSON that stays data inside of a script element, whatever its texts are."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))  # ASCII: what is not is escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: list[str]) -> str:
    """What the page may do: run the scripts that it was made with, and nothing that would leave the file."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed} blob: 'wasm-unsafe-eval'; worker-src blob:; "
        "style-src 'unsafe-inline'; img-src data:"
    )


def _read(path: str) -> str:
    text = _PARTS.joinpath(*path.split("/")).read_text(encoding="utf-8")
    if path.endswith(".js") and _ENDING in text.lower():
        raise ValueError(f"{path} holds {_ENDING}, which would end its element")
    return text
