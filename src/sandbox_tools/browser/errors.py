"""What playwright raises, as sentences for agents."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fastmcp.exceptions import ToolError
from playwright.async_api import Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandbox_tools.browser.page_events import single_line

_MAX = 400
_NETWORK = {
    "NAME_NOT_RESOLVED": "no such host is known here: check the name, and whether this sandbox may reach the internet",
    "CONNECTION_REFUSED": "nothing listens there: check the port, and that the server has started",
    "CONNECTION_RESET": "the server broke the connection off",
    "CONNECTION_CLOSED": "the server closed the connection without an answer",
    "EMPTY_RESPONSE": "the server closed the connection without an answer",
    "CONNECTION_TIMED_OUT": "the server does not answer",
    "TIMED_OUT": "the server does not answer",
    "ADDRESS_UNREACHABLE": "there is no way to that address from this sandbox",
    "INTERNET_DISCONNECTED": "this sandbox has no network",
    "NETWORK_ACCESS_DENIED": "this sandbox may not reach that address",
    "PROXY_CONNECTION_FAILED": "the proxy that the environment names cannot be reached",
    "TUNNEL_CONNECTION_FAILED": "the proxy that the environment names refuses to pass this on",
    "SSL_PROTOCOL_ERROR": "the server does not speak TLS there: try http:// instead of https://",
    "TOO_MANY_REDIRECTS": "it redirects in circles",
    "FILE_NOT_FOUND": "there is no such file",
    "ACCESS_DENIED": "that file may not be read",
    "UNSAFE_PORT": "Chromium refuses that port as one of other protocols: have the server listen on another",
    "HTTP_RESPONSE_CODE_FAILURE": "the server answered with an error status and no page",
    "INVALID_URL": "that is no valid URL",
    "BLOCKED_BY_CLIENT": "the browser blocked it",
    "ABORTED": "the page or the server broke it off",
}
_GONE = ("has been closed", "Target crashed", "Page crashed", "Connection closed", "Target closed")
_OBSTACLES = (
    ("intercepts pointer events", "it is covered: {line}. Close or scroll away what covers it"),
    ("element is not visible", "it is not visible. It may have to be opened or waited for"),
    ("element is not enabled", "it is disabled. Something else may have to be done first"),
    ("element is not editable", "it is read-only"),
    ("element is not stable", "it keeps moving"),
    (
        "outside of the viewport",
        "it is outside of the page's visible part and cannot be scrolled into it",
    ),
)
PAGE_UNRESPONSIVE = (
    "The page does not respond. Navigate elsewhere, or close the browser with browser_close."
)


@contextmanager
def raise_tool_errors() -> Iterator[None]:
    # `from None`: a cause would be taken for the failure that is to be told.
    try:
        yield
    except PlaywrightTimeout as error:
        raise ToolError(_describe_timeout(error.message)) from None
    except Error as error:
        raise ToolError(_describe(error.message)) from None
    except TimeoutError:
        raise ToolError(PAGE_UNRESPONSIVE) from None


def first_line(message: str) -> str:
    """Leave out the name of playwright's method, and what it logged."""
    line = re.sub(r"^[A-Z]\w+\.\w+: (?:Error: )?", "", message.strip().split("\n", 1)[0])
    return single_line(line, limit=_MAX)


def network_failure(message: str) -> str | None:
    """Name what kept a page from being loaded, if that is what a message is about."""
    if "invalid URL" in message:
        return _NETWORK["INVALID_URL"]
    found = re.search(r"net::ERR_(\w+)", message)
    if found is None:
        return None
    code = found[1]
    if code.startswith("CERT_"):
        return f"its certificate is not trusted ({code})"
    return _NETWORK.get(code, f"the browser says {code}")


def _describe(message: str) -> str:
    if any(sign in message for sign in _GONE):
        return (
            "The tab or the browser ended meanwhile. browser_tabs tells what is there; a browser"
            " that has ended is started again by the next call."
        )
    if "strict mode violation" in message:
        return _describe_ambiguous(message)
    if "Unknown key" in message:
        return (
            f"{first_line(message)}. Keys are named like Enter, Escape, Tab, ArrowDown,"
            " Control+a, Shift+Tab, F5 or a single character."
        )
    return f"The browser says: {first_line(message)}"


def _describe_ambiguous(message: str) -> str:
    matching = re.findall(r"^ +\d+\) (.+?)(?: aka .*)?$", message, re.MULTILINE)
    format_outline = "; ".join(single_line(one, limit=100) for one in matching[:5])
    return f"The selector matches several elements ({format_outline}). Take a ref of browser_view, or a narrower selector."


def _describe_timeout(message: str) -> str:
    lines = [line.strip(" -") for line in message.splitlines()]
    for line in reversed(lines):
        for sign, text in _OBSTACLES:
            if sign in line:
                return f"That element cannot be used: {text.format(line=single_line(line, limit=200))}."
    if any("resolved to" in line for line in lines):
        return (
            "That element was found, but the page did not respond to that in time. See with"
            " browser_screenshot what became of it, or navigate elsewhere."
        )
    if any(line.startswith("waiting for locator") for line in lines):
        return (
            "Nothing on the page matches that. Look at it with browser_view, whose refs reach into"
            " frames too, or wait longer by timeout_s."
        )
    return f"That took too long: {first_line(message)}"
