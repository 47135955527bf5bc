import signal
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sandbox_engine.commands import (
    Command,
    CommandRequest,
    Ended,
    SandboxGone,
)
from sandbox_engine.commands.transcript import OnLine, Transcript
from sandbox_engine.keeper.client import LaunchFailed
from sandbox_engine.rootfs.accounts import (
    Account,
    InvalidPath,
    UnknownUser,
    resolve_path,
)
from sandbox_engine.rootfs.shared_descriptor import RootClosed
from sandbox_engine.sandboxes.sandbox import Sandbox, SandboxNotRunning


@dataclass(frozen=True)
class ShellCommand:
    """A command line of the engine itself, run like those of users.

    Without a working directory it starts in the user's home. Those with `is_noted` appear in the
    sandbox's journal.
    """

    script: str
    user: str
    workdir: str = ""
    envs: Mapping[str, str] = field(default_factory=dict)
    is_noted: bool = True


@dataclass(frozen=True)
class Finished:
    """Result of a command line with its last lines of output."""

    ended: Ended
    output: str
    has_expired: bool = False

    @property
    def succeeded(self) -> bool:
        return self.ended.exit_code == 0


class NotStarted(Exception):
    """The command line could not be started; the message is the reason."""


async def start(
    sandbox: Sandbox, command: ShellCommand, *, timeout: timedelta | None = None
) -> Command:
    """Start a command line in the background; it is killed at its timeout."""
    deadline = None if timeout is None else datetime.now(UTC) + timeout
    try:
        return await sandbox.commands.start(_request(sandbox, command), deadline=deadline)
    except (LaunchFailed, SandboxGone, SandboxNotRunning, RootClosed) as error:
        raise NotStarted(str(error)) from error


async def run(
    sandbox: Sandbox,
    command: ShellCommand,
    *,
    timeout: timedelta | None = None,
    linger: timedelta | None = None,
    on_line: OnLine | None = None,
) -> Finished:
    """Run a command line to its end; it is killed at its timeout or when the caller is cancelled.

    Background processes may keep its outputs open: they are read for `linger` more.
    """
    started = await start(sandbox, command, timeout=timeout)
    if linger is not None:
        started.linger(linger)
    try:
        return await follow(started, on_line=on_line)
    finally:
        if started.ended is None:
            started.signal(signal.SIGKILL)


async def follow(command: Command, *, on_line: OnLine | None = None) -> Finished:
    """Read a command's output until it ends."""
    transcript = Transcript(on_line)
    with closing(command.follow()) as follower:
        while not isinstance(item := await follower.receive(), Ended):
            transcript.add(item)
    transcript.close()
    return Finished(item, transcript.tail, has_expired=command.has_expired)


def _request(sandbox: Sandbox, command: ShellCommand) -> CommandRequest:
    account = _account(sandbox, command.user)
    return CommandRequest(
        cmd=_shell(sandbox),
        args=("-l", "-c", command.script),
        envs=dict(command.envs),
        cwd=command.workdir or None,
        tag=None,
        terminal=None,
        stdin=False,
        account=account,
        workdir=_workdir(sandbox, command.workdir, account),
        environment={**sandbox.environment_of_template(account), **command.envs},
        is_noted=command.is_noted,
    )


def _account(sandbox: Sandbox, name: str) -> Account:
    try:
        account = sandbox.accounts.find(name)
        f"{account.home}{account.shell}".encode()
    except UnknownUser as error:
        raise NotStarted(f"the image has no user '{name}'") from error
    except UnicodeEncodeError as error:
        raise NotStarted(f"the image's entry of user '{name}' is not valid UTF-8") from error
    return account


def _shell(sandbox: Sandbox) -> str:
    return "/bin/bash" if _exists(sandbox, "/bin/bash") else "/bin/sh"


def _workdir(sandbox: Sandbox, workdir: str, account: Account) -> str:
    try:
        path = resolve_path(workdir, account)
    except InvalidPath as error:
        raise NotStarted(str(error)) from error
    if not _exists(sandbox, path):
        raise NotStarted(f"the working directory '{path}' does not exist")
    return path


def _exists(sandbox: Sandbox, path: str) -> bool:
    try:
        sandbox.root.stat(path)
    except OSError:
        return False
    return True
