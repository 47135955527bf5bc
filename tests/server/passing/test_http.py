import pytest

from tests.server.passing.outside import PORT
from tests.server.passing.recorder import Recorded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]


async def test_a_request_reaches_the_port_that_its_host_names(outside, sandbox_id):
    async with outside.at(sandbox_id, PORT, **{"X-API-Key": outside.key}) as caller:
        answer = await caller.get("/a%20b//c?q=%2F&&x", headers={"X-Mine": "1"})
    assert answer.status_code == 200, answer.text
    got = Recorded.of(answer.text)
    assert (got.method, got.target) == ("GET", "/a%20b//c?q=%2F&&x")
    assert got.header("X-Mine") == "1"
    assert got.header("Host") == outside.host_of(sandbox_id, PORT)
    assert outside.key not in str(got)
