import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text

from sandbox_server.db.models import METADATA
from sandbox_server.db.session import create_engine

# Any number will do that every starter of this server takes and nobody else does.
LOCK = 0x5A4DB0C5


def migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=METADATA)
    with context.begin_transaction():
        # Before the version is read: who waited here finds the schema as the other left it.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        context.run_migrations()


async def connect_and_migrate() -> None:
    engine = create_engine(os.environ["DATABASE_URL"])
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


given = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    asyncio.run(connect_and_migrate())
