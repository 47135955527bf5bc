import dataclasses
import uuid
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    Message,
    ResultMessage,
    SystemMessage,
)

from sandbox_tools.coding_agents.agent import Outcome, Place, Tell
from sandbox_tools.coding_agents.private_files import write_privately
from sandbox_tools.coding_agents.prompts import Prompt

_MOST_OF_A_MESSAGE = 32 << 20
# It would be itself that it asks for help, with another session's memory of 234 MB.
_NOT_FOR_ITSELF = ["mcp__sandbox__claude_code"]


class Claude:
    """Claude Code by its Agent SDK: one process for several prompts, which a session outlives."""

    def __init__(self) -> None:
        self._client: ClaudeSDKClient | None = None
        self._options: tuple[object, ...] = ()
        self._has_asked = False
        self._said: deque[str] = deque(maxlen=20)

    async def carry_out(self, prompt: Prompt, place: Place, tell: Tell) -> Outcome:
        """Ask, and tell what comes until the result of this prompt."""
        try:
            outcome = await self._ask(prompt, place, tell)
        except ClaudeSDKError as error:
            outcome = Outcome(exit_code=1, failure=self._about(error))
        except BaseException:
            await self.close()
            raise
        if outcome.failure is not None:
            await self.close()
        return outcome

    async def interrupt(self) -> bool:
        if self._client is None or not self._has_asked:
            return False
        try:
            await self._client.interrupt()
        except ClaudeSDKError:
            return False
        return True

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.disconnect()

    async def _ask(self, prompt: Prompt, place: Place, tell: Tell) -> Outcome:
        self._has_asked = False
        client = await self._connected(prompt, place)
        mark = str(uuid.uuid4())
        await client.query(_one(prompt.prompt, mark))
        self._has_asked = True
        async for message in client.receive_messages():
            place.record.begun = True
            tell(as_json(message))
            if isinstance(message, ResultMessage) and _answers(message, mark):
                return _outcome(message)
        return Outcome(exit_code=1, failure="Claude Code ended without a result.")

    async def _connected(self, prompt: Prompt, place: Place) -> ClaudeSDKClient:
        wanted = _what_needs_another_process(prompt, place)
        if self._client is not None and self._options == wanted:
            return self._client
        await self.close()
        self._said.clear()
        self._client, self._options = ClaudeSDKClient(self._make_options(prompt, place)), wanted
        await self._client.connect()
        return self._client

    def _make_options(self, prompt: Prompt, place: Place) -> ClaudeAgentOptions:
        record = place.record
        return ClaudeAgentOptions(
            session_id=None if record.begun else record.own_id,
            resume=record.own_id if record.begun else None,
            system_prompt={"type": "preset", "preset": "claude_code"},
            model=prompt.model,
            permission_mode=prompt.permission_mode,  # type: ignore[arg-type]
            tools=_built_in(prompt.tools),
            allowed_tools=list(prompt.tools or ()),
            disallowed_tools=_NOT_FOR_ITSELF,
            max_turns=prompt.max_turns,
            cwd=record.cwd,
            env=place.environment,
            mcp_servers=_tool_server(place),
            include_partial_messages=prompt.partial,
            max_buffer_size=_MOST_OF_A_MESSAGE,
            stderr=self._said.append,
        )

    def _about(self, error: ClaudeSDKError) -> str:
        said = " ".join(self._said)[-2000:]
        return f"Claude Code failed: {error}" + (f" It said: {said}" if said else "")


def as_json(message: Message) -> dict[str, Any]:
    """Encode a message of the SDK, with the type that the Messages API and Claude Code call it by."""
    encoded: dict[str, Any] = {"type": _type(message), **_plain(message)}
    if isinstance(message, SystemMessage):
        return {**message.data, "type": "system", "subtype": message.subtype}
    return encoded


def _type(value: object) -> str:
    name = type(value).__name__.removesuffix("Message").removesuffix("Block")
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")


def _plain(value: Any) -> dict[str, Any]:
    return {name: _each(each) for name, each in vars(value).items() if each is not None}


def _each(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {"type": _type(value), **_plain(value)}
    if isinstance(value, list):
        return [_each(each) for each in value]
    return value


def _built_in(tools: tuple[str, ...] | None) -> list[str] | None:
    """Name the built-in tools among those wanted, of which some may come as a rule: `Bash(git status:*)`."""
    if tools is None:
        return None
    names = [tool.partition("(")[0] for tool in tools]
    return list(dict.fromkeys(name for name in names if not name.startswith("mcp__")))


def _what_needs_another_process(prompt: Prompt, place: Place) -> tuple[object, ...]:
    wanted = (prompt.model, prompt.tools, prompt.permission_mode, prompt.max_turns, prompt.partial)
    return (*wanted, place.tool_token, tuple(sorted(place.environment.items())))


async def _one(prompt: str, mark: str) -> AsyncIterator[dict[str, Any]]:
    message = {"role": "user", "content": prompt}
    yield {"type": "user", "message": message, "parent_tool_use_id": None, "uuid": mark}


def _answers(result: ResultMessage, mark: str) -> bool:
    """Tell the result of a prompt from that of a turn which a background task of an earlier one began."""
    if result.user_message_uuids is not None:
        return mark in result.user_message_uuids
    return result.user_message_uuid in (None, mark) and result.origin is None


def _outcome(result: ResultMessage) -> Outcome:
    outcome = Outcome(output=result.result or "", cost=result.total_cost_usd)
    if result.is_error:
        outcome.exit_code = 1
        outcome.failure = _why(result)
    return outcome


def _why(result: ResultMessage) -> str:
    if result.subtype == "error_max_turns":
        return f"Claude Code stopped after {result.num_turns} turns, the most it was allowed."
    said = "; ".join(result.errors or ()) or result.result or result.subtype
    return f"Claude Code failed: {said}"


def _tool_server(place: Place) -> str | dict[str, Any]:
    if place.tool_token is None:
        return {}
    headers = {"Authorization": f"Bearer {place.tool_token}"}
    server = {"type": "http", "url": place.tool_server, "headers": headers}
    return str(write_privately("claude-mcp.json", {"mcpServers": {"sandbox": server}}, place))
