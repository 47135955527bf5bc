import re
from typing import Annotated

from fastmcp.exceptions import ToolError
from pydantic import Field

from sandbox_tools.tasks.description import describe_checks, describe_log, describe_task
from sandbox_tools.tasks.task_file import CheckedOutTask, TaskFiles

REPORT_FILE = "task-report.md"
SUMMARY_FILE = "task-summary.md"
QUESTION_FILE = "task-question.md"
FLAKY_FILE = "task-flaky.md"

_CONVENTIONAL = "conventional"
_SUBJECT = re.compile(
    r"(feat|fix|docs|style|refactor|perf|test|build|ci|chore|revert)(\([^()\r\n]+\))?!?: \S.*"
)


class TaskTools:
    """Tools that tell the agent its task, and tell the server what came of it."""

    def __init__(self, files: TaskFiles) -> None:
        self._files = files

    async def task_get(self) -> str:
        """Read the task that you work on: instructions, issue, comments and reviews, branch, and how to finish.

        Call it first, and again if you have lost the context. It shows the state at the start of this run.
        """
        return describe_task(self._task())

    async def task_checks(self) -> str:
        """Read the command of the repository's checks, their last result, and the checks of the published branch at the forge.

        The server runs the command after you, and publishes only work that passes. Run it yourself first.
        """
        return describe_checks(self._task())

    async def task_ci_log(
        self,
        check: Annotated[
            str | None,
            Field(
                description="Name of a failed check, from task_checks. Default: all failed checks."
            ),
        ] = None,
    ) -> str:
        """Read the part of the logs of failed checks at the forge that says why they failed."""
        return describe_log(self._task(), check)

    async def task_report(
        self,
        title: Annotated[
            str,
            Field(
                min_length=1,
                max_length=120,
                description="Title of the pull request: one line, for example `fix(parser): accept empty input`.",
            ),
        ],
        body: Annotated[
            str,
            Field(
                min_length=1,
                max_length=60_000,
                description="Description of the pull request in Markdown: what you changed, why, and how you tested it.",
            ),
        ],
        summary: Annotated[
            str,
            Field(
                max_length=4_000,
                description="What you tell the person who gave you the task, in a few sentences.",
            ),
        ] = "",
        flaky: Annotated[
            str,
            Field(
                max_length=500,
                description="Only if checks at the forge failed and the code is not the cause: the reason. Change nothing"
                " then: the failed jobs are rerun once, and title and body are not used.",
            ),
        ] = "",
    ) -> str:
        """Report the finished work. Call it last, after you have committed.

        The server then runs the checks, pushes the branch and opens or updates the pull request. A second report replaces the first.
        """
        task = self._task()
        if flaky.strip():
            return _report_flaky(task, flaky)
        _remove(task, FLAKY_FILE)
        _require_title(task, title)
        _write(task, REPORT_FILE, f"{title.strip()}\n\n{body.strip()}\n")
        _write(task, SUMMARY_FILE, f"{summary.strip()}\n")
        return "Reported. End your run now; the server publishes what you have committed."

    async def task_ask(
        self,
        question: Annotated[
            str,
            Field(
                min_length=1,
                max_length=20_000,
                description="The question with all that is needed to answer it, and the answers that you consider.",
            ),
        ],
    ) -> str:
        """Ask the person who gave you the task for a decision that you cannot make. The task waits for the answer.

        Commit first: your work is kept, and you are started again with the answer. Nobody answers during this run.
        """
        _write(self._task(), QUESTION_FILE, f"{question.strip()}\n")
        return "Asked. End your run now; you are started again with the answer."

    def _task(self) -> CheckedOutTask:
        task = self._files.find()
        if task is None:
            raise ToolError(
                "There is no task in this sandbox. The task_ tools work only where the server has checked out a"
                " task; answer in your final message instead."
            )
        return task


def _report_flaky(task: CheckedOutTask, reason: str) -> str:
    _remove(task, REPORT_FILE)
    _write(task, FLAKY_FILE, f"{reason.strip()}\n")
    return "Reported. End your run now; the failed jobs are rerun if that has not been done before."


def _require_title(task: CheckedOutTask, title: str) -> None:
    if "\n" in title.strip():
        raise ToolError("The title has several lines. Put all but the first into the body.")
    if task.text("commit_style") == _CONVENTIONAL and not _SUBJECT.fullmatch(title.strip()):
        raise ToolError(
            "The title is not a conventional commit subject. Write `type(scope): what it does`, where type is feat,"
            " fix, docs, style, refactor, perf, test, build, ci, chore or revert, for example"
            " `fix(parser): accept empty input`."
        )


def _write(task: CheckedOutTask, name: str, text: str) -> None:
    """Replace a file at once, so that the server never reads half of it."""
    file = task.git_directory / name
    unfinished = file.with_name(f"{name}.new")
    unfinished.write_text(text, errors="replace")
    unfinished.replace(file)


def _remove(task: CheckedOutTask, name: str) -> None:
    (task.git_directory / name).unlink(missing_ok=True)
