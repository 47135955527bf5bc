"""`sbx workspace`; `docker/sandbox/start-e2b-sandbox.sh` runs it as `python -m sandbox_client.workspace`."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from sandbox_client import AsyncSandbox, AsyncSandboxClient
from sandbox_client.console.escape import escape_controls
from sandbox_client.console.terminal import DETACHED, is_terminal, show, terminal_size
from sandbox_client.errors import SandboxError
from sandbox_client.models import SandboxRead, SandboxState
from sandbox_client.models.sandboxes import SandboxTarget
from sandbox_client.workspace.config import FILE, InvalidConfig, WorkspaceConfig
from sandbox_client.workspace.git_history import GitFailed
from sandbox_client.workspace.messages import line_of, pending_lines, report_lines
from sandbox_client.workspace.plan import Direction
from sandbox_client.workspace.remote import ROOT, RemoteEndpointError
from sandbox_client.workspace.sync import SyncReport, paths_of
from sandbox_client.workspace.unsaved import find_unsaved
from sandbox_client.workspace.watch import DirectoryWatch
from sandbox_client.workspace.workspace import (
    NoSandbox,
    Workspace,
    find_latest_sandbox,
    find_sandbox,
    find_workspace,
    open_workspace,
    start_workspace,
)

Action = Callable[[Path, argparse.Namespace], Awaitable[int]]

_NEVER_RAN = (SandboxState.QUEUED, SandboxState.STARTING)


class NotDeleted(Exception):
    """Deleting the sandbox may lose work; the text says how to proceed."""


_FAILURES = (
    GitFailed,
    NoSandbox,
    NotDeleted,
    OSError,
    InvalidConfig,
    SandboxError,
    RemoteEndpointError,
)


def main(words: Sequence[str] | None = None, *, program: str = "start-e2b-sandbox.sh") -> int:
    parser = _parser(program)
    words = _with_action(sys.argv[1:] if words is None else words)
    args = parser.parse_intermixed_args(words)  # options may stand between action and directory
    try:
        directory = Path(args.directory).resolve()
        if not directory.is_dir() and args.action != "delete":
            return _fail(program, f"{directory} is not a directory.")
        return asyncio.run(_run(args, directory))
    except _FAILURES as error:
        return _fail(program, str(error))
    except KeyboardInterrupt:
        return 130


def _with_action(words: Sequence[str]) -> list[str]:
    """Default to `start`."""
    named = next((word for word in words if not word.startswith("-")), "start")
    return [*words] if named in _ACTIONS else ["start", *words]


async def _run(args: argparse.Namespace, directory: Path) -> int:
    return await _ACTIONS[args.action](directory, args)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Work on a project directory in a sandbox, as /workspace. Files ignored by git are not synchronized. "
        f"{FILE} in the directory configures the sandbox; without it, GITHUB_TOKEN and the keys of coding agents "
        "that are set here are passed to the sandbox.",
    )
    parser.add_argument("action", nargs="?", default="start", choices=_ACTIONS, help=_HELP)
    parser.add_argument(
        "directory", nargs="?", default=".", help="project directory (default: the current one)"
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="start: synchronize changes in both directions while the shell is open",
    )
    parser.add_argument(
        "--no-shell", action="store_true", help="start: exit when the sandbox is ready"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="delete: delete the sandbox even if work in it was not pulled",
    )
    return parser


_HELP = (
    "start (default): create or resume the sandbox, push local changes, open a shell. "
    "pull: copy changes from the sandbox. push: copy changes to the sandbox. sync: both. "
    "status: show differences. delete: delete the sandbox if all work in it was pulled."
)


async def _start(directory: Path, args: argparse.Namespace) -> int:
    project = WorkspaceConfig.read(directory)
    _print_variables(project)
    async with AsyncSandboxClient() as client:
        workspace = await start_workspace(client, directory, on_progress=_progress())
        await _prepare(workspace)
        if args.no_shell:
            return 0
        if not is_terminal():
            raise RemoteEndpointError(
                "The shell needs a terminal. Use --no-shell to start without one."
            )
        async with _watched(workspace) if args.watch else nullcontext():
            code = await _open_shell(workspace)
        await _print_differences(workspace, watched=args.watch)
        return code


async def _prepare(workspace: Workspace) -> None:
    sandbox = workspace.sandbox
    _print(f"sandbox {sandbox.id} ({sandbox.record.template})")
    if await workspace.history.push():
        _print("git history: copied to the sandbox")
    _print_lines(report_lines(await workspace.shared.synchronize(Direction.PUSH)))
    await workspace.set_up(tell=_print, write=_write)


def _print_variables(project: WorkspaceConfig) -> None:
    envs, missing = project.variables()
    if envs:
        _print(f"environment: {', '.join(envs)}")
    if missing:
        _print(f"environment: not set locally, skipped: {', '.join(missing)}")


async def _open_shell(workspace: Workspace) -> int:
    cols, rows = terminal_size()
    envs, _ = workspace.project.variables()
    terminal = await workspace.sandbox.open_terminal(cols=cols, rows=rows, cwd=ROOT, envs=envs)
    async with terminal:
        code = await show(terminal)
    return 0 if code is DETACHED else code


@asynccontextmanager
async def _watched(workspace: Workspace) -> AsyncIterator[None]:
    """Synchronize in the background; messages are printed when the shell is closed."""
    lines: list[str] = []

    def tell(report: SyncReport) -> None:
        lines.extend(line for line in report_lines(report) if line not in lines[-1:])

    following = DirectoryWatch(
        workspace.shared, workspace.local, workspace.sandbox, on_report=tell, on_error=lines.append
    )
    task = asyncio.create_task(following.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        _print_lines(lines)


async def _print_differences(workspace: Workspace, *, watched: bool) -> None:
    if watched:
        _print_lines(report_lines(await workspace.shared.synchronize(Direction.BOTH)))
    await _print_commits(workspace)
    plan = await workspace.shared.compare()
    _print_lines(pending_lines(paths_of(plan.push), paths_of(plan.pull)))
    if plan.pull:
        _print("run `pull` to copy the sandbox's changes here")
    _print(
        "the sandbox keeps running until it is idle; `start` opens it again, `delete` deletes it"
    )


async def _print_commits(workspace: Workspace) -> None:
    for branch in await workspace.history.fetch():
        _print(f"new commits in the sandbox; merge them with: git merge sandbox/{branch}")


def _carry(direction: Direction) -> Action:
    async def carry(directory: Path, _: argparse.Namespace) -> int:
        async with AsyncSandboxClient() as client:
            workspace = await find_workspace(client, directory)
            report = await workspace.shared.synchronize(direction)
            _print_lines(report_lines(report))
            _print_lines(pending_lines(report.to_push, report.to_pull))
            if Direction.PULL in direction:
                await _print_commits(workspace)
            return 1 if report.refused else 0

    return carry


async def _status(directory: Path, _: argparse.Namespace) -> int:
    async with AsyncSandboxClient() as client:
        sandbox = await find_sandbox(client, directory)
        _print(f"sandbox {sandbox.id} is {sandbox.record.state}")
        plan = await (await find_workspace(client, directory)).shared.compare()
        _print_lines(pending_lines(paths_of(plan.push), paths_of(plan.pull)))
        for path in plan.conflicts:
            _print(f"changed on both sides: {path}")
    return 0


async def _delete(directory: Path, args: argparse.Namespace) -> int:
    async with AsyncSandboxClient() as client:
        sandbox = await find_latest_sandbox(client, directory)
        if sandbox is None or _is_gone(sandbox.record):
            _print(f"{directory} has no sandbox; nothing to delete")
            return 0
        if not args.force:
            await _require_nothing_unsaved(sandbox, directory)
        await sandbox.delete()
        _print(f"sandbox {sandbox.id} deleted")
    return 0


def _is_gone(record: SandboxRead) -> bool:
    return record.target is SandboxTarget.GONE and record.state is not SandboxState.FAILED


async def _require_nothing_unsaved(sandbox: AsyncSandbox, directory: Path) -> None:
    if sandbox.record.state in _NEVER_RAN:
        return
    if sandbox.record.state is SandboxState.FAILED:
        raise _unchecked(sandbox, f"the sandbox has failed ({sandbox.record.state_reason})")
    if not directory.is_dir() or not any(directory.iterdir()):
        raise _unchecked(
            sandbox, f"{directory} is missing or empty, so there is nothing to compare with"
        )
    try:
        unsaved = await find_unsaved(await open_workspace(sandbox, directory))
    except _FAILURES as error:
        raise _unchecked(sandbox, str(error)) from error
    if unsaved:
        _print_lines(unsaved.lines())
        first = "Run `pull` first" if unsaved.can_be_pulled else "Copy it out of the sandbox first"
        raise NotDeleted(
            f"Sandbox {sandbox.id} was not deleted because this work would be lost. {first}, or discard "
            "it with `delete --force`."
        )


def _unchecked(sandbox: AsyncSandbox, reason: str) -> NotDeleted:
    return NotDeleted(
        f"Sandbox {sandbox.id} was not deleted because it cannot be checked for unsaved work: "
        f"{reason.rstrip('.')}. Delete it anyway with `delete --force`."
    )


_ACTIONS: dict[str, Action] = {
    "start": _start,
    "pull": _carry(Direction.PULL),
    "push": _carry(Direction.PUSH),
    "sync": _carry(Direction.BOTH),
    "status": _status,
    "delete": _delete,
}


def _progress() -> Callable[[SandboxRead], None]:
    """Print each distinct line once."""
    last = ""

    def tell(record: SandboxRead) -> None:
        nonlocal last
        line = line_of(record)
        if line != last:
            _print(line)
        last = line

    return tell


def _print(line: str) -> None:
    """Print a line; names of files and branches come from the sandbox and may contain escape sequences."""
    _write(escape_controls(line, keep="\n") + "\n")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        _print(line)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _fail(program: str, reason: str) -> int:
    _print(f"{program.removesuffix('.sh')}: {reason}")
    return 1
