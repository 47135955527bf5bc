import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


@pytest.mark.parametrize("authorization", [None, "", "Bearer wrong", "Basic {token}", "{token}"])
async def test_agent_server__connections_need_the_token(agent_server, authorization):
    headers = {}
    if authorization is not None:
        headers["Authorization"] = authorization.format(token=agent_server.token)
    with pytest.raises(InvalidStatus) as refused:
        await connect(
            f"ws://127.0.0.1:{agent_server.port}/", additional_headers=headers, proxy=None
        )
    assert refused.value.response.status_code == 401


async def test_agent_server__a_replaced_token_takes_effect_at_once(agent_server):
    old = agent_server.token
    agent_server.token = "another"
    agent_server.set()
    async with agent_server.client():
        pass
    agent_server.token = old
    with pytest.raises(InvalidStatus):
        async with agent_server.client():
            pass
    agent_server.set()


async def test_agent_server__health_needs_no_token(agent_server):
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{agent_server.port}/health")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == {"status": "ok", "agents": ["claude"], "running": 0}
