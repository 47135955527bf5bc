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
from sandbox_tools.agent_server.session import SECONDS_TO_STOP, Session
from sandbox_tools.agent_server.session_store import SessionRecords
from sandbox_tools.coding_agents.agent import Place, SessionRecord
from sandbox_tools.coding_agents.prompts import Prompt, Refused
from sandbox_tools.toolkit.settings_file import SettingsFile

_ROUND_SECONDS = 5.0
# These take the id that their sessions are to have; the others say which they gave them.
_TAKE_AN_ID = ("claude", "copilot", "gemini")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much an agent server holds at once: a live Claude Code has 234 MB, a remembered session up to 2 MB."""

    running: int = 8
    remembered: int = 32
    idle_seconds: float = 300.0
    seconds_to_stop: float = SECONDS_TO_STOP


class Sessions:
    """All sessions of this sandbox: those at work, those remembered, and those that can be resumed by their id."""

    def __init__(
        self,
        settings: SettingsFile,
        *,
        state: Path,
        workspace: Path,
        tool_server: str,
        bounds: Bounds,
    ) -> None:
        self._settings = settings
        self._state = state
        self._workspace = workspace
        self._tool_server = tool_server
        self._bounds = bounds
        self._records = SessionRecords(state / "sessions")
        self._sessions: dict[str, Session] = {}

    @property
    def running(self) -> int:
        return sum(session.is_busy for session in self._sessions.values())

    def begin(self, prompt: Prompt) -> tuple[Session, int]:
        """Set a session to work; with it, tell after which number its events for this prompt come."""
        session = self._session_for(prompt)
        if not session.is_busy and self.running >= self._bounds.running:
            raise Refused(
                "too-many-running",
                f"{self.running} agents are at work, the most at once. Wait until one is done.",
            )
        after = session.transcript.last
        session.begin(prompt, self._place(session.record, prompt))
        self._remember(session)
        return session, after

    def get(self, session_id: str) -> Session:
        """Find a session that is remembered."""
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(
                "unknown-session",
                f"Nothing is remembered of session {session_id}. A prompt with its id resumes it.",
            )
        return session

    def describe(self) -> list[dict[str, Any]]:
        """List what is remembered, the latest used last."""
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
        """End what idles while the server serves, and everything when it ends."""
        rounds = asyncio.create_task(self._go_rounds())
        try:
            yield
        finally:
            rounds.cancel()
            await asyncio.gather(*(session.close() for session in self._sessions.values()))

    async def _go_rounds(self) -> None:
        while True:
            await asyncio.sleep(min(_ROUND_SECONDS, self._bounds.idle_seconds))
            before = time.monotonic() - self._bounds.idle_seconds
            for session in list(self._sessions.values()):
                if session.used_at <= before:
                    await session.rest()
            await self._forget_the_oldest()

    def _session_for(self, prompt: Prompt) -> Session:
        if prompt.session_id is None:
            return self._make(self._new_record(prompt))
        session = self._sessions.get(prompt.session_id)
        if session is None:
            session = self._make(
                self._records.find(prompt.session_id) or self._of_the_program(prompt)
            )
        _check_the_same(session.record, prompt, self._directory(prompt))
        return session

    def _make(self, record: SessionRecord) -> Session:
        if not coding_agents.is_there(record.agent):
            there = (
                ", ".join(coding_agents.those_there()) or "none; the template agent-full has them"
            )
            raise Refused(
                "no-such-agent", f"There is no {record.agent} in this sandbox. It has {there}."
            )
        if not os.path.isdir(record.cwd):  # noqa: PTH112 - Path's fails where it may not look
            raise Refused("bad-request", f"There is no directory {record.cwd} to work in.")
        return Session(record, self._records, seconds_to_stop=self._bounds.seconds_to_stop)

    def _new_record(self, prompt: Prompt) -> SessionRecord:
        agent, new = prompt.agent or "claude", str(uuid.uuid4())
        own_id = new if agent in _TAKE_AN_ID else None
        return SessionRecord(id=new, agent=agent, cwd=self._directory(prompt), own_id=own_id)

    def _of_the_program(self, prompt: Prompt) -> SessionRecord:
        """Take an id that nobody here has given for one of the agent's own, which a person may have begun."""
        assert prompt.session_id is not None
        return SessionRecord(
            id=prompt.session_id,
            agent=prompt.agent or "claude",
            cwd=self._directory(prompt),
            own_id=prompt.session_id,
            begun=True,
        )

    def _directory(self, prompt: Prompt) -> str:
        # Not Path's `expanduser`, which fails for users whom there are not.
        return str(self._workspace / os.path.expanduser(prompt.cwd or "."))  # noqa: PTH111

    def _place(self, record: SessionRecord, prompt: Prompt) -> Place:
        settings = self._settings.read()
        return Place(
            record=record,
            environment=_environment(settings.envs, prompt.envs),
            state=self._state,
            tool_server=self._tool_server,
            tool_token=settings.token,
        )

    def _remember(self, session: Session) -> None:
        """Have it be the latest used."""
        self._sessions.pop(session.record.id, None)
        self._sessions[session.record.id] = session

    async def _forget_the_oldest(self) -> None:
        unused = [
            each for each in self._sessions.values() if not each.is_busy and not each.followers
        ]
        for session in unused[: max(0, len(self._sessions) - self._bounds.remembered)]:
            del self._sessions[session.record.id]
            await session.close()


def _environment(envs: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Merge the agent server's, the sandbox's and the client's variables; later ones win."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
    own.pop("CLAUDECODE", None)
    # Without it Claude Code refuses to run as root without permission prompts.
    return own | {"IS_SANDBOX": "1"} | dict(filter(_is_valid, envs.items())) | dict(given)


def _is_valid(variable: tuple[str, object]) -> bool:
    name, value = variable
    return isinstance(value, str) and bool(name) and "=" not in name and "\0" not in name + value


def _check_the_same(record: SessionRecord, prompt: Prompt, directory: str) -> None:
    if prompt.agent not in (None, record.agent):
        raise Refused("bad-request", f"Session {record.id} is one of {record.agent}.")
    if prompt.cwd is not None and directory != record.cwd:
        raise Refused(
            "bad-request",
            f"Session {record.id} works in {record.cwd}. Begin another one for {prompt.cwd}.",
        )
