import socket

import pytest
import pytest_asyncio

from tests.ports import free_port


@pytest_asyncio.fixture
async def told(tool_server):
    tool_server.set(ports_url="http://{port}-abc.localhost:8100")
    yield
    tool_server.set()


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")]
)
async def test_expose_port__returns_url_and_listening(tools, told, family, address):
    port = free_port()
    asked = {"port": port}
    url = f"http://{port}-abc.localhost:8100"
    result = await tools.call_tool("expose_port", asked)
    assert result.structured_content == {"url": url, "listening": False}
    with socket.create_server((address, port), family=family):
        result = await tools.call_tool("expose_port", asked)
    assert result.structured_content == {"url": url, "listening": True}


async def test_expose_port__client_sockets_are_not_listeners(tools, told):
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), source_address=("127.0.0.1", 0)) as client,
    ):
        result = await tools.call_tool("expose_port", {"port": client.getsockname()[1]})
    assert result.structured_content["listening"] is False


async def test_expose_port__needs_a_configured_public_url(tools):
    result = await tools.call_tool("expose_port", {"port": 80}, raise_on_error=False)
    assert result.is_error
    assert "No public URL is configured" in result.content[0].text


async def test_expose_port__rejects_invalid_ports(tools):
    for port in (0, 65536):
        result = await tools.call_tool("expose_port", {"port": port}, raise_on_error=False)
        assert "Invalid arguments for expose_port. port: " in result.content[0].text
