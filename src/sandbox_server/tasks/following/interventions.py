from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.events import Cause
from sandbox_server.domain.tasks.stages import Stage
from sandbox_server.tasks.following.repository import (
    FollowedPull,
    FollowedPullRepository,
    told_by_person,
)
from sandbox_server.tasks.outbox_repository import Outbox
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.transitions import TaskMove, apply_move

MAX_RUNS_AN_HOUR = 6
MAX_WITHOUT_PERSON = 3

_HOUR = timedelta(hours=1)
_STICKY = "status"


class Interventions:
    """Hands a task to a person: it waits, and one comment at its pull request says why."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def stop_loop(self, followed: FollowedPull) -> bool:
        """Wait for a person if the task only answers machines; returns whether it does."""
        async with without_transaction(self._sessions) as session:
            reason = await find_loop(session, followed)
        if reason is None:
            return False
        await self.wait_for_person(followed, kind="loop", reason=reason)
        return True

    async def wait_for_person(self, followed: FollowedPull, *, kind: str, reason: str) -> None:
        """Stop a task that is in review until somebody writes to it or retries it."""
        async with self._sessions.begin() as session:
            row = await TaskRepository(session).lock(followed.task.id)
            if row.stage != Stage.IN_REVIEW or row.outcome is not None:
                return
            await Outbox(session).put_comment(
                followed.owner, key=_STICKY, number=followed.number, body=_comment(reason)
            )
            awaits = {
                "kind": kind,
                "text": reason,
                "actions": ["message", "retry", "cancel"],
                "data": {"pull_request": followed.number, "head": followed.pull.head_sha},
            }
            move = TaskMove(
                stage=Stage.WAITING_FOR_USER, reason=reason, awaits=awaits, cause=Cause.FORGE
            )
            await apply_move(session, row, move)


def _comment(reason: str) -> str:
    return (
        f"This pull request needs a person. {reason}\n\n"
        "Write a comment here to continue with it, or retry the task."
    )


async def find_loop(session: AsyncSession, followed: FollowedPull) -> str | None:
    """Return why nothing more is started without a person, if so."""
    pulls = FollowedPullRepository(session)
    runs = await pulls.count_runs_since(followed.task.id, followed.now - _HOUR)
    if runs >= MAX_RUNS_AN_HOUR:
        return f"{runs} runs within an hour."
    recent = await pulls.list_recent_messages(followed.task.id, limit=MAX_WITHOUT_PERSON)
    if len(recent) == MAX_WITHOUT_PERSON and not any(map(told_by_person, recent)):
        return f"{MAX_WITHOUT_PERSON} runs without a message of a person between them."
    return None
