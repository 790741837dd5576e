"""What the page asks of its server, beside the protocols."""

from __future__ import annotations

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

import opweld
from opweld.serve.inference.model import Repository
from opweld.serve.interface import Interface
from opweld.serve.limits import Limits
from opweld.serve.metrics import Metrics
from opweld.serve.openai.models import Models
from opweld.serve.page.files import add_files
from opweld.serve.page.listing import listing
from opweld.serve.page.reports import Reports
from opweld.serve.refusal import Refusal
from opweld.serve.routes import Router

_REPORT_HEADERS = {
    # A report runs scripts of its own: as an origin of its own, which is not the server's.
    "content-security-policy": "sandbox allow-scripts",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class ReportBody(BaseModel):
    """POST /page/report."""

    name: str
    version: str = ""


def page_interface(
    repository: Repository | None, language: Models | None, reports: Reports, limits: Limits, metrics: Metrics
) -> Interface:
    """The page at /, its files under /static, which everybody may read, and what it asks for under /page."""
    router = Router()
    add_files(router)

    @router.get("/page/models", listed=False)
    async def models() -> Response:
        """All models of the server."""
        return JSONResponse({"version": opweld.__version__, "models": listing(repository, language)})

    @router.post("/page/report", listed=False)
    async def report(body: ReportBody) -> Response:
        """Where the report of a model is, once it is made."""
        if repository is None:
            raise Refusal(404, f"there is no model {body.name!r} of which reports are made")
        artifact = repository.get(body.name, body.version).artifact
        if artifact is None:
            raise Refusal(422, f"no report: {body.name} has no artifact of its own, of which one is made")
        return JSONResponse({"path": f"/reports/{await reports.token(artifact)}"})

    @router.get("/reports/{token}", listed=False)
    async def made(token: str) -> Response:
        """A report."""
        return Response(await reports.get(token), headers=_REPORT_HEADERS, media_type="text/html")

    _ = models, report, made
    return Interface("/page", router, _refuse)


def _refuse(refusal: Refusal) -> Response:
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return JSONResponse({"error": str(refusal)}, refusal.status, headers)
