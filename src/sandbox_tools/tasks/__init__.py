"""Tools for the agent of a task of the server. They exist only where the server has checked out a task.

    server ── .git/task.json ──► task_get, task_checks, task_ci_log
    server ◄── .git/task-report.md, .git/task-summary.md, .git/task-question.md ── task_report, task_ask

A sandbox has no credential of the server, so files are exchanged: the server writes before a run, and reads after it.
"""

from pathlib import Path

from fastmcp import FastMCP

from sandbox_tools.tasks.provider import TaskToolProvider
from sandbox_tools.tasks.task_file import TaskFiles
from sandbox_tools.toolkit.context import ToolsetContext


def register(server: FastMCP, context: ToolsetContext) -> None:
    root = context.workspace.root
    server.add_provider(TaskToolProvider(TaskFiles(root, Path.home())))
