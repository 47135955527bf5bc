"""Errors of Playwright as sentences for agents."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fastmcp.exceptions import ToolError
from playwright.async_api import Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox_tools.browser.page_events import single_line

_MAX = 400
_NETWORK = {
    "NAME_NOT_RESOLVED": "host not found: check the name and whether this sandbox has internet access",
    "CONNECTION_REFUSED": "connection refused: check the port and whether the server is running",
    "CONNECTION_RESET": "the server reset the connection",
    "CONNECTION_CLOSED": "the server closed the connection without a response",
    "EMPTY_RESPONSE": "the server closed the connection without a response",
    "CONNECTION_TIMED_OUT": "the server did not respond in time",
    "TIMED_OUT": "the server did not respond in time",
    "ADDRESS_UNREACHABLE": "the address is unreachable from this sandbox",
    "INTERNET_DISCONNECTED": "this sandbox has no network",
    "NETWORK_ACCESS_DENIED": "access to this address is denied in this sandbox",
    "PROXY_CONNECTION_FAILED": "the proxy configured in the environment is unreachable",
    "TUNNEL_CONNECTION_FAILED": "the proxy configured in the environment refused the request",
    "SSL_PROTOCOL_ERROR": "the port does not use TLS: try http:// instead of https://",
    "TOO_MANY_REDIRECTS": "too many redirects",
    "FILE_NOT_FOUND": "the file does not exist",
    "ACCESS_DENIED": "permission denied",
    "UNSAFE_PORT": "Chromium blocks this port: run the server on another port",
    "HTTP_RESPONSE_CODE_FAILURE": "the server returned an error status without a page",
    "INVALID_URL": "invalid URL",
    "BLOCKED_BY_CLIENT": "the browser blocked it",
    "ABORTED": "the page or the server aborted it",
}
_GONE = ("has been closed", "Target crashed", "Page crashed", "Connection closed", "Target closed")
_OBSTACLES = (
    (
        "intercepts pointer events",
        "another element covers it: {line}. Close or scroll away that element",
    ),
    ("element is not visible", "it is not visible. Open or wait for it first"),
    ("element is not enabled", "it is disabled. Another step may be required first"),
    ("element is not editable", "it is read-only"),
    ("element is not stable", "it keeps moving"),
    (
        "outside of the viewport",
        "it is outside of the viewport and cannot be scrolled into view",
    ),
)
PAGE_UNRESPONSIVE = (
    "The page does not respond. Navigate elsewhere or end the browser with browser_close."
)


@contextmanager
def raise_tool_errors() -> Iterator[None]:
    # `from None`: ToolErrorMiddleware would report the cause instead.
    try:
        yield
    except PlaywrightTimeout as error:
        raise ToolError(_describe_timeout(error.message)) from None
    except Error as error:
        raise ToolError(_describe(error.message)) from None
    except TimeoutError:
        raise ToolError(PAGE_UNRESPONSIVE) from None


def first_line(message: str) -> str:
    """Remove the name of playwright's method and its call log."""
    line = re.sub(r"^[A-Z]\w+\.\w+: (?:Error: )?", "", message.strip().split("\n", 1)[0])
    return single_line(line, limit=_MAX)


def network_failure(message: str) -> str | None:
    """Explain a network error; None if the message is not about one."""
    if "invalid URL" in message:
        return _NETWORK["INVALID_URL"]
    found = re.search(r"net::ERR_(\w+)", message)
    if found is None:
        return None
    code = found[1]
    if code.startswith("CERT_"):
        return f"its certificate is not trusted ({code})"
    return _NETWORK.get(code, f"network error {code}")


def _describe(message: str) -> str:
    if any(sign in message for sign in _GONE):
        return (
            "The tab or the browser was closed meanwhile. List tabs with browser_tabs; the next call"
            " restarts the browser if necessary."
        )
    if "strict mode violation" in message:
        return _describe_ambiguous(message)
    if "Unknown key" in message:
        return (
            f"{first_line(message)}. Use names such as Enter, Escape, Tab, ArrowDown,"
            " Control+a, Shift+Tab, F5 or a single character."
        )
    return f"Browser error: {first_line(message)}"


def _describe_ambiguous(message: str) -> str:
    matching = re.findall(r"^ +\d+\) (.+?)(?: aka .*)?$", message, re.MULTILINE)
    matches = "; ".join(single_line(match, limit=100) for match in matching[:5])
    return f"The selector matches several elements ({matches}). Use a ref of browser_view or a narrower selector."


def _describe_timeout(message: str) -> str:
    lines = [line.strip(" -") for line in message.splitlines()]
    for line in reversed(lines):
        for sign, text in _OBSTACLES:
            if sign in line:
                return (
                    f"The element is not usable: {text.format(line=single_line(line, limit=200))}."
                )
    if any("resolved to" in line for line in lines):
        return (
            "The element was found, but the page did not respond in time. Check with"
            " browser_screenshot, or navigate elsewhere."
        )
    if any(line.startswith("waiting for locator") for line in lines):
        return (
            "No element matches. Get refs with browser_view, which includes"
            " frames, or raise timeout_s."
        )
    return f"Timeout: {first_line(message)}"
