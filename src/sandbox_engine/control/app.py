from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI

from sandbox_engine.control import (
    builds,
    errors,
    observability,
    sandboxes,
    snapshots,
    templates,
    uploads,
    volumes,
    warm_pool,
)
from sandbox_engine.control.deps import check_api_key
from sandbox_engine.control.services import Services
from sandbox_engine.system.errors import NotImplementedHere

unimplemented = APIRouter(
    tags=["not implemented"], dependencies=[Depends(check_api_key)], include_in_schema=False
)

_EVERY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_PATHS = {
    "/templates": "Building an image that was pushed (a v1 build)",
    "/templates/{template_id}": "Building an image that was pushed (a v1 build)",
    "/templates/{template_id}/builds/{build_id}": "Building an image that was pushed (a v1 build)",
    "/secrets": "Storing secrets",
    "/secrets/{reference}": "Storing secrets",
}


def build_api(services: Services) -> FastAPI:
    """Build the FastAPI app of E2B's control plane."""
    # The interactive pages would load scripts from the internet.
    app = FastAPI(
        title="sandbox-engine", version=version("sandbox-server"), docs_url=None, redoc_url=None
    )
    app.state.services = services
    errors.install(app)

    @app.get("/health", tags=["health"])
    async def health() -> dict[str, str]:
        """Return 200 while the engine is running."""
        return {"status": "ok"}

    app.include_router(observability.router)
    app.include_router(sandboxes.router)
    app.include_router(snapshots.router)
    app.include_router(templates.router)
    app.include_router(builds.router)
    app.include_router(uploads.router)
    app.include_router(warm_pool.router)
    app.include_router(volumes.router)
    app.include_router(volumes.content_router)
    app.include_router(unimplemented)
    return app


def _refuse(what: str) -> None:
    async def refuse() -> None:
        raise NotImplementedHere(what)

    for path in [path for path, named in _PATHS.items() if named == what]:
        unimplemented.add_api_route(path, refuse, methods=_EVERY_METHOD)


for _what in set(_PATHS.values()):
    _refuse(_what)
