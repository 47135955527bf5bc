import os
from importlib import import_module
from typing import Annotated, Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools import coding_agents
from sandbox_tools.agents.progress import summarize
from sandbox_tools.toolkit.annotations import REACHES_OUT
from sandbox_tools.toolkit.context import ToolsetContext

_PORT = int(os.environ.get("SANDBOX_AGENT_SERVER_PORT", "3000"))


class AgentAnswer(BaseModel):
    """What an agent came to."""

    output: str = Field(description="The agent's final answer.")
    session_id: str = Field(description="Give it with the next prompt to go on with this work.")
    changed_files: list[str] | None = Field(
        description="Files that are new, changed or gone, relative to cwd; null where there are too many to look at."
    )
    cost_usd: float | None = Field(description="What it cost, where the agent tells.")


PromptText = Annotated[
    str,
    Field(
        min_length=1,
        description="What is to be done, with all that the agent must know: it sees nothing of your conversation.",
    ),
]
Model = Annotated[str | None, Field(description="The model's name; by default the agent's own.")]
Cwd = Annotated[
    str | None,
    Field(description="Directory to work in. Default: the session's, else the working directory."),
]
SessionId = Annotated[
    str | None, Field(description="The `session_id` of an earlier answer, to go on with its work.")
]
Timeout = Annotated[
    float,
    Field(gt=0, le=86_400, description="After so many seconds it is stopped, and the call fails."),
]


def register(server: FastMCP, context: ToolsetContext) -> None:
    """Add those agents that are in this sandbox; health tells which."""
    agents = Agents(context)
    installed = coding_agents.installed_agents()
    if "claude" in installed:
        server.tool(agents.claude_code, annotations=REACHES_OUT)
    if "codex" in installed:
        server.tool(agents.codex, annotations=REACHES_OUT)
    context.health.add("agents", lambda: installed)


class Agents:
    """Coding agents as tools, by the agent server: in here they would outgrow what a tool server may have."""

    def __init__(self, context: ToolsetContext) -> None:
        self._context = context

    async def claude_code(  # noqa: PLR0913, PLR0917 - they are the tool's
        self,
        context: Context,
        prompt: PromptText,
        model: Model = None,
        cwd: Cwd = None,
        session_id: SessionId = None,
        tools: Annotated[
            list[str] | None,
            Field(
                description="All that it may use, such as Read, Grep, Edit, Bash; by default everything."
            ),
        ] = None,
        permission_mode: Annotated[
            Literal["bypassPermissions", "acceptEdits", "plan", "dontAsk"],
            Field(
                description="How far it may go, as nobody is asked: everything, edits of files, only to plan, or only what its settings allow."
            ),
        ] = "bypassPermissions",
        max_turns: Annotated[
            int | None, Field(ge=1, description="After so many steps it is stopped.")
        ] = None,
        timeout_s: Timeout = 3600,
    ) -> AgentAnswer:
        """Have Claude Code, a coding agent, do a piece of work in this sandbox, and give its answer and which files it changed.

        It reads, writes, runs commands and uses this sandbox's tools by itself, without asking anybody. Progress tells what it does;
        a cancelled call stops it.
        """
        return await self._run(
            context,
            agent="claude",
            prompt=prompt,
            model=model,
            cwd=cwd,
            session_id=session_id,
            tools=tools,
            permission_mode=permission_mode,
            max_turns=max_turns,
            timeout_s=timeout_s,
        )

    async def codex(
        self,
        context: Context,
        prompt: PromptText,
        model: Model = None,
        cwd: Cwd = None,
        session_id: SessionId = None,
        permission_mode: Annotated[
            Literal["bypassPermissions", "acceptEdits", "plan"],
            Field(
                description="How far it may go, as nobody is asked: everything, edits of files below cwd, or only reading."
            ),
        ] = "bypassPermissions",
        timeout_s: Timeout = 3600,
    ) -> AgentAnswer:
        """Have Codex, a coding agent, do a piece of work in this sandbox, and give its answer and which files it changed.

        It reads, writes, runs commands and uses this sandbox's tools by itself, without asking anybody. Progress tells what it does;
        a cancelled call stops it.
        """
        return await self._run(
            context,
            agent="codex",
            prompt=prompt,
            model=model,
            cwd=cwd,
            session_id=session_id,
            permission_mode=permission_mode,
            timeout_s=timeout_s,
        )

    async def _run(self, context: Context, **request: Any) -> AgentAnswer:
        # The client of WebSockets is loaded by the few who call an agent, and not by everybody's idle tool server.
        client = import_module("sandbox_tools.agents.client")
        steps = 0
        try:
            async with client.connect_to_agent_server(
                _PORT, self._context.settings.read().token
            ) as link:
                async for event in link.run_prompt(request | {"on_disconnect": "interrupt"}):
                    if event["type"] in ("result", "refused"):
                        return _answer(event)
                    line = summarize(event.get("message", {}))
                    if line is not None:
                        steps += 1
                        await context.report_progress(steps, None, line)
        except client.AgentServerUnavailable as error:
            raise ToolError(str(error)) from None
        raise ToolError("The agent server ended before the agent was done.")


def _answer(event: dict[str, Any]) -> AgentAnswer:
    if event["type"] == "refused":
        raise ToolError(event["error"])
    if event["state"] != "succeeded":
        changed = ", ".join(event["changed_files"] or ()) or "none"
        raise ToolError(
            f"{event['output']}\n(session_id {event['session_id']}, to go on with; changed files: {changed})"
        )
    return AgentAnswer(
        output=event["output"],
        session_id=event["session_id"],
        changed_files=event["changed_files"],
        cost_usd=event["cost"],
    )
