import base64
import io
import re

import pytest
import pytest_asyncio
from fastmcp.exceptions import ToolError
from PIL import Image

from tests.tools.desktop.desktop_process import started_desktop
from tests.tools.desktop.event_window import opened_event_window
from tests.tools.tool_server_process import started_tool_server


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def computer(tmp_path_factory):
    """Run a desktop, and a tool server whose tools use it."""
    directory = tmp_path_factory.mktemp("computer")
    async with started_desktop(directory / "desktop") as desktop:
        port = desktop.url.rpartition(":")[2]
        async with started_tool_server(directory, SANDBOX_DESKTOP_PORT=port) as server:
            server.set(token=desktop.token)
            yield desktop, server


@pytest_asyncio.fixture
async def desktop(computer):
    async with computer[0].connected() as connected:
        yield connected


@pytest_asyncio.fixture
async def tools(computer, desktop):
    async with computer[1].client(desktop.token) as client:
        yield client


def picture(result):
    [image] = [part for part in result.content if part.type == "image"]
    return Image.open(io.BytesIO(base64.b64decode(image.data)))


async def test_a_model_sees_and_uses_the_desktop(tools, desktop):
    listed = {tool.name for tool in await tools.list_tools()}
    assert {name for name in listed if name.startswith("computer_")} == {
        f"computer_{verb}"
        for verb in ("screenshot", "zoom", "click", "type", "key", "scroll", "drag", "wait")
    }
    seen = await tools.call_tool("computer_screenshot", {})
    assert picture(seen).size == (1024, 768)
    async with opened_event_window(desktop.display) as window:
        clicked = await tools.call_tool(
            "computer_click", {"x": 300, "y": 200, "button": "double", "screenshot": False}
        )
        [text] = clicked.content
        assert re.search(r"1024 by 768 pixels, the pointer at 300, 200", text.text)
        typed = await tools.call_tool("computer_type", {"text": "Grüße\n"})
        assert picture(typed).size == (1024, 768)
        quiet = {"screenshot": False}
        await tools.call_tool("computer_key", {"keys": "ctrl+s", **quiet})
        await tools.call_tool("computer_scroll", {"x": 5, "y": 5, "direction": "up", **quiet})
        drag = {"from_x": 1, "from_y": 2, "to_x": 30, "to_y": 40}
        await tools.call_tool("computer_drag", drag | quiet)
        await tools.call_tool("computer_wait", {"seconds": 0.1})
        await window.read_until(lambda printed: window.events().count("-1") == 3)
    assert window.text.startswith("Grüße\r")
    events = [event for event in window.events() if event[1:].isdigit()]
    assert events == ["+1", "-1"] * 2 + ["+4", "-4"] * 3 + ["+1", "-1"]


async def test_refusals_of_the_desktop_reach_the_model(tools, desktop):
    with pytest.raises(ToolError, match="outside of the display of 1024 by 768 pixels"):
        await tools.call_tool("computer_click", {"x": 5000, "y": 5})
    with pytest.raises(ToolError, match="There is no key named 'warp'"):
        await tools.call_tool("computer_key", {"keys": "warp"})
    await desktop.client.put("/control", json={"holder": "person"})
    with pytest.raises(ToolError, match=r"A person has control of the desktop\. Wait until"):
        await tools.call_tool("computer_type", {"text": "x"})
    assert picture(await tools.call_tool("computer_screenshot", {})).size == (1024, 768)
    await desktop.client.put("/control", json={"holder": "agent"})
    await tools.call_tool("computer_type", {"text": "x"})
