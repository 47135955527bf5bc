from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


def alembic_config() -> Config:
    """Point alembic at the migrations of this installation."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    return config


async def is_current(session: AsyncSession) -> bool:
    """Tell whether the schema is what this server needs; a newer server's is taken to be."""
    found = await session.scalar(text("SELECT version_num FROM alembic_version"))
    return found not in _older_revisions()


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


def _upgrade(connection: Connection, revision: str) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
