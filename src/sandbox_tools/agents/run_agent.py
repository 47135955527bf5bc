import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox_tools.agents.client import (
    AgentConnection,
    AgentServerUnavailable,
    connect_to_agent_server,
)
from sandbox_tools.toolkit.settings_file import PATH, SettingsFile

_REQUEST_PREFIX = "SANDBOX_AGENT_RUN_"
# Variables of this process and its terminal, not of the work to be done.
_NOT_PASSED_ON = frozenset(
    "_ CLAUDECODE CLAUDE_CODE_ENTRYPOINT HOME HOSTNAME LOGNAME OLDPWD PATH PWD SHELL SHLVL TERM TMUX"
    " TMUX_PANE USER".split()
)
_EXIT_CODES = {"succeeded": 0, "failed": 1, "interrupted": 130, "timed_out": 124}
# Longer than the agent server takes to end an agent that ignores all but SIGKILL.
_SECONDS_TO_STOP = 45.0


def main(arguments: Sequence[str]) -> int:
    """Run the prompt in the environment variables on the agent server; see docs/in-the-sandbox.md."""
    parser = argparse.ArgumentParser(prog="sandbox-tools run-agent")
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--settings", type=Path, default=PATH)
    options = parser.parse_args(arguments)
    run = Run(options.port, SettingsFile(options.settings).read().token)
    return asyncio.run(run.run_prompt(os.environ))


class InvalidRequest(Exception):
    """The environment contains no valid request."""


class Run:
    """One prompt, whose events go to stdout."""

    def __init__(self, port: int, token: str | None) -> None:
        self._port = port
        self._token = token
        self._link: AgentConnection | None = None
        self._is_interrupted = False
        self._interrupting: asyncio.Task[None] | None = None

    async def run_prompt(self, environment: Mapping[str, str]) -> int:
        """Run to the result, which is always written; return the exit code."""
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, this, number)
        try:
            result = await self._run_request(
                _read_request(environment) | {"on_disconnect": "interrupt"}
            )
        except (AgentServerUnavailable, InvalidRequest) as error:
            result = _result("failed", str(error))
        except asyncio.CancelledError:
            result = _result("interrupted", "Interrupted; the agent did not stop in time.")
        await _write_event(result)
        return _EXIT_CODES[result["state"]]

    async def _run_request(self, request: dict[str, Any]) -> dict[str, Any]:
        request["envs"] = _environment_for_agent(os.environ)
        async with connect_to_agent_server(self._port, self._token) as self._link:
            if self._is_interrupted:
                return _result("interrupted", "Interrupted before it started.")
            async for event in self._link.run_prompt(request):
                event.pop("seq", None)
                if event["type"] == "result":
                    return event
                if event["type"] == "refused":
                    return _result("failed", event["error"], event.get("session_id"))
                await _write_event(
                    event if event["type"] in ("started", "message") else _gap(event)
                )
        raise AgentServerUnavailable("The agent server ended before the agent finished.")

    def _stop(self, this: "asyncio.Task[int] | None", number: signal.Signals) -> None:
        """Interrupt the agent and wait for its end; a second SIGINT, as of a person, does not wait."""
        if this is None:
            return
        if self._is_interrupted:
            if number is signal.SIGINT:
                this.cancel()
            return
        self._is_interrupted = True
        asyncio.get_running_loop().call_later(_SECONDS_TO_STOP, this.cancel)
        if self._link is not None:
            self._interrupting = asyncio.create_task(_interrupt(self._link))


async def _interrupt(link: AgentConnection) -> None:
    with suppress(AgentServerUnavailable):  # the reader of events reports it
        await link.interrupt()


def _read_request(environment: Mapping[str, str]) -> dict[str, Any]:
    pieces: list[str] = []
    while (piece := environment.get(f"{_REQUEST_PREFIX}{len(pieces)}")) is not None:
        pieces.append(piece)
    try:
        request = json.loads("".join(pieces))
    except ValueError:
        request = None
    if not isinstance(request, dict):
        raise InvalidRequest(
            f"{_REQUEST_PREFIX}0, {_REQUEST_PREFIX}1, … do not contain a JSON object."
        )
    return request


def _environment_for_agent(environment: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that the agent receives: above all the API keys."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _NOT_PASSED_ON and not name.startswith(_REQUEST_PREFIX)
    }


def _result(state: str, output: str, session_id: str | None = None) -> dict[str, Any]:
    return {
        "type": "result",
        "state": state,
        "exit_code": _EXIT_CODES[state],
        "output": output,
        "cost": None,
        "session_id": session_id,
        "changed_files": None,
    }


def _gap(event: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "message", "message": dict(event)}


async def _write_event(event: Mapping[str, Any]) -> None:
    line = json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n"
    # A slow reader blocks this thread only, not the handling of signals.
    await asyncio.to_thread(_write, line)


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
