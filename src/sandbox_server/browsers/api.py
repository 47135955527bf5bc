from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from sandbox_client.models import (
    BrowserCreate,
    BrowserRead,
    BrowserState,
    Page,
)
from sandbox_server.browsers.service import BrowserSessions, SessionRequest
from sandbox_server.browsers.urls import BrowserLinks
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.access import Caller
from sandbox_server.domain.computers.browsers import SessionState
from sandbox_server.http.declared_errors import PLACED, may_fail_with
from sandbox_server.http.deps import BrowserIdPath, Operator, Reader, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_text
from sandbox_server.http.requests import IdempotencyDep, request_fields
from sandbox_server.http.waiting import Wait, answer_pending

router = APIRouter(route_class=JsonRoute, prefix="/v1/browsers", tags=["browsers"])

BrowserLinksDep = Annotated[BrowserLinks, depends_on(BrowserLinks)]
BrowserSessionsDep = Annotated[BrowserSessions, depends_on(BrowserSessions)]


@router.post("", status_code=201, responses={202: {"model": BrowserRead}})
@may_fail_with(*PLACED)
async def create_browser(
    body: Annotated[BrowserCreate, Body(default_factory=BrowserCreate)],
    idempotency: IdempotencyDep,
    response: Response,
    caller: Operator,
    browsers: BrowserSessionsDep,
    links: BrowserLinksDep,
    wait: Wait = 30,
) -> BrowserRead:
    """Create a browser session in a sandbox of its own. 201: the browser runs. 202: it waits for a slot or starts."""
    row = await browsers.create(
        caller,
        SessionRequest(**request_fields(body)),
        idempotency=idempotency.of(body),
        wait=timedelta(seconds=wait),
    )
    response.headers["Location"] = f"/v1/browsers/{row.id}"
    if row.state is SessionState.PENDING:
        answer_pending(response)
    return view_browser(row, caller, links)


@router.get("")
async def list_browsers(
    caller: Reader,
    browsers: BrowserSessionsDep,
    links: BrowserLinksDep,
    state: Annotated[
        list[BrowserState] | None, Query(description="Filter by states. Default: every state.")
    ] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[BrowserRead]:
    """List browser sessions, newest first, including ended ones."""
    rows = await browsers.list_page(
        caller,
        states=[SessionState(each) for each in state or ()],
        limit=limit + 1,
        before=read_text(cursor),
    )
    items = [view_browser(row, caller, links) for row in rows]
    return page_of(rows, items, limit=limit, position=lambda row: row.id)


@router.get("/{browser_id}")
async def get_browser(
    browser_id: BrowserIdPath, caller: Reader, browsers: BrowserSessionsDep, links: BrowserLinksDep
) -> BrowserRead:
    """Get the state and deadlines of a browser session."""
    return view_browser(await browsers.get(caller, browser_id), caller, links)


@router.post("/{browser_id}/release")
async def release_browser(
    browser_id: BrowserIdPath,
    caller: Operator,
    browsers: BrowserSessionsDep,
    links: BrowserLinksDep,
) -> BrowserRead:
    """End a browser session and delete its sandbox. A session that has ended stays as it is."""
    return view_browser(await browsers.release(caller, browser_id), caller, links)


def view_browser(row: BrowserSession, caller: Caller, links: BrowserLinks) -> BrowserRead:
    urls = links.of_session(row, caller)
    return BrowserRead(
        id=row.id,
        sandbox_id=row.sandbox_id,
        state=row.state.value,
        state_reason=row.state_reason,
        keep_alive=row.keep_alive,
        timeout_s=row.timeout.total_seconds(),
        metadata={name: str(value) for name, value in row.labels.items()},
        created_at=row.created_at,
        started_at=row.started_at,
        connect_by=row.connect_by,
        expires_at=row.expires_at,
        ended_at=row.ended_at,
        cdp_url=None if urls is None else urls.cdp_url,
        webdriver_url=None if urls is None else urls.webdriver_url,
        live_url=None if urls is None else urls.live_url,
    )
