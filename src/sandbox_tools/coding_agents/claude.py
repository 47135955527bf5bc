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

from sandbox_tools.coding_agents.agent import EmitMessage, Outcome, RunContext
from sandbox_tools.coding_agents.private_files import write_private_file
from sandbox_tools.coding_agents.prompts import Prompt

_MAX_MESSAGE_BYTES = 32 << 20
# It would call itself, at 234 MB for each session.
_DISALLOWED_TOOLS = ["mcp__sandbox__claude_code"]


class Claude:
    """Claude Code through its Agent SDK: one process serves several prompts of a session."""

    def __init__(self) -> None:
        self._client: ClaudeSDKClient | None = None
        self._options: tuple[object, ...] = ()
        self._has_queried = False
        self._stderr_lines: deque[str] = deque(maxlen=20)

    async def run_prompt(self, prompt: Prompt, context: RunContext, emit: EmitMessage) -> Outcome:
        """Send the prompt and emit messages up to its result."""
        try:
            outcome = await self._ask(prompt, context, emit)
        except ClaudeSDKError as error:
            outcome = Outcome(exit_code=1, failure=self._failure_message(error))
        except BaseException:
            await self.close()
            raise
        if outcome.failure is not None:
            await self.close()
        return outcome

    async def interrupt(self) -> bool:
        if self._client is None or not self._has_queried:
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

    async def _ask(self, prompt: Prompt, context: RunContext, emit: EmitMessage) -> Outcome:
        self._has_queried = False
        client = await self._connected(prompt, context)
        message_id = str(uuid.uuid4())
        await client.query(_user_message(prompt.prompt, message_id))
        self._has_queried = True
        async for message in client.receive_messages():
            context.record.begun = True
            emit(as_json(message))
            if isinstance(message, ResultMessage) and _is_result_of(message, message_id):
                return _outcome(message)
        return Outcome(exit_code=1, failure="Claude Code ended without a result.")

    async def _connected(self, prompt: Prompt, context: RunContext) -> ClaudeSDKClient:
        wanted = _process_options(prompt, context)
        if self._client is not None and self._options == wanted:
            return self._client
        await self.close()
        self._stderr_lines.clear()
        self._client, self._options = ClaudeSDKClient(self._make_options(prompt, context)), wanted
        await self._client.connect()
        return self._client

    def _make_options(self, prompt: Prompt, context: RunContext) -> ClaudeAgentOptions:
        record = context.record
        return ClaudeAgentOptions(
            session_id=None if record.begun else record.own_id,
            resume=record.own_id if record.begun else None,
            system_prompt={"type": "preset", "preset": "claude_code"},
            model=prompt.model,
            permission_mode=prompt.permission_mode,  # type: ignore[arg-type]
            tools=_built_in(prompt.tools),
            allowed_tools=list(prompt.tools or ()),
            disallowed_tools=_DISALLOWED_TOOLS,
            max_turns=prompt.max_turns,
            cwd=record.cwd,
            env=context.environment,
            mcp_servers=_tool_server(context),
            include_partial_messages=prompt.partial,
            max_buffer_size=_MAX_MESSAGE_BYTES,
            stderr=self._stderr_lines.append,
        )

    def _failure_message(self, error: ClaudeSDKError) -> str:
        stderr = " ".join(self._stderr_lines)[-2000:]
        return f"Claude Code failed: {error}" + (f" Its stderr: {stderr}" if stderr else "")


def as_json(message: Message) -> dict[str, Any]:
    """Encode an SDK message with the type name of the Messages API and Claude Code."""
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
    """Select built-in tools; entries may be rules such as `Bash(git status:*)`."""
    if tools is None:
        return None
    names = [tool.partition("(")[0] for tool in tools]
    return list(dict.fromkeys(name for name in names if not name.startswith("mcp__")))


def _process_options(prompt: Prompt, context: RunContext) -> tuple[object, ...]:
    wanted = (prompt.model, prompt.tools, prompt.permission_mode, prompt.max_turns, prompt.partial)
    return (*wanted, context.tool_token, tuple(sorted(context.environment.items())))


async def _user_message(prompt: str, message_id: str) -> AsyncIterator[dict[str, Any]]:
    message = {"role": "user", "content": prompt}
    yield {"type": "user", "message": message, "parent_tool_use_id": None, "uuid": message_id}


def _is_result_of(result: ResultMessage, message_id: str) -> bool:
    """Check that a result belongs to the prompt, and not to a turn of an earlier background task."""
    if result.user_message_uuids is not None:
        return message_id in result.user_message_uuids
    return result.user_message_uuid in (None, message_id) and result.origin is None


def _outcome(result: ResultMessage) -> Outcome:
    outcome = Outcome(output=result.result or "", cost=result.total_cost_usd)
    if result.is_error:
        outcome.exit_code = 1
        outcome.failure = _failure_message(result)
    return outcome


def _failure_message(result: ResultMessage) -> str:
    if result.subtype == "error_max_turns":
        return f"Claude Code stopped after {result.num_turns} turns (max_turns)."
    reason = "; ".join(result.errors or ()) or result.result or result.subtype
    return f"Claude Code failed: {reason}"


def _tool_server(context: RunContext) -> str | dict[str, Any]:
    if context.tool_token is None:
        return {}
    headers = {"Authorization": f"Bearer {context.tool_token}"}
    server = {"type": "http", "url": context.tool_server, "headers": headers}
    return str(write_private_file("claude-mcp.json", {"mcpServers": {"sandbox": server}}, context))
