"""Requests to Browserbase: what counts as ours, as gone, as busy and as refused."""

from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendBusy, BackendRefused, BackendUnavailable
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.browserbase import BrowserbaseBackend
from sandbox_server.providers.protocol.errors import (
    AnswerLost,
    CallNotSupported,
    LacksCapability,
    MetadataNotKept,
    SandboxGone,
)
from sandbox_server.providers.protocol.provider import NewSandbox
from tests.server.providers.browserbase.conftest import settings_of
from tests.server.support.fault_proxy import answer_with, lose_answer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

CREATE = "POST /browserbase/v1/sessions"
READ = "GET /browserbase/v1/sessions/"
LIST = "GET /browserbase/v1/sessions?"
GATEWAY = answer_with(404, "<html>404 page not found</html>", Content_Type="text/html")


def wanted(**fields):
    asked = {"timeout": timedelta(hours=1), "lifetime": timedelta(minutes=10), **fields}
    return NewSandbox(sandbox_id=new_id(), tenant_id=new_id(), template="browser", **asked)


async def test_lifecycle__a_session_has_our_labels_and_timeout_until_it_is_released(
    backend, account, installation_id
):
    new = wanted()
    access = await backend.create(new)
    session = await account.session_of(new.sandbox_id)
    assert session["id"] == access.provider_id
    assert session["keepAlive"]
    assert session["userMetadata"] == {
        "sandbox_server_installation": installation_id,
        "sandbox_server_sandbox": new.sandbox_id,
        "sandbox_server_tenant": new.tenant_id,
    }
    [found] = await backend.find(new.sandbox_id)
    assert found == await backend.info(access.provider_id)
    assert (found.sandbox_id, found.tenant_id) == (new.sandbox_id, new.tenant_id)
    assert found.ends_at - found.started_at == timedelta(minutes=10)
    again = await backend.connect(access.provider_id, timeout=timedelta(hours=1))
    assert again.provider_id == access.provider_id
    assert "cdp_url" not in repr(access)
    for _ in range(2):
        await backend.kill(access.provider_id)
    assert await backend.list_all() == []
    for ended in (
        backend.info(access.provider_id),
        backend.connect(access.provider_id, timeout=timedelta(1)),
    ):
        with pytest.raises(SandboxGone):
            await ended


async def test_list__sessions_without_our_labels_are_neither_listed_nor_found(
    backend, account, provider
):
    foreign = await account.ask("POST", "/sessions", json={"userMetadata": {"team": "other"}})
    other = BrowserbaseBackend(
        settings_of(provider.url, account.outside.key).endpoint(), installation_id=new_id()
    )
    theirs = await other.create(new := wanted())
    assert await backend.list_all() == []
    assert await backend.find(new.sandbox_id) == []
    with pytest.raises(SandboxGone):
        await backend.info(theirs.provider_id)
    with pytest.raises(MetadataNotKept):
        await backend.info(foreign["id"])
    for session_id in (foreign["id"], theirs.provider_id):
        assert (await account.ask("GET", f"/sessions/{session_id}"))["status"] == "RUNNING"
        await account.ask("POST", f"/sessions/{session_id}", json={"status": "REQUEST_RELEASE"})
    await other.close()


async def test_info__a_404_is_believed_only_if_the_list_lacks_the_session(backend, provider):
    access = await backend.create(wanted())
    provider.on(READ, GATEWAY)
    with pytest.raises(CallNotSupported):
        await backend.info(access.provider_id)
    provider.on(READ, GATEWAY)
    provider.on(LIST, GATEWAY)
    with pytest.raises(BackendUnavailable):  # a gateway that is being set up
        await backend.info(access.provider_id)
    provider.on(f"POST /browserbase/v1/sessions/{access.provider_id}", GATEWAY)
    with pytest.raises(CallNotSupported):
        await backend.kill(access.provider_id)
    assert (await backend.info(access.provider_id)).id == access.provider_id
    await backend.kill(access.provider_id)
    with pytest.raises(SandboxGone):
        await backend.info("0190f0c0-0000-7000-8000-000000000000")


async def test_create__a_session_whose_answer_was_lost_is_found_by_its_labels(backend, provider):
    provider.on(CREATE, lose_answer)
    new = wanted()
    with pytest.raises(AnswerLost):
        await backend.create(new)
    [found] = await backend.find(new.sandbox_id)
    await backend.kill(found.id)


async def test_create__a_provider_that_drops_labels_is_refused_and_the_session_released(
    backend, provider
):
    body = '{"id": "s1", "status": "RUNNING", "userMetadata": {}, "connectUrl": "ws://a/b"}'
    provider.on(CREATE, answer_with(201, body, Content_Type="application/json"))
    provider.on(f"{CREATE}/s1", answer_with(200, body, Content_Type="application/json"))
    with pytest.raises(MetadataNotKept):
        await backend.create(wanted())
    assert await provider.has_seen(f"{CREATE}/s1", times=1)


async def test_limits__429_is_busy_with_its_time_and_other_answers_are_refusals(
    backend, account, provider
):
    provider.on(CREATE, answer_with(429, '{"message": "too many"}', Retry_After="7"))
    with pytest.raises(BackendBusy, match="too many") as busy:
        await backend.create(wanted())
    assert busy.value.retry_after == timedelta(seconds=7)
    key = account.outside.key
    provider.on(CREATE, answer_with(402, f'{{"message": "pay for {key}"}}'))
    with pytest.raises(BackendRefused, match="answered 402: pay for …") as refused:
        await backend.create(wanted())
    assert key not in str(refused.value)
    provider.on(CREATE, answer_with(404, "{}"))
    with pytest.raises(CallNotSupported):
        await backend.create(wanted())


async def test_capabilities__what_a_browser_lacks_is_refused_by_name(backend):
    access = await backend.create(wanted())
    for capability, call in {
        "commands": backend.inside,
        "files": backend.files,
        "ports": lambda access: backend.port_address(access, 80),
    }.items():
        with pytest.raises(LacksCapability, match=f"without the capability `{capability}`"):
            call(access)
    for capability, ask in {"pause": backend.pause, "snapshots": backend.snapshot}.items():
        with pytest.raises(LacksCapability, match=f"without the capability `{capability}`"):
            await ask(access.provider_id)
    await backend.kill(access.provider_id)
