"""The database for commands: the configured one, or the embedded one, which keeps its state."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sandbox_server.db.database import require_supported
from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.session import Sessions, create_engine, create_sessions
from sandbox_server.settings import Settings
from sandbox_server.supervisor.errors import CannotServe

_FEW = 2


@contextmanager
def running_database(settings: Settings) -> Iterator[str]:
    """Run the database during the block; leave it running if it ran before."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    directory = settings.state_dir / "postgres"
    if not directory.exists():
        raise CannotServe(
            f"No database in {settings.state_dir}: start the server once, pass its "
            "--state-dir, or set DATABASE_URL."
        )
    postgres = EmbeddedPostgres(directory)
    ran_before = postgres.is_running
    url = postgres.start()
    try:
        yield url
    finally:
        if not ran_before:
            postgres.stop()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Sessions]:
    engine = create_engine(url, pool_size=_FEW)
    try:
        await require_supported(engine, url)
        yield create_sessions(engine)
    finally:
        await engine.dispose()
