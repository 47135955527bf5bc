import itertools

import pytest
import pytest_asyncio

_numbers = itertools.count()


@pytest.fixture
def directory(tool_server):
    """Give the test a directory of its own in the workspace."""
    made = tool_server.workspace / f"test-{next(_numbers)}"
    made.mkdir()
    return made


@pytest_asyncio.fixture
async def text_of(tools):
    """Call a tool whose answer is text."""

    async def call(tool, **arguments):
        result = await tools.call_tool(
            tool, {name: _plain(given) for name, given in arguments.items()}
        )
        assert result.structured_content is None, "agents would be shown it twice"
        return "\n".join(part.text for part in result.content)

    return call


@pytest_asyncio.fixture
async def refusal_of(tools):
    """Call a tool that has to refuse it, and give what it says."""

    async def call(tool, **arguments):
        given = {name: _plain(value) for name, value in arguments.items()}
        result = await tools.call_tool(tool, given, raise_on_error=False)
        assert result.is_error, result.content
        said = result.content[0].text
        assert "Traceback" not in said
        return said

    return call


def _plain(value):
    return value if isinstance(value, (str, int, bool, list)) else str(value)
