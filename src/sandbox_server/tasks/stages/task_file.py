"""Describes a task to the tools of its agent: `.git/task.json` in the checkout, written before each run.

`sandbox_tools/tasks` reads it. A sandbox has no credential of the server, so the agent cannot ask for more.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_server.db.models import ForgeCheck, TaskMessage, TaskRun
from sandbox_server.domain.tasks.stages import MessageOrigin
from sandbox_server.tasks.quotes import quotes_of
from sandbox_server.tasks.stages.prompt import clean
from sandbox_server.tasks.stages.work import TaskWork

TASK_FILE = ".git/task.json"
SUMMARY_FILE = ".git/task-summary.md"

_TRUSTED = frozenset({MessageOrigin.API, MessageOrigin.SERVER})
_FAILED = frozenset({"failure", "timed_out", "action_required"})


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """Facts about a task for its run, besides the task's own columns."""

    run_number: int
    messages: Sequence[TaskMessage]
    last_checks: TaskRun | None
    forge_checks: Sequence[ForgeCheck]


def describe_task(work: TaskWork, facts: TaskFacts) -> bytes:
    """Build the document; text of other people has no parts that readers do not see."""
    task = work.task
    document = {
        "title": task.title,
        "repository": work.repository.full_name,
        "directory": task.directory,
        "branch": task.branch,
        "base": task.base_ref,
        "instructions": task.instructions,
        "commit_style": work.settings.commit_style,
        "published_sha": task.published_sha,
        "issue": next(_issues(facts.messages), None),
        "messages": [_message(one, facts.run_number) for one in facts.messages if one.text],
        "checks_command": work.settings.checks,
        "last_checks": _last_checks(facts.last_checks),
        "forge_checks": [_forge_check(one) for one in facts.forge_checks],
        "failed_checks": [
            _failed_check(one, facts) for one in facts.forge_checks if _has_failed(one)
        ],
    }
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def _issues(messages: Sequence[TaskMessage]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if issue := message.data.get("issue"):
            comments = [
                {"author": one["author"], "text": clean(one["body"])} for one in issue["comments"]
            ]
            yield {
                **{name: issue[name] for name in ("number", "author")},
                "is_pull": issue.get("is_pull", False),
                "title": clean(issue["title"]),
                "body": clean(issue["body"]),
                "comments": comments,
            }


def _message(message: TaskMessage, run_number: int) -> Mapping[str, Any]:
    return {
        "origin": message.origin,
        "author": message.author,
        "text": clean(message.text),
        "quotes": [
            {"about": clean(each.about), "text": clean(each.text, keep_comments=True)}
            for each in quotes_of(message)
            if each.check is None  # `failed_checks` has the logs of those at the forge
        ],
        "is_new": message.run_number in (None, run_number),
        "is_trusted": message.origin in _TRUSTED,
    }


def _last_checks(run: TaskRun | None) -> Mapping[str, Any] | None:
    if run is None or run.outcome is None:
        return None
    output = clean(run.summary or "", keep_comments=True)
    return {"sha": run.head_before, "outcome": run.outcome, "output": output}


def _forge_check(check: ForgeCheck) -> Mapping[str, Any]:
    names = ("name", "is_done", "conclusion", "url")
    return {name: getattr(check, name) for name in names}


def _has_failed(check: ForgeCheck) -> bool:
    return check.conclusion in _FAILED


def _failed_check(check: ForgeCheck, facts: TaskFacts) -> Mapping[str, Any]:
    """Describe a failed check with its log, as a message has quoted it."""
    quoted = [
        quote.text
        for message in facts.messages
        if message.data.get("sha") == check.sha
        for quote in quotes_of(message)
        if quote.check == check.external_id
    ]
    log = clean(quoted[-1], keep_comments=True) if quoted else None
    return {"name": check.name, "url": check.url, "sha": check.sha, "log": log}
