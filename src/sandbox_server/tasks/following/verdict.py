"""Combine the checks of a commit into one verdict."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandbox_server.db.models import ForgeCheck
from sandbox_server.domain.tasks.forges import CheckConclusion

PATIENCE = timedelta(minutes=10)
"""How long checks may run after the first failure before the failure is acted on."""

FAILED = frozenset({CheckConclusion.FAILURE, CheckConclusion.TIMED_OUT})
"""Conclusions that a change of the code can mend; cancelled, stale and skipped checks say nothing."""


class Overall(StrEnum):
    NONE = "none"
    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True)
class Verdict:
    overall: Overall
    failed: Sequence[ForgeCheck] = ()
    look_at: datetime | None = None
    """When the failure is acted on even if other checks are still running."""

    @property
    def key(self) -> str:
        """Identify this failure: the same checks of the same commit are fixed once."""
        names = sorted({check.name for check in self.failed})
        sha = self.failed[0].sha if self.failed else ""
        return hashlib.sha256("\0".join([sha, *names]).encode()).hexdigest()[:32]


def judge(
    checks: Sequence[ForgeCheck], *, now: datetime, red_on_base: Collection[str] = ()
) -> Verdict:
    """Judge the checks of one commit. Those that fail on the base too are left out."""
    if not checks:
        return Verdict(Overall.NONE)
    failed = [each for each in checks if _has_failed(each) and each.name not in red_on_base]
    is_done = all(each.is_done for each in checks)
    if not failed:
        return Verdict(Overall.SUCCESS if is_done else Overall.PENDING)
    act_at = min(each.seen_at for each in failed) + PATIENCE
    if is_done or now >= act_at:
        return Verdict(Overall.FAILURE, failed)
    return Verdict(Overall.PENDING, failed, act_at)


def _has_failed(check: ForgeCheck) -> bool:
    return check.is_done and check.conclusion in FAILED
