from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


class UnknownRevision(Exception):
    """No schema of an older server is called that."""


def alembic_config() -> Config:
    """Point alembic at the migrations of this installation."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    return config


async def find_revision(session: AsyncSession) -> str | None:
    revision: str | None = await session.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def is_current(revision: str | None) -> bool:
    """Tell whether the schema is what this server needs; a newer server's is taken to be."""
    return revision not in _older_revisions()


@cache
def _older_revisions() -> frozenset[str | None]:
    script = ScriptDirectory.from_config(alembic_config())
    known = {revision.revision for revision in script.walk_revisions()}
    return frozenset({None, *known} - set(script.get_heads()))


def migrations_directory() -> Path:
    inside = Path(__file__).parent / "migrations"  # a wheel brings them along
    return inside if inside.exists() else Path(__file__).parents[3] / "migrations"


async def upgrade(engine: AsyncEngine, revision: str = "head") -> None:
    """Bring the schema up to date; of several that start at once, one does it and the others wait."""
    async with engine.connect() as connection:
        await connection.run_sync(_upgrade, revision)


async def downgrade(engine: AsyncEngine, revision: str) -> None:
    """Take the schema back to what an older server knows, without what only newer ones keep."""
    if revision not in _older_revisions():
        raise UnknownRevision(revision)
    async with engine.connect() as connection:
        await connection.run_sync(_downgrade, revision)


def _upgrade(connection: Connection, revision: str) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _downgrade(connection: Connection, revision: str) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.downgrade(config, revision)
