from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute

from sandbox_server.api import events, health, jobs, problems, stats
from sandbox_server.api.authentication import Authentication
from sandbox_server.api.exchange import Failures, RequestIds
from sandbox_server.services import Services


def create_app(services: Services) -> FastAPI:
    """Build the API over what `services` can do."""
    app = FastAPI(
        title="sandbox-server",
        version=version("sandbox-server"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_name_of,
    )
    app.state.services = services
    problems.install(app)
    for routes in (events, health, jobs, stats):
        app.include_router(routes.router)
    # The last one added is the outermost.
    app.add_middleware(Authentication, authenticator=services.authenticator)
    app.add_middleware(Failures)
    app.add_middleware(RequestIds)
    return app


def _name_of(route: APIRoute) -> str:
    return route.name
