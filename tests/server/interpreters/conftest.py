import pytest
import pytest_asyncio

from tests.server.interpreters.interpreter_sandbox import sandbox_with_interpreter


@pytest.fixture
async def api(outside):
    async with outside.api() as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(outside):
    async with sandbox_with_interpreter(outside) as sandbox_id:
        yield sandbox_id


@pytest.fixture
def path(sandbox_id):
    return f"/v1/sandboxes/{sandbox_id}"


@pytest.fixture
def run(api, path):
    """Run code and wait for its end."""

    async def run(code, **body):
        answer = await api.post(f"{path}/code", json={"code": code, **body})
        assert answer.status_code == 201, answer.text
        return answer.json()

    return run
