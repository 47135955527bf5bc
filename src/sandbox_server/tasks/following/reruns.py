"""Reruns of failed jobs that an agent reports as flaky: once per commit, instead of a fix."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import ForgeWrite, TaskMessage
from sandbox_server.tasks.following.verdict import PATIENCE, Overall, Verdict
from sandbox_server.tasks.outbox_repository import Outbox, WriteOwner

_KIND = "rerun"
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Rerun:
    """The rerun of the failed checks of one commit."""

    row: ForgeWrite

    @property
    def error(self) -> str | None:
        return self.row.error

    @property
    def reason(self) -> str:
        return str(self.row.payload["reason"])

    def awaited(self, verdict: Verdict, *, now: datetime) -> Verdict | None:
        """Return a pending verdict while the failures are those that are rerun; None: they count.

        A rerun job is a new check. One that does not appear within the time that checks are waited for never will.
        """
        if not {each.external_id for each in verdict.failed} <= set(self.row.payload["checks"]):
            return None
        until = now + PATIENCE if self.row.done_at is None else self.row.done_at + PATIENCE
        if self.error is not None or now >= until:
            return None
        return Verdict(Overall.PENDING, verdict.failed, until)


async def find_rerun(session: AsyncSession, repository_id: str, sha: str) -> Rerun | None:
    found = await session.scalar(
        select(ForgeWrite).where(
            ForgeWrite.repository_id == repository_id,
            ForgeWrite.task_id.is_(None),
            ForgeWrite.kind == _KIND,
            ForgeWrite.key == sha,
        )
    )
    return None if found is None else Rerun(found)


async def request_rerun(
    session: AsyncSession,
    owner: WriteOwner,
    told: Sequence[TaskMessage],
    *,
    reason: str,
    number: int | None,
) -> str | None:
    """Request the rerun of the checks that a run was told of; returns what to say, None if that was done before."""
    message = next((each for each in reversed(told) if may_be_rerun(each)), None)
    if message is None:
        return None
    sha, checks = message.data["sha"], message.data["checks"]
    payload = {
        "sha": sha,
        "checks": [each["id"] for each in checks],
        "reason": reason[:_LONGEST_REASON],
        **({} if number is None else {"number": number}),
    }
    await Outbox(session).add(owner, kind=_KIND, key=sha, payload=payload)
    names = ", ".join(each["name"] for each in checks)
    return f"Reported as flaky, and rerun once instead of a fix: {names}. {payload['reason']}"


def may_be_rerun(message: TaskMessage) -> bool:
    """Return whether a message tells a failure whose jobs were not rerun before."""
    return message.data.get("may_rerun") is True


def key_of(verdict: Verdict, rerun: Rerun | None) -> str:
    """Identify a failure; the second one of the same checks, after their rerun, is another one."""
    return verdict.key if rerun is None else f"{verdict.key}/again"
