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
    """Result of an agent."""

    output: str = Field(description="The agent's final answer.")
    session_id: str = Field(description="Pass it with the next prompt to continue this session.")
    changed_files: list[str] | None = Field(
        description="New, changed and deleted files, relative to cwd; null if there are too many files to compare."
    )
    cost_usd: float | None = Field(description="Cost, if the agent reports it.")


PromptText = Annotated[
    str,
    Field(
        min_length=1,
        description="The task, with all necessary context: the agent does not see your conversation.",
    ),
]
Model = Annotated[str | None, Field(description="Name of the model. Default: the agent's default.")]
Cwd = Annotated[
    str | None,
    Field(description="Directory to work in. Default: the session's, else the working directory."),
]
SessionId = Annotated[
    str | None, Field(description="session_id of an earlier result, to continue that session.")
]
Timeout = Annotated[
    float,
    Field(
        gt=0, le=86_400, description="Stop the agent after this many seconds; the call then fails."
    ),
]


def register(server: FastMCP, context: ToolsetContext) -> None:
    """Register the installed agents, and report them in health."""
    agents = Agents(context)
    installed = coding_agents.installed_agents()
    if "claude" in installed:
        server.tool(agents.claude_code, annotations=REACHES_OUT)
    if "codex" in installed:
        server.tool(agents.codex, annotations=REACHES_OUT)
    context.health.add("agents", lambda: installed)


class Agents:
    """Coding agents as tools. They run in the agent server: the tool server has too little memory."""

    def __init__(self, context: ToolsetContext) -> None:
        self._context = context

    async def claude_code(  # noqa: PLR0913, PLR0917 - the tool's parameters
        self,
        context: Context,
        prompt: PromptText,
        model: Model = None,
        cwd: Cwd = None,
        session_id: SessionId = None,
        tools: Annotated[
            list[str] | None,
            Field(
                description="Tools that the agent may use, e.g. Read, Grep, Edit, Bash. Default: all."
            ),
        ] = None,
        permission_mode: Annotated[
            Literal["bypassPermissions", "acceptEdits", "plan", "dontAsk"],
            Field(
                description="What it may do without asking: everything, edit files, only plan, or only what its settings allow."
            ),
        ] = "bypassPermissions",
        max_turns: Annotated[
            int | None, Field(ge=1, description="Stop the agent after this many turns.")
        ] = None,
        timeout_s: Timeout = 3600,
    ) -> AgentAnswer:
        """Run the coding agent Claude Code on a task in this sandbox. Returns its answer and the changed files.

        It reads and writes files, runs commands and uses this sandbox's tools without asking. Progress notifications show its steps.
        Cancelling the call stops it. If it fails, the error contains the session_id to continue with.
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
                description="What it may do without asking: everything, edit files below cwd, or only read."
            ),
        ] = "bypassPermissions",
        timeout_s: Timeout = 3600,
    ) -> AgentAnswer:
        """Run the coding agent Codex on a task in this sandbox. Returns its answer and the changed files.

        It reads and writes files, runs commands and uses this sandbox's tools without asking. Progress notifications show its steps.
        Cancelling the call stops it. If it fails, the error contains the session_id to continue with.
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
        # Imported on demand: an idle tool server does not need the WebSocket client.
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
        raise ToolError("The agent server ended before the agent finished.")


def _answer(event: dict[str, Any]) -> AgentAnswer:
    if event["type"] == "refused":
        raise ToolError(event["error"])
    if event["state"] != "succeeded":
        changed = ", ".join(event["changed_files"] or ()) or "none"
        raise ToolError(
            f"{event['output']}\n(To continue: session_id {event['session_id']}. Changed files: {changed}.)"
        )
    return AgentAnswer(
        output=event["output"],
        session_id=event["session_id"],
        changed_files=event["changed_files"],
        cost_usd=event["cost"],
    )
