"""`python -m sandbox_client.workspace`, which `docker/sandbox/start-e2b-sandbox.sh` runs when a server is there."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from sandbox_client import AsyncSandbox, AsyncSandboxClient
from sandbox_client.console.escape import visible
from sandbox_client.console.terminal import LEFT, is_window, show, window_size
from sandbox_client.errors import SandboxError
from sandbox_client.models import SandboxRead, SandboxState
from sandbox_client.models.sandboxes import SandboxTarget
from sandbox_client.workspace.config import FILE, Project, ProjectNotUnderstood
from sandbox_client.workspace.git_history import GitFailed
from sandbox_client.workspace.messages import line_of, lines_of, lines_of_waiting
from sandbox_client.workspace.plan import Direction
from sandbox_client.workspace.remote import ROOT, SandboxSideFailed
from sandbox_client.workspace.sync import Report, paths_of
from sandbox_client.workspace.unsaved import find_unsaved
from sandbox_client.workspace.watch import Following
from sandbox_client.workspace.workspace import (
    NoSandbox,
    Workspace,
    begin_workspace,
    find_latest_sandbox,
    find_sandbox,
    find_workspace,
    open_workspace,
)

Act = Callable[[Path, argparse.Namespace], Awaitable[int]]

_NEVER_RAN = (SandboxState.QUEUED, SandboxState.STARTING)


class NotDeleted(Exception):
    """The sandbox is kept, since a delete may lose something; the text says how to go on."""


_FAILURES = (
    GitFailed,
    NoSandbox,
    NotDeleted,
    OSError,
    ProjectNotUnderstood,
    SandboxError,
    SandboxSideFailed,
)


def main(words: Sequence[str] | None = None, *, program: str = "start-e2b-sandbox.sh") -> int:
    parser = _parser(program)
    given = parser.parse_args(_with_act(sys.argv[1:] if words is None else words))
    try:
        directory = Path(given.directory).resolve()
        if not directory.is_dir() and given.act != "delete":
            return _fail(program, f"{directory} is no directory.")
        return asyncio.run(_act(given, directory))
    except _FAILURES as error:
        return _fail(program, str(error))
    except KeyboardInterrupt:
        return 130


def _with_act(words: Sequence[str]) -> list[str]:
    """Have a directory alone mean a start there."""
    named = next((word for word in words if not word.startswith("-")), "start")
    return [*words] if named in _ACTS else ["start", *words]


async def _act(given: argparse.Namespace, directory: Path) -> int:
    return await _ACTS[given.act](directory, given)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Work on a directory in a sandbox, where it is /workspace. What git ignores stays here. "
        f"{FILE} in the directory says what its sandbox is to have.",
    )
    parser.add_argument("act", nargs="?", default="start", choices=_ACTS, help=_HELP)
    parser.add_argument("directory", nargs="?", default=".", help="this one, if left out")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="start: carry changes over in both directions meanwhile",
    )
    parser.add_argument(
        "--no-shell", action="store_true", help="start: end when the sandbox is ready"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="delete: delete the sandbox with whatever was never brought back",
    )
    return parser


_HELP = (
    "start (the default): create or resume the sandbox, bring it what is here, open a shell in it. "
    "pull: bring here what changed there. push: bring there what changed here. sync: both. "
    "status: tell what differs. delete: delete the sandbox, if everything in it was brought back."
)


async def _start(directory: Path, given: argparse.Namespace) -> int:
    project = Project.read(directory)
    _tell_variables(project)
    async with AsyncSandboxClient() as client:
        workspace = await begin_workspace(client, directory, on_progress=_progress())
        await _prepare(workspace)
        if given.no_shell:
            return 0
        if not is_window():
            raise SandboxSideFailed("A shell needs a terminal; --no-shell starts without one.")
        async with _kept_together(workspace) if given.watch else nullcontext():
            code = await _open_shell(workspace)
        await _tell_what_is_left(workspace, watched=given.watch)
        return code


async def _prepare(workspace: Workspace) -> None:
    sandbox = workspace.sandbox
    _say(f"sandbox {sandbox.id} ({sandbox.record.template})")
    if await workspace.history.give():
        _say("git history: given to the sandbox")
    _say_all(lines_of(await workspace.shared.bring_together(Direction.PUSH)))
    await workspace.set_up(tell=_say, write=_write)


def _tell_variables(project: Project) -> None:
    given, missing = project.variables()
    if given:
        _say(f"environment: {', '.join(given)}")
    if missing:
        _say(f"environment: missing here, so not set there: {', '.join(missing)}")


async def _open_shell(workspace: Workspace) -> int:
    cols, rows = window_size()
    envs, _ = workspace.project.variables()
    terminal = await workspace.sandbox.open_terminal(cols=cols, rows=rows, cwd=ROOT, envs=envs)
    async with terminal:
        code = await show(terminal)
    return 0 if code is LEFT else code


@asynccontextmanager
async def _kept_together(workspace: Workspace) -> AsyncIterator[None]:
    """Follow both sides; what is to be told waits until the shell is left."""
    told: list[str] = []

    def tell(report: Report) -> None:
        told.extend(line for line in lines_of(report) if line not in told[-1:])

    following = Following(
        workspace.shared, workspace.near, workspace.sandbox, tell=tell, complain=told.append
    )
    task = asyncio.create_task(following.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        _say_all(told)


async def _tell_what_is_left(workspace: Workspace, *, watched: bool) -> None:
    if watched:
        _say_all(lines_of(await workspace.shared.bring_together(Direction.BOTH)))
    await _tell_commits(workspace)
    plan = await workspace.shared.compare()
    _say_all(lines_of_waiting(paths_of(plan.push), paths_of(plan.pull)))
    if plan.pull:
        _say("`pull` brings here what changed there")
    _say(
        "the sandbox goes on until it is idle, and is there again at the next start; `delete` ends it"
    )


async def _tell_commits(workspace: Workspace) -> None:
    for branch in await workspace.history.bring():
        _say(f"commits of the sandbox: git merge sandbox/{branch}")


def _carry(direction: Direction) -> Act:
    async def carry(directory: Path, _: argparse.Namespace) -> int:
        async with AsyncSandboxClient() as client:
            workspace = await find_workspace(client, directory)
            report = await workspace.shared.bring_together(direction)
            _say_all(lines_of(report))
            _say_all(lines_of_waiting(report.to_push, report.to_pull))
            if Direction.PULL in direction:
                await _tell_commits(workspace)
            return 1 if report.refused else 0

    return carry


async def _status(directory: Path, _: argparse.Namespace) -> int:
    async with AsyncSandboxClient() as client:
        sandbox = await find_sandbox(client, directory)
        _say(f"sandbox {sandbox.id} is {sandbox.record.state}")
        plan = await (await find_workspace(client, directory)).shared.compare()
        _say_all(lines_of_waiting(paths_of(plan.push), paths_of(plan.pull)))
        for path in plan.kept_twice:
            _say(f"changed on both sides: {path}")
    return 0


async def _delete(directory: Path, given: argparse.Namespace) -> int:
    async with AsyncSandboxClient() as client:
        sandbox = await find_latest_sandbox(client, directory)
        if sandbox is None or _is_gone(sandbox.record):
            _say(f"{directory} has no sandbox: nothing to delete")
            return 0
        if not given.force:
            await _require_nothing_unsaved(sandbox, directory)
        await sandbox.delete()
        _say(f"sandbox {sandbox.id} is deleted")
    return 0


def _is_gone(record: SandboxRead) -> bool:
    return record.target is SandboxTarget.GONE and record.state is not SandboxState.FAILED


async def _require_nothing_unsaved(sandbox: AsyncSandbox, directory: Path) -> None:
    if sandbox.record.state in _NEVER_RAN:
        return
    if sandbox.record.state is SandboxState.FAILED:
        raise _unchecked(sandbox, f"the sandbox has failed ({sandbox.record.state_reason})")
    if not directory.is_dir() or not any(directory.iterdir()):
        raise _unchecked(sandbox, f"there is nothing in {directory} to compare it with")
    try:
        unsaved = await find_unsaved(await open_workspace(sandbox, directory))
    except _FAILURES as error:
        raise _unchecked(sandbox, str(error)) from error
    if unsaved:
        _say_all(unsaved.lines())
        first = "Run `pull` first" if unsaved.can_be_pulled else "Bring it back yourself first"
        raise NotDeleted(
            f"Sandbox {sandbox.id} is not deleted, since this would be lost. {first}, or give it up: "
            "`delete --force`."
        )


def _unchecked(sandbox: AsyncSandbox, reason: str) -> NotDeleted:
    return NotDeleted(
        f"Sandbox {sandbox.id} is not deleted, since what would be lost cannot be checked: "
        f"{reason.rstrip('.')}. Delete it all the same with `delete --force`."
    )


_ACTS: dict[str, Act] = {
    "start": _start,
    "pull": _carry(Direction.PULL),
    "push": _carry(Direction.PUSH),
    "sync": _carry(Direction.BOTH),
    "status": _status,
    "delete": _delete,
}


def _progress() -> Callable[[SandboxRead], None]:
    """Tell each line once."""
    last = ""

    def tell(record: SandboxRead) -> None:
        nonlocal last
        line = line_of(record)
        if line != last:
            _say(line)
        last = line

    return tell


def _say(line: str) -> None:
    """Print a line; names of files and branches come from the sandbox, and may have escapes in them."""
    _write(visible(line, keep="\n") + "\n")


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        _say(line)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _fail(program: str, reason: str) -> int:
    _say(f"{program.removesuffix('.sh')}: {reason}")
    return 1
