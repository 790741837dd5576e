"""The files of the page."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import Response

from opweld.serve.refusal import Refusal
from opweld.serve.routes import Router

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do: run its own files and ask its own server."""

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def add_files(router: Router) -> None:
    """The page at / and its files under /static. They are those of the package, which knows no model, so that nobody
    needs a key to be asked for one."""
    held = {file.name: file for file in files("opweld.serve.page").joinpath("static").iterdir() if file.is_file()}

    @router.get("/", listed=False)
    async def page() -> Response:
        """The page."""
        return _answer(held["index.html"])

    @router.get("/static/{name}", listed=False)
    async def static(name: str) -> Response:
        """A file of it. Names are looked up, and never part of a path."""
        if name not in held:
            raise Refusal(404, f"there is no file {name!r}")
        return _answer(held[name])

    _ = page, static


def _answer(file: Traversable) -> Response:
    kind = _TYPES[file.name[file.name.rindex(".") :]]
    return Response(file.read_bytes(), headers=_HEADERS, media_type=kind)
