"""The process that keeps one service for the workers of a test run, until the run ends."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from sandbox_server.db.embedded import EmbeddedPostgres
from sandbox_server.db.schema_migrations import upgrade
from sandbox_server.db.session import create_engine
from tests.engine.engine_process import running_engine
from tests.run_services import Said, held, tell
from tests.server.forges.support.github_emulator import running_emulators
from tests.server.support.databases import SETTINGS, SYSTEM_15, make_template
from tests.server.support.scratch_directory import scratch_directory


@contextmanager
def _engine() -> Iterator[Said]:
    with running_engine() as engine:
        yield {"state_dir": str(engine.state_dir), "url": engine.url, "pid": str(engine.pid)}


@contextmanager
def _postgres(programs: Path | None) -> Iterator[Said]:
    with scratch_directory() as directory:
        postgres = EmbeddedPostgres(directory / "postgres", programs=programs, settings=SETTINGS)
        url = postgres.start()
        asyncio.run(make_template(url))
        yield {"url": url}


@contextmanager
def _cluster() -> Iterator[Said]:
    """Make the directory of a PostgreSQL that has been migrated and stopped, for servers to copy."""
    with scratch_directory() as directory:
        postgres = EmbeddedPostgres(directory / "postgres")
        asyncio.run(_migrate(postgres.start()))
        postgres.stop()
        yield {"directory": str(directory / "postgres")}


async def _migrate(url: str) -> None:
    engine = create_engine(url)
    await upgrade(engine)
    await engine.dispose()


@contextmanager
def _github_emulators() -> Iterator[Said]:
    with running_emulators() as port:
        yield {"port": str(port)}


_SERVICES: dict[str, Callable[[], AbstractContextManager[Said]]] = {
    "engine": _engine,
    "postgres-bundled": partial(_postgres, None),
    "postgres-15": partial(_postgres, SYSTEM_15),
    "cluster": _cluster,
    "github-emulators": _github_emulators,
}


def main(name: str, directory: Path) -> None:
    with held(directory, name) as wait_for_end, _SERVICES[name]() as said:
        tell(directory, name, said)
        wait_for_end()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
