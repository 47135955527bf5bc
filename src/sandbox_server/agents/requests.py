"""A run of an agent as the command that carries it out; see docs/in-the-sandbox.md."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sandbox_server.domain.agents import AgentRunRequest, FollowUp
from sandbox_server.domain.commands import CommandKind, CommandRequest
from sandbox_server.domain.errors import InvalidRequest
from sandbox_server.domain.ids import new_id

_PIECE = 25_000  # characters: of the 128 KiB that a variable may have, they take 100 at the most
_MOST_PIECES = 64
_LONGEST_PROMPT_KEPT = 1000
# An agent that is told its time is up ends by itself, with a result; one that does not is killed.
_TO_END = timedelta(seconds=60)

_KEPT = "/tmp/.sandbox-agent-run"  # noqa: S108 - in the sandbox
# It is the agent's program itself that gets signals and is waited for. What keeps its last line ends after it, and reads on
# if that cannot be written; lines of other days go.
_COMMAND = (
    f"find {_KEPT}-* -mtime +0 -delete 2>/dev/null; "
    "exec sandbox-tools run-agent "
    "> >(exec tee >(umask 077; tail -n 1 2>/dev/null >{kept_at} || cat >/dev/null))"
)


def as_command(request: AgentRunRequest) -> CommandRequest:
    """Say by which command a run is carried out; what is asked of the agent is in its environment, which nobody else sees."""
    kept_at = f"{_KEPT}-{new_id()}"
    told = json.dumps(request.told_to_agent(), ensure_ascii=False)
    pieces = dict(_pieces(told))
    if len(pieces) > _MOST_PIECES:
        raise InvalidRequest("The prompt is too long. Put it into a file, and name that.")
    return CommandRequest(
        kind=CommandKind.AGENT,
        cmd=_COMMAND.format(kept_at=kept_at),
        envs={**request.envs, **pieces},
        timeout=None if request.timeout is None else request.timeout + _TO_END,
        agent=_kept(request) | {"kept_at": kept_at},
    )


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    for number, start in enumerate(range(0, len(text), _PIECE)):
        yield f"SANDBOX_AGENT_RUN_{number}", text[start : start + _PIECE]


def _kept(request: AgentRunRequest) -> dict[str, Any]:
    kept = {
        "agent": request.agent,
        "prompt": request.prompt[:_LONGEST_PROMPT_KEPT],
        "model": request.model,
        "session_id": request.session_id,
        "timeout_s": None if request.timeout is None else request.timeout.total_seconds(),
    }
    return kept | ({"afterwards": FollowUp.TO_BE_PAUSED} if request.pause_after else {})
