import pytest_asyncio

from tests.tools.interpreter.interpreter_process import started_interpreter


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def interpreter(tmp_path_factory):
    """One interpreter for all tests that leave its default contexts as they are."""
    async with started_interpreter(tmp_path_factory.mktemp("interpreter")) as interpreter:
        yield interpreter


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def _delete_contexts(interpreter):
    yield
    while interpreter.created:
        await interpreter.client.delete(f"/contexts/{interpreter.created.pop()}")
