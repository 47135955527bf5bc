"""The OpenAPI document and Swagger UI, served without external resources."""

import json
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
# Only our own scripts, styles and addresses: text injected into the description cannot run.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_KEPT = {"Cache-Control": "public, max-age=3600"}
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sandbox-server API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="docs/favicon-32x32.png">
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, filter: true, validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
"""


@router.get("/openapi.json")
async def show_description(request: Request) -> Response:
    return Response(_description(request), media_type="application/json")


@router.get("/docs")
async def show_docs() -> Response:
    return Response(_PAGE, media_type="text/html", headers={"Content-Security-Policy": _POLICY})


@router.get("/docs/start.js")
async def show_start() -> Response:
    return Response(_START, media_type="text/javascript", headers=_KEPT)


@router.get("/docs/{name}")
async def show_asset(name: str) -> Response:
    if name not in _ASSETS:
        raise HTTPException(404)
    content = files("fastapi_swagger.resources").joinpath(name).read_bytes()
    return Response(content, media_type=_ASSETS[name], headers=_KEPT)


def _description(request: Request) -> bytes:
    """Serialize the document once per app."""
    state = request.app.state
    if not hasattr(state, "description"):
        state.description = json.dumps(request.app.openapi(), separators=(",", ":")).encode()
    return bytes(state.description)
