"""A command as it is asked for: what its sandbox is told, and what is kept of it."""

from collections.abc import Mapping
from typing import Any

from sandbox_server.domain.commands import CommandRequest
from sandbox_server.providers.protocol.processes import NewProcess

# As terminals of the SDK have them.
_OF_TERMINALS = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def process_of(tag: str, request: CommandRequest) -> NewProcess:
    envs: Mapping[str, str] = request.envs
    args = ["/bin/bash", "-l", "-c", request.cmd]
    if request.size is not None:
        envs = {**_OF_TERMINALS, **envs}
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


def columns_of(request: CommandRequest) -> dict[str, Any]:
    """Give what is kept of a request, which its environment is not."""
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
    }
