"""One HTML file that shows a compilation: the document as data, the page's own code, and the libraries that draw.

Nothing of it comes from a network, and its policy forbids that any of it asks for one. The document and the libraries
are deflated and in base64, which the page's code undoes (static/packed.js): a fifth of the document, half of the
libraries. Names in a model are untrusted: in base64 none can end its element, and the page's code makes text of them,
never markup."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

MODULES = (
    "packed",
    "dom",
    "format",
    "state",
    "colours",
    "model",
    "layout",
    "labels",
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

PACKED = "application/vnd.opweld.deflate+base64"
"""The type of elements that hold a text as `packed` writes it; browsers take an unknown one for data."""

OPENING = "This page is opened by its script: it needs a browser of 2023 or newer, with JavaScript."

_PARTS = files("opweld.report")
_ENDING = "</script"


def page(document: Mapping[str, Any]) -> str:
    """The page of a document: what `document.Document` makes.

    Raises ValueError where the document has numbers that JSON has not."""
    own = "\n".join(_read(f"static/{name}.js") for name in MODULES)
    script = f'"use strict";\n(() => {{\n{own}\n}})();\n'
    held = {
        "document": json.dumps(document, allow_nan=False, separators=(",", ":")),
        "echarts": _read("vendor/echarts.min.js"),
        "viz": _read("vendor/viz-global.js"),
        "layout-worker": _read("static/layout-worker.js"),
    }
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(str(document['title']))} · opweld</title>",
        f"<style>\n{_read('static/page.css')}</style>",
        "</head>",
        "<body>",
        f'<p id="opening">{OPENING}</p>',
        *(f'<script type="{PACKED}" id="{name}">{packed(text)}</script>' for name, text in held.items()),
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def packed(text: str) -> str:
    """A text in UTF-8, deflated, in base64: data inside of a script element, whatever it says."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def _policy(script: str) -> str:
    """What the page may do: run the script that it was made with and what that unpacks, and nothing that would leave
    the file."""
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{allowed}' blob: 'wasm-unsafe-eval'; worker-src blob:; "
        "style-src 'unsafe-inline'; img-src data:"
    )


def _read(path: str) -> str:
    text = _PARTS.joinpath(*path.split("/")).read_text(encoding="utf-8")
    if path.endswith(".js") and _ENDING in text.lower():
        raise ValueError(f"{path} holds {_ENDING}, which would end its element")
    return text
