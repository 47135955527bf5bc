from datetime import timedelta

import pytest
from playwright.async_api import async_playwright

from sandbox_server.browsers.records.connector import connect_to_browser
from sandbox_server.browsers.records.store import RecordKind, RecordStore
from sandbox_server.db.models import BrowserSession, Tenant
from sandbox_server.domain.computers.browsers import SessionState, new_session_id
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.vault import KEY_LENGTH, Vault
from tests.chromium_process import listening_chromium

HOST = [b"Host: localhost:9222"]


@pytest.fixture
async def row(sessions):
    """Have a running session, whose sandbox is of no interest."""
    tenant_id = new_id()
    row = BrowserSession(
        id=new_session_id(),
        tenant_id=tenant_id,
        key_id=new_id(),
        sandbox_id=new_id(),
        state=SessionState.RUNNING,
        timeout=timedelta(hours=1),
        settings={"logs": True, "recording": True},
    )
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name="a", max_running=9, max_queued=9))
        await session.flush()
        session.add(row)
        await session.flush()
        await session.refresh(row)
    return row


@pytest.fixture
def limits():
    """Say how many bytes are kept of each kind."""
    return dict.fromkeys(RecordKind, 2**24)


@pytest.fixture
def store(sessions, limits):
    return RecordStore(sessions, Vault([bytes(KEY_LENGTH)]), limits)


@pytest.fixture
async def chromium():
    async with listening_chromium() as chromium:
        yield chromium


@pytest.fixture
async def page(chromium):
    """Drive the browser's first page."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{chromium.port}")
        yield browser.contexts[0].pages[0]


class LocalConnector:
    """Connects to a browser of this machine."""

    def __init__(self, port):
        self._address = PortAddress(
            sandbox="a",
            port=port,
            host="127.0.0.1",
            host_port=port,
            tls=None,
            headers=[],
            authority=f"localhost:{port}",
            is_shared=False,
        )

    async def connect(self, tenant_id, sandbox_id, on_event):
        return await connect_to_browser(self._address, HOST, on_event)


@pytest.fixture
def connector(chromium):
    return LocalConnector(chromium.port)
