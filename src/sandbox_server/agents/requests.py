"""Converts an agent run to the command that executes it; see docs/in-the-sandbox.md."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sandbox_server.domain.agents import AgentRunRequest, FollowUp
from sandbox_server.domain.commands import CommandKind, CommandRequest
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.ids import new_id

_CHUNK = 25_000  # characters, at most 100 KiB of the 128 KiB that Linux allows per variable
_MAX_CHUNKS = 64
_STORED_PROMPT_LENGTH = 1000
# After its own timeout the agent has this long to end with a result before it is killed.
_GRACE = timedelta(seconds=60)

_RESULT_FILE = "/tmp/.sandbox-agent-run"  # noqa: S108 - in the sandbox
# `exec`: signals and the exit code are the agent's own. A side process keeps the last line, the result, in a file and reads on
# if that cannot be written; files of earlier days are removed.
_COMMAND = (
    f"find {_RESULT_FILE}-* -mtime +0 -delete 2>/dev/null; "
    "exec sandbox-tools run-agent "
    "> >(exec tee >(umask 077; tail -n 1 2>/dev/null >{result_file} || cat >/dev/null))"
)


def to_command_request(request: AgentRunRequest) -> CommandRequest:
    """Build the command of a run; the prompt is passed in the environment, which other users cannot read."""
    result_file = f"{_RESULT_FILE}-{new_id()}"
    document = json.dumps(request.agent_document(), ensure_ascii=False)
    variables = dict(_split(document))
    if len(variables) > _MAX_CHUNKS:
        raise InvalidRequest("The prompt is too long. Write it to a file and refer to the file.")
    return CommandRequest(
        kind=CommandKind.AGENT,
        cmd=_COMMAND.format(result_file=result_file),
        envs={**request.envs, **variables},
        timeout=None if request.timeout is None else request.timeout + _GRACE,
        agent=_parameters(request) | {"kept_at": result_file},
    )


def _split(text: str) -> Iterator[tuple[str, str]]:
    for number, start in enumerate(range(0, len(text), _CHUNK)):
        yield f"SANDBOX_AGENT_RUN_{number}", text[start : start + _CHUNK]


def _parameters(request: AgentRunRequest) -> dict[str, Any]:
    parameters = {
        "agent": request.agent,
        "prompt": request.prompt[:_STORED_PROMPT_LENGTH],
        "model": request.model,
        "session_id": request.session_id,
        "timeout_s": None if request.timeout is None else request.timeout.total_seconds(),
    }
    return parameters | ({"afterwards": FollowUp.TO_BE_PAUSED} if request.pause_after else {})
