from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Task, TaskMessage, TaskRun
from sandbox_server.domain.tasks.stages import Stage
from sandbox_server.tasks.following.repository import FollowedPull, FollowedPullRepository
from sandbox_server.tasks.outbox_repository import Outbox

_ANSWERED_IN = frozenset({Stage.IN_REVIEW, Stage.WAITING_FOR_USER})
_LONGEST_SUMMARY = 4000


async def answer_remarks(session: AsyncSession, followed: FollowedPull) -> None:
    """Reply in the threads that a run was told, once its commits are published.

    Every reply is requested again at each look; the outbox does each once.
    """
    task = followed.task
    if task.stage not in _ANSWERED_IN:
        return
    for message, run in await FollowedPullRepository(session).list_answerable(task.id):
        if _is_published(task, run):
            await _answer(Outbox(session), followed, message, run)


def _is_published(task: Task, run: TaskRun) -> bool:
    if run.head_after is None or run.head_after == run.head_before:
        return True
    return task.published_sha is not None and run.head_after in {
        task.published_sha,
        task.head_sha,
        *task.pushed_shas,
    }


async def _answer(
    outbox: Outbox, followed: FollowedPull, message: TaskMessage, run: TaskRun
) -> None:
    body = _body(followed.task, run)
    for thread_id in message.data.get("threads", ()):
        payload = {"number": followed.number, "thread_id": thread_id, "body": body}
        key = f"{message.id}/{thread_id}"
        await outbox.add(followed.owner, kind="reply", key=key, payload=payload)
    mentions = list(dict.fromkeys(message.data.get("mentions", ())))
    if mentions:
        named = " ".join(f"@{login}" for login in mentions)
        payload = {"number": followed.number, "body": f"{named} {body}"}
        await outbox.add(followed.owner, kind="comment", key=message.id, payload=payload)


def _body(task: Task, run: TaskRun) -> str:
    if run.head_after is not None and run.head_after != run.head_before:
        sha = run.head_after if run.head_after in task.pushed_shas else task.published_sha
        return f"Done in {sha}."
    said = (run.summary or "").strip()[:_LONGEST_SUMMARY]
    return f"Nothing was changed. {said}".strip()
