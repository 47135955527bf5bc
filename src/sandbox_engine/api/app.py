from importlib.metadata import version

from fastapi import FastAPI

from sandbox_engine.api import errors, observation, sandboxes, unimplemented
from sandbox_engine.engine import Engine
from sandbox_engine.metrics import Sampler


def build_api(engine: Engine, sampler: Sampler, *, api_key: str, domain: str) -> FastAPI:
    """E2B's control plane, as far as the engine has it."""
    # The interactive pages would load their scripts from elsewhere.
    app = FastAPI(
        title="sandbox-engine", version=version("sandbox-server"), docs_url=None, redoc_url=None
    )
    app.state.engine = engine
    app.state.sampler = sampler
    app.state.api_key = api_key
    app.state.domain = domain
    errors.install(app)

    @app.get("/health", tags=["health"])
    async def health() -> dict[str, str]:
        """Tell that the engine is up."""
        return {"status": "ok"}

    app.include_router(observation.router)
    app.include_router(sandboxes.router)
    app.include_router(unimplemented.router)
    return app
