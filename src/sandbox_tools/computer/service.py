import json
import os
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from fastmcp.exceptions import ToolError

from sandbox_tools.toolkit.settings_file import SettingsFile
from sandbox_tools.toolkit.threads import run_in_thread

# Tests have a service of their own.
_PORT = "SANDBOX_DESKTOP_PORT"
_USUAL_PORT = "49990"
_TIMEOUT_SECONDS = 120


class DesktopClient:
    """Sends actions to the desktop service of this sandbox."""

    def __init__(self, settings: SettingsFile) -> None:
        self._settings = settings
        self._url = f"http://127.0.0.1:{os.environ.get(_PORT, _USUAL_PORT)}"
        # No proxy: the service is in this sandbox.
        self._opener = build_opener(ProxyHandler({}))

    async def act(self, action: str, **arguments: object) -> dict[str, Any]:
        """Perform an action; the service's refusals are the tool's."""
        given = {name: value for name, value in arguments.items() if value is not None}
        return await run_in_thread(lambda _check: self._post({"action": action, **given}))

    def _post(self, action: dict[str, object]) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {self._settings.read().token}",
            "Content-Type": "application/json",
        }
        request = Request(f"{self._url}/actions", json.dumps(action).encode(), headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                performed: dict[str, Any] = json.load(answer)
        except HTTPError as error:
            raise ToolError(_detail(error)) from None
        except (URLError, OSError):
            raise ToolError(
                "The desktop service does not respond; it is restarted by itself. Try again in a few seconds."
            ) from None
        return performed


def _detail(error: HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The desktop service answered with {error.code}."
