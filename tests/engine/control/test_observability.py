import contextlib
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from e2b import AsyncSandbox

from tests.engine.engine_process import running_engine
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@contextlib.asynccontextmanager
async def api(engine):
    headers = {"X-API-Key": engine.api_key}
    async with httpx.AsyncClient(base_url=engine.url, headers=headers, timeout=30) as client:
        yield client


async def logs(engine, sandbox, **query):
    async with api(engine) as client:
        answer = await client.get(f"/v2/sandboxes/{sandbox.sandbox_id}/logs", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["logs"]


async def messages(engine, sandbox, **query):
    return [entry["message"] for entry in await logs(engine, sandbox, **query)]


@pytest.fixture
async def storied(options):
    """Create a sandbox to which a few things have happened."""
    sandbox = await AsyncSandbox.create(timeout=120, **options)
    await sandbox.commands.run("true")
    await sandbox.pause()
    yield sandbox
    await sandbox.kill()


async def test_observability__log_lists_the_events_of_a_sandbox(engine, storied):
    assert await messages(engine, storied) == [
        "created",
        "command started",
        "command ended",
        "paused by request",
    ]
    started, ended = (await logs(engine, storied))[1:3]
    assert started["level"] == "info"
    assert started["fields"]["command"] == "/bin/bash -l -c true"
    assert started["fields"]["user"] == "user"
    assert ended["fields"] == started["fields"] | {"status": "exit status 0"}


async def test_observability__log_is_read_forwards_backwards_and_searched(engine, storied):
    newest = await logs(engine, storied, direction="backward", limit=2)
    assert [entry["message"] for entry in newest] == ["paused by request", "command ended"]
    assert await messages(engine, storied, search="command s") == ["command started"]
    assert await messages(engine, storied, level="error") == []
    paused_at = datetime.fromisoformat(newest[0]["timestamp"])
    after = int((paused_at + timedelta(seconds=1)).timestamp() * 1000)
    assert await messages(engine, storied, cursor=after) == []
    assert len(await messages(engine, storied, cursor=after, direction="backward")) == 4
    async with api(engine) as client:
        older = await client.get(f"/sandboxes/{storied.sandbox_id}/logs")
    lines = [json.loads(line["line"]) for line in older.json()["logs"]]
    assert [line["message"] for line in lines] == await messages(engine, storied)
    assert {line["level"] for line in lines} == {"info"}


async def test_observability__invalid_log_query_is_rejected(engine, sandbox):
    path = f"/v2/sandboxes/{sandbox.sandbox_id}/logs"
    async with api(engine) as client:
        for query in ("direction=sideways", "level=loud", "limit=1001", "cursor=-1"):
            assert (await client.get(f"{path}?{query}")).status_code == 400, query
        assert (await client.get("/v2/sandboxes/inobody/logs")).status_code == 404


@pytest.mark.slow  # a crash needs an engine of its own
async def test_observability__metrics_and_log_survive_restart_and_pause():
    with running_engine() as engine:
        sandbox = await AsyncSandbox.create(timeout=300, **engine.options)
        kept = engine.state_dir / "sandboxes" / sandbox.sandbox_id / "metrics"

        async def is_measured() -> bool:
            return kept.exists()

        await until(is_measured, timeout=60)
        before = datetime.now(UTC)
        await engine.restart()
        first, *_ = await sandbox.get_metrics(end=before)
        assert not await sandbox.get_metrics(end=before - timedelta(hours=1))
        await sandbox.pause()
        assert (await sandbox.get_metrics(end=before))[0] == first
        assert (await messages(engine, sandbox))[0] == "created"
