"""What each template of `templates/e2b.toml` has to prove in a sandbox of its own."""

import io
from collections.abc import Callable

import httpx
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
    assert "read_file" in call(computer, "tools/list")


def runs_code(computer: Computer) -> None:
    for language, code in {"python": "6 * 7", "js": "6 * 7", "bash": "echo $((6 * 7))"}.items():
        body = f'{{"language": "{language}", "code": "{code}"}}'
        assert '"42' in computer.run(f"curl --silent --fail --data '{body}' {_RUN_CODE}")


def opens_pages(computer: Computer) -> None:
    """Open a page with a tool; the browser then answers CDP clients, too."""
    computer.run("echo '<title>Seen</title>' >/tmp/p.html; cd /tmp; setsid python -m http.server &")
    computer.wait("curl --silent --fail localhost:8000/p.html")
    arguments = '{"name": "browser_navigate", "arguments": {"url": "http://localhost:8000/p.html"}}'
    assert "Seen" in call(computer, "tools/call", arguments)
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


def call(computer: Computer, method: str, params: str = "{}") -> str:
    """Send a request to the tool server; gives the response as text."""
    headers = {
        "Host": computer.host(6060),
        "Authorization": f"Bearer {computer.token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": {params}}}'
    url = f"{computer.options['sandbox_url']}/mcp/"
    answer = httpx.post(url, headers=headers, content=body, timeout=120)
    assert answer.is_success, answer.text
    return answer.text


def screenshot(computer: Computer) -> Image.Image:
    """Take a picture of the desktop."""
    headers = {"Host": computer.host(49990), "Authorization": f"Bearer {computer.token}"}
    url = f"{computer.options['sandbox_url']}/screenshot"
    answer = httpx.get(url, headers=headers, timeout=60)
    assert answer.is_success, answer.text
    return Image.open(io.BytesIO(answer.content))
