import pytest
from sqlalchemy import inspect, text

from sandbox_server.db import database as opening
from sandbox_server.db.database import open_database
from sandbox_server.db.database_url import UnusablePostgres
from sandbox_server.db.models import TABLES
from sandbox_server.db.postmaster import is_running
from tests.server.support.databases import new_database


async def tables(engine):
    async with engine.connect() as connection:
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))


async def test_open_database__without_a_url_it_starts_and_stops_an_embedded_one(directory):
    state_dir = directory.parent
    async with open_database(None, state_dir=state_dir) as engine, engine.begin() as connection:
        await connection.execute(text("INSERT INTO installation (id) VALUES ('us')"))
    assert not is_running(directory / "data")
    async with open_database(None, state_dir=state_dir) as engine, engine.begin() as connection:
        assert await connection.scalar(text("SELECT id FROM installation")) == "us"


async def test_open_database__with_a_url_it_upgrades_the_schema_and_starts_none(
    server_url, tmp_path
):
    async with (
        new_database(server_url, template="template0") as url,
        open_database(url, state_dir=tmp_path) as engine,
    ):
        assert await tables(engine) == {"alembic_version", *TABLES}
    assert list(tmp_path.iterdir()) == []


async def test_open_database__an_old_postgresql_is_refused(server_url, tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "OLDEST", 99)
    async with new_database(server_url) as url:
        with pytest.raises(UnusablePostgres, match="Upgrade it to 99 or newer"):
            async with open_database(url, state_dir=tmp_path):
                pass
