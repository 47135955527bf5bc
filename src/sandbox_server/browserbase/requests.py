import json
import re
from datetime import timedelta
from typing import Any

from sandbox_server.browserbase.models import BrowserSettings, SessionBody
from sandbox_server.browsers.service import DEFAULT_TIMEOUT, SessionRequest
from sandbox_server.domain.errors import InvalidRequest

_QUERY = re.compile(
    r"""user_metadata (?P<path> (?:\[\s*(?:'[^']*'|"[^"]*")\s*\])+ ) \s*:\s* (?P<value>.+)""",
    re.VERBOSE | re.DOTALL,
)
_KEY = re.compile(r"""\[\s*(?:'([^']*)'|"([^"]*)")\s*\]""")


def read_session_request(body: SessionBody) -> SessionRequest:
    """Read a request for a session."""
    settings, context = body.browser_settings, body.browser_settings.context
    return SessionRequest(
        timeout=DEFAULT_TIMEOUT if body.timeout is None else timedelta(seconds=body.timeout),
        keep_alive=body.keep_alive,
        metadata=body.user_metadata,
        log=settings.log_session,
        record=settings.record_session,
        captcha_selectors={
            "image": settings.captcha_image_selector,
            "input": settings.captcha_input_selector,
        },
        settings={"region": body.region, "flags": _flags(settings)},
        proxies=_proxies(body),
        needs_proxies=body.proxies is True,
        captcha=body.browser_settings.solve_captchas,
        extension_id=body.extension_id or settings.extension_id,
        context_id=None if context is None else context.id,
        context_persist=context is not None and context.persist,
        allowed_domains=settings.allowed_domains,
        ignore_certificate_errors=settings.ignore_certificate_errors,
    )


def _flags(settings: BrowserSettings) -> list[str]:
    """List the launch flags of settings; with any, the browser is started anew for the session."""
    flags = []
    if settings.viewport is not None:
        flags.append(f"--window-size={settings.viewport.width},{settings.viewport.height}")
    return flags


def _proxies(body: SessionBody) -> list[dict[str, Any]] | None:
    """List the proxies of a request; None for those of the configuration."""
    proxies = body.proxies
    if proxies is True or "proxies" not in body.model_fields_set:
        return None
    if not proxies:
        return []
    if any(each.type == "browserbase" for each in proxies):
        raise InvalidRequest(
            "This server has no proxy of its own. Name yours: proxies=[{type: 'external', server, username, password}]."
        )
    if any(each.type == "external" and not each.server for each in proxies):
        raise InvalidRequest("A proxy of the type `external` needs a `server`.")
    return [each.model_dump(exclude_none=True) for each in proxies]


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
