from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


class UnknownRevision(Exception):
    """The schema revision is unknown."""


def alembic_config() -> Config:
    """Return the Alembic configuration with our migrations."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    return config


async def find_revision(session: AsyncSession) -> str | None:
    revision: str | None = await session.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def is_current(revision: str | None) -> bool:
    """Check that the schema is up to date; a newer schema is accepted."""
    return revision not in _older_revisions()


@cache
def _older_revisions() -> frozenset[str | None]:
    script = ScriptDirectory.from_config(alembic_config())
    known = {revision.revision for revision in script.walk_revisions()}
    return frozenset({None, *known} - set(script.get_heads()))


def migrations_directory() -> Path:
    inside = Path(__file__).parent / "migrations"  # included in the wheel
    return inside if inside.exists() else Path(__file__).parents[3] / "migrations"


async def upgrade(engine: AsyncEngine, revision: str = "head") -> None:
    """Upgrade the schema; of concurrent starts one does it and the others wait."""
    async with engine.connect() as connection:
        await connection.run_sync(_upgrade, revision)


async def downgrade(engine: AsyncEngine, revision: str) -> None:
    """Downgrade the schema for an older server; data of newer features is lost."""
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
