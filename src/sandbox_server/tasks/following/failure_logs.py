"""Failed checks as the agent is told: with the part of each log that says why."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_server.db.models import ForgeCheck
from sandbox_server.domain.errors import ForgeError
from sandbox_server.domain.tasks.forges import RepositoryFacts
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.tasks.history_repository import facts_of_check
from sandbox_server.tasks.quotes import Quote, with_quotes

READ_BYTES = 2 * 2**20
"""How much of the end of a log is read to find the first error."""
EXCERPT_BYTES = 64 * 1024

_MOST_LOGS = 5
_ALL_LOGS = EXCERPT_BYTES - 4096  # the prompt takes 64 KiB of a message
_BEFORE = 4 * 1024
_ERROR = re.compile(
    rb"##\[error\]|\berror(?:\[\w+\])?:|\bfatal:|\bFAILED\b|--- FAIL|^Traceback \(most recent call last\)"
    rb"|\bAssertionError\b|\bpanic:|\bException\b|\bnpm ERR!|\bnot ok\b",
    re.IGNORECASE | re.MULTILINE,
)
# Colours and cursor movements, and the time that GitHub puts before each line.
_NOISE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|^\d{4}-\d\d-\d\dT[\d:.]+Z ", re.MULTILINE)


@dataclass(frozen=True)
class FailureReport:
    """A message about failed checks."""

    text: str
    data: Mapping[str, Any]


async def describe_failure(
    adapter: ForgeAdapter,
    repository: RepositoryFacts,
    failed: Sequence[ForgeCheck],
    *,
    is_second: bool = False,
) -> FailureReport:
    """Describe failed checks with the part of each log that says why; `is_second`: after their rerun."""
    shown, others = failed[:_MOST_LOGS], failed[_MOST_LOGS:]
    most = _ALL_LOGS // len(shown)
    quotes = [await _describe(adapter, repository, each, most) for each in shown]
    sha = failed[0].sha
    text = f"These checks of commit {sha} have failed."
    if others:
        text += f" Failed too: {', '.join(each.name for each in others)}."
    if is_second:
        text += " They were rerun once, and are not rerun again."
    named = [{"id": each.external_id, "name": each.name, "url": each.url} for each in failed]
    data = with_quotes(*quotes, sha=sha, checks=named, may_rerun=not is_second)
    return FailureReport(text, data)


async def _describe(
    adapter: ForgeAdapter, repository: RepositoryFacts, check: ForgeCheck, max_bytes: int
) -> Quote:
    about = f"Check {check.name!r}: {check.conclusion}. {check.url or ''}".rstrip()
    try:
        log = await adapter.read_check_log(repository, facts_of_check(check), max_bytes=READ_BYTES)
    except ForgeError as error:
        if error.is_repeatable:
            raise
        text = f"Its log cannot be read: {error.reason}"
    else:
        text = excerpt_of(log, max_bytes=max_bytes)
    return Quote(about=about, text=text, check=check.external_id)


def excerpt_of(log: bytes, *, max_bytes: int = EXCERPT_BYTES) -> str:
    """Cut a log around its first error; without one, return its end."""
    plain = _NOISE.sub(b"", log)
    if len(plain) <= max_bytes:
        return plain.decode(errors="replace")
    found = _ERROR.search(plain)
    if found is None:
        return "[…]\n" + plain[-max_bytes:].decode(errors="replace")
    begin = max(0, found.start() - min(_BEFORE, max_bytes // 4))
    part = plain[begin : begin + max_bytes]
    head, tail = "[…]\n" if begin else "", "\n[…]" if begin + max_bytes < len(plain) else ""
    return head + part.decode(errors="replace") + tail
