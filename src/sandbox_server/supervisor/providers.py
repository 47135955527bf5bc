import hashlib
import os
from pathlib import Path

from pydantic import SecretStr

from sandbox_server.providers.settings import BackendSettings
from sandbox_server.settings import Settings
from sandbox_server.supervisor.engine import LocalEngine
from sandbox_server.supervisor.engine_note import EngineAddress
from sandbox_server.supervisor.errors import CannotServe

LOCAL = "local"

_ENGINES = Path("/var/lib/sandbox-server/engines")


def needs_engine(settings: Settings) -> bool:
    """Check whether the local engine is used, because no other provider is configured."""
    return not settings.backends and settings.e2b_api_key is None


def with_agent_template(settings: Settings) -> bool:
    """Decide whether to build the default template; by default only on the own engine, where it costs nothing."""
    return needs_engine(settings) if settings.agent_template is None else settings.agent_template


def engine_directory(settings: Settings) -> Path:
    """Return the engine's directory; all its parents belong to root.

    In a user's directory, that user could redirect root's writes through symlinks.
    """
    if settings.engine_dir is not None:
        return settings.engine_dir
    if os.geteuid() == 0:
        return settings.state_dir / "engine"
    return _ENGINES / hashlib.sha256(os.fsencode(settings.state_dir)).hexdigest()[:16]


def configured_backends(
    settings: Settings, engine: EngineAddress | None
) -> tuple[BackendSettings, ...]:
    """List the providers: the configured backends, else that of the E2B variables, else the engine."""
    if settings.backends:
        return settings.backends
    if settings.e2b_api_key is not None:
        return (_of_variables(settings),)
    assert engine is not None
    return (_of_engine(engine, capacity=settings.capacity),)


def backends_from_here(settings: Settings) -> tuple[BackendSettings, ...]:
    """List the providers for other commands, which use the engine of a running server."""
    if not needs_engine(settings):
        return configured_backends(settings, None)
    directory = engine_directory(settings)
    try:
        engine = LocalEngine(directory).find_running()
    except PermissionError:
        raise CannotServe(f"The engine in {directory} belongs to root. Use sudo.") from None
    if engine is None:
        raise CannotServe(
            f"No engine is running in {directory}. Start the server, pass its --state-dir, or configure a "
            "provider in the environment."
        )
    return configured_backends(settings, engine)


def _of_variables(settings: Settings) -> BackendSettings:
    assert settings.e2b_api_key is not None
    return BackendSettings(
        name="e2b",
        api_url=settings.e2b_api_url,
        sandbox_url=settings.e2b_sandbox_url,
        domain=settings.e2b_domain,
        api_key=settings.e2b_api_key,
        capacity=settings.capacity,
    )


def _of_engine(engine: EngineAddress, *, capacity: int) -> BackendSettings:
    return BackendSettings(
        name=LOCAL,
        api_url=engine.url,
        sandbox_url=engine.url,
        domain=f"localhost:{engine.port}",
        api_key=SecretStr(engine.api_key),
        capacity=capacity,
    )
