"""What each template of `templates/e2b.toml` has to prove in a sandbox of its own."""

import asyncio
import io
from collections.abc import Callable

import httpx
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from PIL import Image

from tests.template.computer import Computer

PARTS = frozenset(
    "chromium chromedriver code-server claude codex copilot gemini opencode"
    " Xvnc xfce4-session soffice R java javac".split()
)
"""Large programs, of which each template has those that are listed below and no other."""

BROWSER = {"chromium"}
DESKTOP = {*BROWSER, "Xvnc", "xfce4-session"}
PROGRAMS: dict[str, set[str]] = {
    "agent": set(),
    "agent-full": {*BROWSER, "code-server", "claude", "codex", "copilot", "gemini", "opencode"},
    "browser": {*BROWSER, "chromedriver"},
    "code-interpreter-v1": set(),
    "code-interpreter-full": {"R", "java", "javac"},
    "desktop": DESKTOP,
    "desktop-office": {*DESKTOP, "soffice"},
}

_MORE_THAN_A_BACKGROUND = 50
_RUN_CODE = "http://127.0.0.1:49999/execute"


def has_its_programs(computer: Computer, name: str) -> None:
    found = computer.run(f"for one in {' '.join(PARTS)}; do command -v $one; done; true")
    assert {path.rpartition("/")[2] for path in found.split()} == PROGRAMS[name]


def offers_tools(computer: Computer) -> None:
    assert {"read_file", "run_command"} <= tools(computer)


def runs_code(computer: Computer) -> None:
    for language, code in {"python": "6 * 7", "js": "6 * 7", "bash": "echo $((6 * 7))"}.items():
        body = f'{{"language": "{language}", "code": "{code}"}}'
        assert '"42' in computer.run(f"curl --silent --fail --data '{body}' {_RUN_CODE}")


def opens_pages(computer: Computer) -> None:
    """Open a page with a tool; the browser then answers CDP clients, too."""
    computer.run("echo '<title>Seen</title>' >/tmp/p.html")
    assert "Seen" in call(computer, "browser_navigate", url="file:///tmp/p.html")
    assert "p.html" in computer.run("curl --silent --fail localhost:9222/json/list")


def shows_a_desktop(computer: Computer) -> None:
    colours = screenshot(computer).convert("RGB").getcolors(1 << 20)
    assert colours is not None
    assert len(colours) > _MORE_THAN_A_BACKGROUND


def has_a_display(computer: Computer) -> None:
    assert "dimensions:" in computer.run("xdpyinfo", DISPLAY=":0")


CAPABILITIES: dict[str, Callable[[Computer], None]] = {
    "browser": opens_pages,
    "code": runs_code,
    "desktop": shows_a_desktop,
    "gui": has_a_display,
    "mcp": offers_tools,
}


def tools(computer: Computer) -> set[str]:
    """List the tools that its tool server offers."""

    async def listed() -> set[str]:
        async with _client(computer) as client:
            return {tool.name for tool in await client.list_tools()}

    return asyncio.run(listed())


def call(computer: Computer, tool: str, **arguments: str) -> str:
    """Call a tool; gives the text of its result."""

    async def called() -> str:
        async with _client(computer) as client:
            result = await client.call_tool(tool, arguments)
            return "".join(getattr(part, "text", "") for part in result.content)

    return asyncio.run(called())


def _client(computer: Computer) -> Client[StreamableHttpTransport]:
    headers = {"Host": computer.host(6060), "Authorization": f"Bearer {computer.token}"}
    url = f"{computer.options['sandbox_url']}/mcp/"
    return Client(StreamableHttpTransport(url, headers=headers), timeout=120)


def screenshot(computer: Computer) -> Image.Image:
    """Take a picture of the desktop."""
    headers = {"Host": computer.host(49990), "Authorization": f"Bearer {computer.token}"}
    url = f"{computer.options['sandbox_url']}/screenshot"
    answer = httpx.get(url, headers=headers, timeout=60)
    assert answer.is_success, answer.text
    return Image.open(io.BytesIO(answer.content))
