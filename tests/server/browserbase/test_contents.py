"""Contexts and extensions, with Browserbase's own client. Those in a real browser are tested on the template `browser`."""

import asyncio
import io
import zipfile
from datetime import timedelta

import browserbase
import pytest
from sqlalchemy import select

from sandbox_server.browsers.contents import require_extension
from sandbox_server.db.models import BrowserContext, BrowserFilePart, BrowserSession
from sandbox_server.domain.computers.browsers import SessionState, new_session_id
from sandbox_server.domain.errors import InvalidRequest
from tests.engine.polling import until

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("base_template"),
]


def zipped(*names):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return content.getvalue()


async def test_context__is_created_read_and_deleted(bb):
    made = await bb.contexts.create(name="shop")
    found = await bb.contexts.retrieve(made.id)
    assert (found.id, found.name) == (made.id, "shop")
    with pytest.deprecated_call():
        assert (await bb.contexts.update(made.id)).upload_url == made.upload_url
    await bb.contexts.delete(made.id)
    with pytest.raises(browserbase.NotFoundError, match="browser context"):
        await bb.contexts.retrieve(made.id)


async def test_extension__is_created_read_and_deleted(bb, outside):
    made = await bb.extensions.create(file=("marker.zip", zipped("marker/manifest.json")))
    assert made.file_name == "marker.zip"
    assert await bb.extensions.retrieve(made.id) == made
    own = select(BrowserFilePart).where(BrowserFilePart.owner_id == made.id)
    async with outside.components.sessions() as session:
        [part] = await session.scalars(own)
        assert b"manifest.json" not in part.content_sealed
    await bb.extensions.delete(made.id)
    with pytest.raises(browserbase.NotFoundError, match="browser extension"):
        await bb.extensions.retrieve(made.id)
    async with outside.components.sessions() as session:
        assert (await session.scalars(own)).all() == []


@pytest.mark.parametrize("fields", ["extension_id", "context"])
async def test_session__unknown_contents_are_not_found(bb, fields):
    unknown = new_session_id()
    settings = {"context": {"id": unknown}} if fields == "context" else {"extension_id": unknown}
    with pytest.raises(browserbase.NotFoundError, match=unknown):
        await bb.sessions.create(browser_settings=settings)


@pytest.mark.parametrize("content", [b"not a zip", zipped("a/b/manifest.json"), zipped("x.js")])
async def test_extension__what_is_none_is_refused(content):
    with pytest.raises(InvalidRequest):
        require_extension(content)


async def test_proxies__that_name_no_server_are_refused(bb):
    with pytest.raises(browserbase.BadRequestError, match="needs a `server`"):
        await bb.sessions.create(proxies=[{"type": "external", "server": ""}])


async def test_context__its_writer_ends_for_the_next_session_once_its_drivers_have_left(
    bb, outside
):
    context = await bb.contexts.create()
    sessions = outside.components.sessions
    async with outside.components.sessions.begin() as session:
        tenant_id = await session.scalar(select(BrowserContext.tenant_id))
        writer = BrowserSession(
            id=new_session_id(),
            tenant_id=tenant_id,
            key_id="k",
            sandbox_id=new_session_id(),
            state=SessionState.RUNNING,
            timeout=timedelta(hours=1),
            context_id=context.id,
            context_persist=True,
        )
        session.add(writer)
    settings = {"context": {"id": context.id, "persist": True}}
    with pytest.raises(browserbase.ConflictError):
        await bb.sessions.create(browser_settings=settings)
    async with sessions.begin() as session:
        row = await session.get_one(BrowserSession, writer.id)
        row.left_at = row.updated_at

    async def is_stored():
        async with sessions() as session:
            return (await session.get_one(BrowserSession, writer.id)).finished_at is not None

    # Sandboxes of the base template have no browser that could start with the context.
    create = asyncio.create_task(bb.sessions.create(browser_settings=settings))
    await until(is_stored, timeout=60)
    create.cancel()
    async with sessions() as session:
        row = await session.get_one(BrowserSession, writer.id)
    assert row.state is SessionState.COMPLETED
    assert "another session writes" in str(row.state_reason)
