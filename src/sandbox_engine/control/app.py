from importlib.metadata import version

from fastapi import FastAPI

from sandbox_engine.control import (
    builds,
    errors,
    observability,
    policies,
    sandboxes,
    secrets,
    snapshots,
    templates,
    unimplemented,
    uploads,
    volume_content,
    volumes,
    warm_pool,
)
from sandbox_engine.control.services import Services


def build_api(services: Services) -> FastAPI:
    """E2B's control plane, as far as the engine has it."""
    # The interactive pages would load their scripts from elsewhere.
    app = FastAPI(
        title="sandbox-engine", version=version("sandbox-server"), docs_url=None, redoc_url=None
    )
    app.state.services = services
    errors.install(app)

    @app.get("/health", tags=["health"])
    async def health() -> dict[str, str]:
        """Tell that the engine is up."""
        return {"status": "ok"}

    app.include_router(observability.router)
    app.include_router(sandboxes.router)
    app.include_router(policies.router)
    app.include_router(secrets.router)
    app.include_router(snapshots.router)
    app.include_router(templates.router)
    app.include_router(builds.router)
    app.include_router(uploads.router)
    app.include_router(warm_pool.router)
    app.include_router(volumes.router)
    app.include_router(volume_content.router)
    app.include_router(unimplemented.router)
    return app
