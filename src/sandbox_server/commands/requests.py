"""Converts a command request to a process and to columns."""

from collections.abc import Mapping
from typing import Any

from sandbox_server.domain.commands import CommandRequest
from sandbox_server.providers.protocol.processes import NewProcess

# The same as for terminals of the SDK.
_TERMINAL_ENVS = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def to_process(tag: str, request: CommandRequest) -> NewProcess:
    envs: Mapping[str, str] = request.envs
    args = ["/bin/bash", "-l", "-c", request.cmd]
    if request.size is not None:
        envs = {**_TERMINAL_ENVS, **envs}
        args = args if request.cmd else ["/bin/bash", "-i", "-l"]
    return NewProcess(
        tag=tag,
        args=args,
        cwd=request.cwd,
        envs=envs,
        user=request.user,
        stdin=request.stdin,
        size=request.size,
    )


def to_columns(request: CommandRequest) -> dict[str, Any]:
    """Return the columns to store. Environment variables are not stored."""
    size = request.size
    return {
        "kind": request.kind,
        "name": request.name,
        "cmd": request.cmd,
        "cwd": request.cwd,
        "user": request.user,
        "background": request.background,
        "stdin": request.stdin,
        "timeout": request.timeout,
        "cols": None if size is None else size.cols,
        "rows": None if size is None else size.rows,
        "agent": request.agent,
        "code": request.code,
    }
