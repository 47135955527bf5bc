from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.process import process_pb as pb

from sandbox_engine.commands import CommandRequest, TerminalSize
from sandbox_engine.envd.protocol.access import basic_user
from sandbox_engine.rootfs.accounts import (
    Account,
    InvalidPath,
    UnknownUser,
    resolve_path,
)

if TYPE_CHECKING:
    from sandbox_engine.sandboxes.sandbox import Sandbox

_LOGGED = re.compile(r'level=error msg=("(?:[^"\\]|\\.)*")')
_EXHAUSTED = (
    "resource temporarily unavailable",
    "cannot allocate memory",
    "too many open files",
    "no space left on device",
)
_SIXTEEN_BITS = 0xFFFF


def resolve(
    request: pb.StartRequest, sandbox: Sandbox, authorization: str | None
) -> CommandRequest:
    """Validate a start request and resolve it for this sandbox."""
    config = request.process or pb.ProcessConfig()
    account = _account(sandbox, basic_user(authorization))
    _check(config, request.tag)
    workdir = _workdir(sandbox, config.cwd, account)
    return CommandRequest(
        cmd=config.cmd,
        args=tuple(config.args),
        envs=dict(config.envs),
        cwd=config.cwd if config.has_field("cwd") else None,
        tag=request.tag if request.has_field("tag") else None,
        terminal=None if request.pty is None else terminal_size(request.pty),
        stdin=request.stdin or not request.has_field("stdin"),
        account=account,
        workdir=workdir,
        environment=_environment(sandbox, account, config.envs),
    )


def terminal_size(pty: pb.PTY) -> TerminalSize:
    size = pty.size or pb.PTY.Size()
    return TerminalSize(rows=size.rows & _SIXTEEN_BITS, cols=size.cols & _SIXTEEN_BITS)


def start_error(request: CommandRequest, text: str) -> ConnectError:
    """Convert a start failure to envd's message."""
    cause = _cause(text)
    size = request.terminal
    what = f"error starting process '{' '.join(request.argv)}'"
    if size is not None:
        what = (
            f"error starting pty with command '{' '.join(request.argv)}' in dir "
            f"'{request.workdir}' with '{size.cols}' cols and '{size.rows}' rows"
        )
    exhausted = any(sign in text.lower() for sign in _EXHAUSTED)
    code = Code.RESOURCE_EXHAUSTED if exhausted else Code.INVALID_ARGUMENT
    return ConnectError(code, f"{what}: {cause}")


def _cause(text: str) -> str:
    # runc: time="..." level=error msg="exec failed: unable to start container process: ..." If its
    # helper cannot create a thread, a Go crash of many lines comes first.
    logged = _LOGGED.search(text)
    message = str(json.loads(logged[1])) if logged else text.partition("\n")[0]
    return message.rpartition("container process: ")[2]


def _account(sandbox: Sandbox, name: str | None) -> Account:
    try:
        return sandbox.accounts.find(sandbox.default_user if name is None else name)
    except UnknownUser as error:
        text = f"invalid username: '{name}'"
        if name is None:
            text = f"invalid default user: '{sandbox.default_user}'"
        raise ConnectError(Code.UNAUTHENTICATED, text) from error


def _check(config: pb.ProcessConfig, tag: str) -> None:
    envs: Mapping[str, str] = config.envs
    if not config.cmd:
        raise ConnectError(Code.INVALID_ARGUMENT, "error starting process '': exec: no command")
    if wrong := [name for name in envs if not name or "=" in name]:
        raise ConnectError(
            Code.INVALID_ARGUMENT, f"invalid environment variable name: {wrong[0]!r}"
        )
    texts: Iterable[str] = (config.cmd, config.cwd, tag, *config.args, *envs, *envs.values())
    if any("\0" in text for text in texts):
        raise ConnectError(
            Code.INVALID_ARGUMENT,
            "command, arguments, environment, directory and tag must not contain NUL",
        )


def _environment(sandbox: Sandbox, account: Account, envs: Mapping[str, str]) -> Mapping[str, str]:
    environment = {**sandbox.environment(account), **envs}
    try:
        "".join((*environment, *environment.values(), account.home, account.shell)).encode()
    except UnicodeEncodeError as error:  # the sandbox's own passwd may contain any bytes
        raise ConnectError(
            Code.FAILED_PRECONDITION, "the sandbox's environment is not valid UTF-8"
        ) from error
    return environment


def _workdir(sandbox: Sandbox, cwd: str, account: Account) -> str:
    try:
        path = resolve_path(cwd or sandbox.default_workdir, account)
    except InvalidPath as error:
        raise ConnectError(Code.INVALID_ARGUMENT, str(error)) from error
    try:
        sandbox.root.stat(path)
    except FileNotFoundError as error:
        raise ConnectError(Code.INVALID_ARGUMENT, f"cwd '{path}' does not exist") from error
    except OSError as error:
        raise ConnectError(
            Code.INVALID_ARGUMENT, f"error checking cwd '{path}': {error.strerror}"
        ) from error
    return path
