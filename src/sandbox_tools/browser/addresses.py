import re

from fastmcp.exceptions import ToolError

from sandbox_tools.toolkit.workspace import Workspace

# file: pages are let in, as whoever calls these tools reads the same files by others; Chromium keeps web pages from them.
_OPENED = re.compile(r"(?:https?://|file://|data:|about:)", re.IGNORECASE)
_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?!\d)", re.IGNORECASE)
_LOCAL = re.compile(
    r"(?:localhost|\[[0-9a-f:.]+\]|\d+(?:\.\d+){3}|[^/?#]+:\d+)(?:[:/?#]|$)", re.IGNORECASE
)


def complete(given: str, workspace: Workspace) -> str:
    """Make an address of what one types into a browser: a URL, a host, or the path of a file."""
    given = given.strip()
    if _OPENED.match(given):
        return given
    if _OTHER_SCHEME.match(given):
        raise ToolError(
            f"{given[:200]} cannot be opened: only http, https, file, data and about can."
        )
    if given.startswith(("/", "~", "./")):
        return workspace.path(given).as_uri()
    return f"http://{given}" if _LOCAL.match(given) else f"https://{given}"
