"""Answers to a push in git's own words, which its client shows per ref.

remote: sandbox-server: only refs/heads/task-42 can be pushed from here.
 ! [remote rejected] HEAD -> main (only task-42 may be pushed)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.domain.errors.storable_text import both_ends
from sandbox_server.git.endpoint.push_request import PushRequest
from sandbox_server.git.pkt_line import FLUSH, pkt_line

KEEP_ALIVE = pkt_line(b"\x01")
"""An empty packet: clients end a connection on which nothing moves."""

_REPORT, _MESSAGE = b"\x01", b"\x02"
_PART = 60_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_LONGEST_REASON = 400


@dataclass(frozen=True, kw_only=True)
class RefResult:
    """The outcome for one ref; without a reason it was pushed."""

    ref: str
    reason: str | None = None


def report_push(
    push: PushRequest,
    results: Sequence[RefResult],
    *,
    messages: Sequence[str] = (),
    unpack: str = "ok",
) -> bytes:
    """Write the answer to a push as its client asked for it."""
    report = b""
    if push.capabilities & {"report-status", "report-status-v2"}:
        lines = [pkt_line(b"unpack ", _line(unpack), b"\n"), *map(_result, results)]
        report = b"".join(lines) + FLUSH
    if "side-band-64k" not in push.capabilities:
        return report
    told = b"".join(pkt_line(_MESSAGE, _line(text), b"\n") for text in messages)
    return told + _in_band(report) + FLUSH


def message(text: str) -> bytes:
    """Write a line that the client shows with `remote:` before the answer."""
    return pkt_line(_MESSAGE, _line(text), b"\n")


def _result(result: RefResult) -> bytes:
    ref = result.ref.encode()
    if result.reason is None:
        return pkt_line(b"ok ", ref, b"\n")
    return pkt_line(b"ng ", ref, b" ", _line(result.reason), b"\n")


def _in_band(report: bytes) -> bytes:
    parts = (report[start : start + _PART] for start in range(0, len(report), _PART))
    return b"".join(pkt_line(_REPORT, part) for part in parts)


def _line(text: str) -> bytes:
    return both_ends(_CONTROL.sub(" ", text), _LONGEST_REASON).strip().encode()
