"""Downloads and uploads of sessions, with Browserbase's own client."""

import io
import re
import zipfile

import browserbase
import pytest
from sqlalchemy import func, update

from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.computers.browsers import downloads_directory
from tests.engine.polling import until
from tests.server.support.full_server import inside

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("base_template"),
]


@pytest.fixture
def sandbox_of(outside):
    async def sandbox_of(session_id):
        async with outside.components.sessions.begin() as session:
            mine = update(BrowserSession).where(BrowserSession.id == session_id)
            await session.execute(mine.values(driven_at=func.clock_timestamp()))
            row = await session.get_one(BrowserSession, session_id)
        return await inside(outside, row.sandbox_id)

    return sandbox_of


async def archive_of(bb, session_id):
    content = await (await bb.sessions.downloads.list(session_id)).read()
    archive = zipfile.ZipFile(io.BytesIO(content))
    return {name: archive.read(name) for name in archive.namelist()}


async def test_downloads__are_a_zip_archive_that_outlives_the_session(bb, outside, sandbox_of):
    made = await bb.sessions.create()
    assert await archive_of(bb, made.id) == {}
    sandbox, directory = await sandbox_of(made.id), downloads_directory(made.id)
    await sandbox.files.write(f"{directory}/report.tar.gz", b"all of it")
    await sandbox.files.write(f"{directory}/large.bin.crdownload", b"half of it")
    [(name, content)] = (await archive_of(bb, made.id)).items()
    assert re.fullmatch(r"report\.tar-[0-9]{13}\.gz", name)
    assert content == b"all of it"

    await bb.sessions.update(made.id, status="REQUEST_RELEASE")

    async def is_finished():
        async with outside.components.sessions() as session:
            return (await session.get_one(BrowserSession, made.id)).finished_at is not None

    await until(is_finished, timeout=60)
    assert await archive_of(bb, made.id) == {name: content}


async def test_uploads__appear_where_pages_find_them(bb, sandbox_of):
    made = await bb.sessions.create()
    await bb.sessions.uploads.create(made.id, file=("../a b.txt", b"content"))
    sandbox = await sandbox_of(made.id)
    assert await sandbox.files.read("/tmp/.uploads/a b.txt") == "content"
    await bb.sessions.update(made.id, status="REQUEST_RELEASE")
    with pytest.raises(browserbase.APIStatusError) as refused:
        await bb.sessions.uploads.create(made.id, file=("late.txt", b"content"))
    assert refused.value.status_code == 410
