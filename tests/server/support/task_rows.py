"""Tasks and their pull requests as rows, without sandboxes."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func

from sandbox_server.db.models import PullRequest, Repository, Task, TaskRun
from sandbox_server.db.session import Sessions
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import PullFacts, PullLifecycle

HEAD = "1" * 40
NEXT = "2" * 40
BASE = "b" * 40


def pull_facts(**fields: Any) -> PullFacts:
    plain: dict[str, Any] = {
        "number": 5,
        "url": "https://forge.example/acme/widgets/pull/5",
        "lifecycle": PullLifecycle.OPEN,
        "draft": False,
        "title": "fix: the widget",
        "body": "",
        "head_ref": "task-x",
        "head_sha": HEAD,
        "head_repository_id": "1001",
        "base_ref": "main",
        "updated_at": datetime(2026, 1, 1, tzinfo=UTC),
        "mergeable": True,
    }
    return PullFacts(**{**plain, **fields})


async def add_task(sessions: Sessions, repository: Repository, **columns: Any) -> str:
    task_id = new_id()
    plain: dict[str, Any] = {
        "title": "a task",
        "instructions": "do it",
        "source": "text",
        "base_ref": "main",
        "base_sha": BASE,
        "branch": f"task-{task_id}",
        "directory": "/home/user/widgets",
        "stage": "in-review",
        "published_sha": HEAD,
        "pushed_shas": [HEAD],
        "settings": repository.settings,
    }
    row = Task(
        id=task_id,
        tenant_id=repository.tenant_id,
        repository_id=repository.id,
        **{**plain, **columns},
    )
    async with sessions.begin() as session:
        session.add(row)
    return task_id


async def add_pull(sessions: Sessions, task_id: str, facts: PullFacts) -> None:
    async with sessions.begin() as session:
        task = await session.get_one(Task, task_id)
        session.add(
            PullRequest(
                repository_id=task.repository_id,
                number=facts.number,
                task_id=task_id,
                url=facts.url,
                lifecycle=facts.lifecycle,
                draft=facts.draft,
                head_ref=facts.head_ref,
                head_sha=facts.head_sha,
                base_ref=facts.base_ref,
                mergeable=facts.mergeable,
                provider_updated_at=facts.updated_at,
            )
        )


async def add_run(sessions: Sessions, task_id: str, number: int, **columns: Any) -> None:
    """Add a run of the agent that has ended."""
    plain: dict[str, Any] = {
        "kind": "agent",
        "cause": "message",
        "cause_ref": str(number),
        "sandbox_id": new_id(),
        "head_before": HEAD,
        "head_after": NEXT,
        "outcome": "succeeded",
        "ended_at": func.clock_timestamp(),
    }
    async with sessions.begin() as session:
        session.add(TaskRun(task_id=task_id, number=number, **{**plain, **columns}))
