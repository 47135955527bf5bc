import asyncio
import os

from alembic import context
from sqlalchemy import Connection, text

from sandbox_server.db.models import METADATA
from sandbox_server.db.session import create_engine

# Any number that only this server's migrations use.
LOCK = 0x5A4DB0C5


def migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=METADATA)
    with context.begin_transaction():
        # Before the version is read, so that a waiting start sees the upgraded schema.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
        context.run_migrations()


async def connect_and_migrate() -> None:
    engine = create_engine(os.environ["DATABASE_URL"])
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


connection = context.config.attributes.get("connection")
if connection is not None:
    migrate(connection)
else:
    asyncio.run(connect_and_migrate())
