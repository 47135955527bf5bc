import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_tools import coding_agents
from sandbox_tools.agent_server.session import SECONDS_TO_STOP, SESSION_VARIABLE, Session
from sandbox_tools.agent_server.session_store import SessionRecords
from sandbox_tools.coding_agents.agent import RunContext, SessionRecord
from sandbox_tools.coding_agents.prompts import Prompt, RequestRefused
from sandbox_tools.toolkit.settings_file import SettingsFile

_CLEANUP_SECONDS = 5.0
# These accept a session id; the others generate their own.
_ACCEPT_SESSION_ID = ("claude", "copilot", "gemini")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits: a running Claude Code needs 234 MB, a session in memory up to 2 MB."""

    running: int = 8
    remembered: int = 32
    idle_seconds: float = 300.0
    seconds_to_stop: float = SECONDS_TO_STOP


class Sessions:
    """All sessions: running, in memory, and those that can be resumed by id."""

    def __init__(
        self,
        settings: SettingsFile,
        *,
        state: Path,
        workspace: Path,
        tool_server: str,
        limits: Limits,
    ) -> None:
        self._settings = settings
        self._state = state
        self._workspace = workspace
        self._tool_server = tool_server
        self._limits = limits
        self._records = SessionRecords(state / "sessions")
        self._sessions: dict[str, Session] = {}

    @property
    def running(self) -> int:
        return sum(session.is_busy for session in self._sessions.values())

    def begin(self, prompt: Prompt) -> tuple[Session, int]:
        """Start a prompt; return its session and the number after which its events follow."""
        session = self._session_for(prompt)
        if not session.is_busy and self.running >= self._limits.running:
            raise RequestRefused(
                "too-many-running",
                f"The maximum of {self.running} agents is running. Wait until one has finished.",
            )
        after = session.transcript.last
        session.begin(prompt, self._run_context(session.record, prompt))
        self._mark_used(session)
        return session, after

    def get(self, session_id: str) -> Session:
        """Return a session in memory."""
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestRefused(
                "unknown-session",
                f"Session {session_id} is not in memory. Send a prompt with its id to resume it.",
            )
        return session

    def describe(self) -> list[dict[str, Any]]:
        """List the sessions in memory, least recently used first."""
        return [
            {
                "session_id": session.record.id,
                "agent": session.record.agent,
                "cwd": session.record.cwd,
                "busy": session.is_busy,
                "last_seq": session.transcript.last,
            }
            for session in self._sessions.values()
        ]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """End idle agent processes while serving, and all of them at the end."""
        rounds = asyncio.create_task(self._run_cleanup())
        try:
            yield
        finally:
            rounds.cancel()
            await asyncio.gather(*(session.close() for session in self._sessions.values()))

    async def _run_cleanup(self) -> None:
        while True:
            await asyncio.sleep(min(_CLEANUP_SECONDS, self._limits.idle_seconds))
            before = time.monotonic() - self._limits.idle_seconds
            for session in list(self._sessions.values()):
                if session.used_at <= before:
                    await session.release()
            await self._evict_oldest()

    def _session_for(self, prompt: Prompt) -> Session:
        if prompt.session_id is None:
            return self._make(self._new_record(prompt))
        session = self._sessions.get(prompt.session_id)
        if session is None:
            session = self._make(
                self._records.find(prompt.session_id) or self._adopt_record(prompt)
            )
        _require_same_session(session.record, prompt, self._directory(prompt))
        return session

    def _make(self, record: SessionRecord) -> Session:
        if not coding_agents.is_installed(record.agent):
            installed = (
                ", ".join(coding_agents.installed_agents())
                or "none; the template agent-full includes them"
            )
            raise RequestRefused(
                "no-such-agent",
                f"{record.agent} is not installed in this sandbox. Installed agents: {installed}.",
            )
        if not os.path.isdir(record.cwd):  # noqa: PTH112 - Path.is_dir raises without permission
            raise RequestRefused("bad-request", f"cwd {record.cwd} is not a directory.")
        return Session(record, self._records, seconds_to_stop=self._limits.seconds_to_stop)

    def _new_record(self, prompt: Prompt) -> SessionRecord:
        agent, new = prompt.agent or "claude", str(uuid.uuid4())
        own_id = new if agent in _ACCEPT_SESSION_ID else None
        return SessionRecord(id=new, agent=agent, cwd=self._directory(prompt), own_id=own_id)

    def _adopt_record(self, prompt: Prompt) -> SessionRecord:
        """Treat an unknown id as one of the agent's own sessions, which a person may have started."""
        assert prompt.session_id is not None
        return SessionRecord(
            id=prompt.session_id,
            agent=prompt.agent or "claude",
            cwd=self._directory(prompt),
            own_id=prompt.session_id,
            begun=True,
        )

    def _directory(self, prompt: Prompt) -> str:
        # Path.expanduser raises for unknown users.
        return str(self._workspace / os.path.expanduser(prompt.cwd or "."))  # noqa: PTH111

    def _run_context(self, record: SessionRecord, prompt: Prompt) -> RunContext:
        settings = self._settings.read()
        return RunContext(
            record=record,
            environment=_environment(settings.envs, prompt.envs) | {SESSION_VARIABLE: record.id},
            state=self._state,
            tool_server=self._tool_server,
            tool_token=settings.token,
        )

    def _mark_used(self, session: Session) -> None:
        """Make it the most recently used."""
        self._sessions.pop(session.record.id, None)
        self._sessions[session.record.id] = session

    async def _evict_oldest(self) -> None:
        unused = [
            each for each in self._sessions.values() if not each.is_busy and not each.followers
        ]
        for session in unused[: max(0, len(self._sessions) - self._limits.remembered)]:
            del self._sessions[session.record.id]
            await session.close()


def _environment(envs: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Merge the agent server's, the sandbox's and the client's variables; later ones win."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
    own.pop("CLAUDECODE", None)
    # Without it Claude Code refuses to run as root without permission prompts.
    return own | {"IS_SANDBOX": "1"} | dict(filter(_is_valid, envs.items())) | dict(overrides)


def _is_valid(variable: tuple[str, object]) -> bool:
    name, value = variable
    return isinstance(value, str) and bool(name) and "=" not in name and "\0" not in name + value


def _require_same_session(record: SessionRecord, prompt: Prompt, directory: str) -> None:
    if prompt.agent not in (None, record.agent):
        raise RequestRefused("bad-request", f"Session {record.id} belongs to {record.agent}.")
    if prompt.cwd is not None and directory != record.cwd:
        raise RequestRefused(
            "bad-request",
            f"The cwd of session {record.id} is {record.cwd}. Start a new session for {prompt.cwd}.",
        )
