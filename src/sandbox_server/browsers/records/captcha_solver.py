"""The operator's service that solves captchas: one POST per captcha, to one URL."""

import json
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol

import httpx

SOLVE_WITHIN = timedelta(minutes=2)

_CONNECT_WITHIN_S = 10
_LARGEST_ANSWER = 64 * 1024


class CaptchaKind(StrEnum):
    RECAPTCHA = "recaptcha"
    HCAPTCHA = "hcaptcha"
    TURNSTILE = "turnstile"
    IMAGE = "image"


@dataclass(frozen=True, kw_only=True)
class Captcha:
    """A captcha on a page of a session."""

    kind: CaptchaKind
    page_url: str
    site_key: str | None = None
    action: str | None = None
    image: str | None = None
    """The picture in base64, of the kind `image`."""


class CaptchaNotSolved(Exception):
    """The solver gave no solution; the message says why."""


class CaptchaSolver(Protocol):
    """Solves captchas."""

    async def solve(self, captcha: Captcha, *, session_id: str) -> str:
        """Return the token, or the text of a picture; raises CaptchaNotSolved."""


class CaptchaService:
    """The solver at the operator's URL. Redirects are not followed, and proxies of the environment are not used."""

    def __init__(self, url: str, key: str | None, *, within: timedelta = SOLVE_WITHIN) -> None:
        self._url = url
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._timeout = httpx.Timeout(within.total_seconds(), connect=_CONNECT_WITHIN_S)

    async def solve(self, captcha: Captcha, *, session_id: str) -> str:
        body = {
            "kind": captcha.kind.value,
            "page_url": captcha.page_url,
            "session_id": session_id,
            "site_key": captcha.site_key,
            "action": captcha.action,
            "image": captcha.image,
        }
        given = {name: value for name, value in body.items() if value is not None}
        try:
            async with (
                httpx.AsyncClient(trust_env=False, timeout=self._timeout) as client,
                client.stream("POST", self._url, json=given, headers=self._headers) as answer,
            ):
                return _read_solution(answer.status_code, await _read(answer))
        except httpx.TimeoutException:
            raise CaptchaNotSolved("the solver did not answer in time") from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise CaptchaNotSolved(f"the solver cannot be reached: {reason}") from None


async def _read(answer: httpx.Response) -> bytes:
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > _LARGEST_ANSWER:
            raise CaptchaNotSolved("the solver's answer is too large")
    return body


def _read_solution(status: int, body: bytes) -> str:
    if status != HTTPStatus.OK:
        raise CaptchaNotSolved(f"the solver answered with the status {status}")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise CaptchaNotSolved("the solver's answer is not JSON") from None
    token = answer.get("token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise CaptchaNotSolved("the solver's answer has no `token`")
    return token
