"""Browserbase's own client, unmodified, against sessions of this server."""

from datetime import timedelta
from typing import Any, cast

import browserbase
import pytest

from sandbox_server.domain.computers.browsers import new_session_id

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("base_template"),
]


async def test_session__is_created_listed_and_released(bb):
    made = await bb.sessions.create(
        project_id="any", keep_alive=True, api_timeout=120, user_metadata={"run": {"id": "one"}}
    )
    assert (made.status, made.keep_alive) == ("RUNNING", True)
    assert made.expires_at - made.started_at == timedelta(seconds=120)
    found = await bb.sessions.retrieve(made.id)
    assert found.user_metadata == {"run": {"id": "one"}}
    query = "user_metadata['run']['id']:'one'"
    assert made.id in {each.id for each in await bb.sessions.list(status="RUNNING", q=query)}
    assert await bb.sessions.list(q="user_metadata['run']['id']:'two'") == []

    released = await bb.sessions.update(made.id, status="REQUEST_RELEASE", project_id="any")
    assert (released.status, released.ended_at is None) == ("COMPLETED", False)
    assert made.id in {each.id for each in await bb.sessions.list(status="COMPLETED")}
    with pytest.deprecated_call():
        assert await bb.sessions.recording.retrieve(made.id) == []
    assert (await bb.sessions.replays.retrieve(made.id)).page_count == 0
    assert await bb.sessions.logs.list(made.id) == []


async def test_session__a_wrong_key_is_refused(bb):
    with pytest.raises(browserbase.AuthenticationError) as refused:
        await bb.with_options(api_key="bb_live_x").sessions.list()
    assert cast("dict[str, Any]", refused.value.body)["statusCode"] == 401


async def test_session__an_unknown_one_is_not_found(bb):
    with pytest.raises(browserbase.NotFoundError, match="browser session"):
        await bb.sessions.retrieve(new_session_id())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"api_timeout": 59}, "timeout"),
        ({"proxies": True}, "no proxy of its own"),
        ({"proxies": [{"type": "browserbase"}]}, "no proxy of its own"),
        ({"region": "moon"}, "region"),
    ],
)
async def test_session__a_request_that_cannot_be_met_is_refused(bb, fields, problem):
    with pytest.raises(browserbase.BadRequestError, match=problem) as refused:
        await bb.sessions.create(**fields)
    assert set(cast("dict[str, Any]", refused.value.body)) == {
        "statusCode",
        "error",
        "message",
        "code",
        "requestId",
    }


async def test_session__allowed_domains_must_be_names(bb):
    with pytest.raises(browserbase.BadRequestError, match="is not a domain"):
        await bb.sessions.create(browser_settings={"allowed_domains": ["https://example.com"]})


async def test_project__is_the_tenant(bb):
    [project] = await bb.projects.list()
    assert await bb.projects.retrieve(project.id) == project
    usage = await bb.projects.usage(project.id)
    assert usage.proxy_bytes == 0
    with pytest.raises(browserbase.NotFoundError):
        await bb.projects.retrieve(new_session_id())


@pytest.mark.parametrize("resource", ["agents", "webhooks", "certificates", "secrets"])
async def test_resource__that_this_server_has_not_is_refused_with_a_sentence(bb, resource):
    with pytest.raises(browserbase.InternalServerError, match=f"has no {resource}") as refused:
        await getattr(bb, resource).list()
    assert refused.value.status_code == 501
