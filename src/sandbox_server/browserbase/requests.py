import json
import re
from datetime import timedelta
from typing import Any, Literal

from sandbox_server.browserbase.models import BrowserSettings, ProxyConfig, SessionBody
from sandbox_server.browsers.service import DEFAULT_TIMEOUT, SessionRequest
from sandbox_server.domain.errors import FeatureUnavailable, InvalidRequest

_QUERY = re.compile(
    r"""user_metadata (?P<path> (?:\[\s*(?:'[^']*'|"[^"]*")\s*\])+ ) \s*:\s* (?P<value>.+)""",
    re.VERBOSE | re.DOTALL,
)
_KEY = re.compile(r"""\[\s*(?:'([^']*)'|"([^"]*)")\s*\]""")


def read_session_request(body: SessionBody) -> SessionRequest:
    """Read a request for a session; what would silently not be done is refused."""
    _require_supported(body.browser_settings)
    return SessionRequest(
        timeout=DEFAULT_TIMEOUT if body.timeout is None else timedelta(seconds=body.timeout),
        keep_alive=body.keep_alive,
        metadata=body.user_metadata,
        settings=_settings(body),
    )


def _require_supported(settings: BrowserSettings) -> None:
    if settings.allowed_domains:
        raise FeatureUnavailable("This server does not enforce browserSettings.allowedDomains.")
    if settings.ignore_certificate_errors:
        raise FeatureUnavailable(
            "This server does not support browserSettings.ignoreCertificateErrors. "
            "Let the driver ignore them: Playwright's ignore_https_errors, Puppeteer's acceptInsecureCerts."
        )


def _settings(body: SessionBody) -> dict[str, Any]:
    settings: dict[str, Any] = {"region": body.region}
    if body.proxies:
        _require_proxies(body.proxies)
    return settings


def _require_proxies(proxies: Literal[True] | list[ProxyConfig]) -> None:
    if proxies is True or any(each.type == "browserbase" for each in proxies):
        raise InvalidRequest(
            "This server has no proxy of its own. Name yours: proxies=[{type: 'external', server, username, password}]."
        )


def read_metadata_query(text: str | None) -> dict[str, object]:
    """Read `user_metadata['key']:'value'` as the object that the metadata must contain."""
    if not text:
        return {}
    matched = _QUERY.fullmatch(text.strip())
    if matched is None:
        raise InvalidRequest("`q` must have the form user_metadata['key']:'value'.")
    wanted: object = _read_value(matched["value"].strip())
    for single, double in reversed(_KEY.findall(matched["path"])):
        wanted = {single or double: wanted}
    assert isinstance(wanted, dict)
    return wanted


def _read_value(text: str) -> object:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text
