"""What a server does to sandboxes: how it comes to it, and what has to have become of them in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.deadlines import DEFAULT_RULES, NOTHING
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State
from tests.server.crash.replicas import Replicas
from tests.server.support.fault_proxy import Fault, answer_with
from tests.server.support.managed_sandboxes import MINUTE
from tests.server.support.server_process import ServerProcess

Ask = tuple[str, str]

SERVERS = {"mine": {"command": "a-server"}}
OTHERS = {"other": {"command": "another"}}


@dataclass(frozen=True, kw_only=True)
class Transition:
    """One thing that a server is asked for, or does when the time has come."""

    leaves: Sequence[State]
    """What those that have not ended are in the end, oldest first."""
    found: State | None = State.RUNNING
    """What there was before; None: nothing."""
    asks: Ask | None = None
    """How a caller asks for it; he asks again who gets no answer."""
    body: Mapping[str, Any] | None = None
    after: timedelta | None = None
    """How much later it is done unasked."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    patched: Mapping[str, Any] | None = None
    """What of it was changed before."""
    with_one_waiting: bool = False
    """Whether there is no room for another one, who waits."""
    first_create: Fault | None = None
    cause: Mapping[str, Any] | None = None
    """The MCP servers that the services in the newest one know of."""
    asks_provider: bool = True
    moves: str | None = None
    """The instant of its row that is later when it has been done."""


TRANSITIONS = {
    "start": Transition(found=None, asks=("POST", ""), leaves=[State.RUNNING]),
    "start-for-a-session": Transition(
        found=None, asks=("PUT", "/by-session/work"), leaves=[State.RUNNING]
    ),
    "start-that-is-sent-back-to-the-queue": Transition(
        found=None,
        asks=("POST", ""),
        first_create=answer_with(429, Retry_After="1"),
        leaves=[State.RUNNING],
    ),
    "start-with-services": Transition(
        found=None,
        asks=("POST", ""),
        body={"mcp_servers": SERVERS},
        leaves=[State.RUNNING],
        cause=SERVERS,
    ),
    "other-servers-for-services": Transition(
        fields={"mcp_servers": OTHERS},
        asks=("PATCH", "/{id}"),
        asks_provider=False,
        body={"mcp_servers": SERVERS},
        leaves=[State.RUNNING],
        cause=SERVERS,
    ),
    "pause": Transition(asks=("POST", "/{id}/pause"), leaves=[State.PAUSED]),
    "resume": Transition(
        found=State.PAUSED,
        fields={"mcp_servers": OTHERS},
        patched={"mcp_servers": SERVERS},
        asks=("POST", "/{id}/resume"),
        leaves=[State.RUNNING],
        cause=SERVERS,
    ),
    "kill": Transition(asks=("DELETE", "/{id}"), leaves=[]),
    "kill-that-frees-a-place": Transition(
        asks=("DELETE", "/{id}"), with_one_waiting=True, leaves=[State.RUNNING]
    ),
    "snapshot": Transition(asks=("POST", "/{id}/snapshots"), leaves=[State.RUNNING]),
    "fork": Transition(
        fields={"mcp_servers": SERVERS},
        asks=("POST", "/{id}/fork"),
        leaves=[State.RUNNING, State.RUNNING],
        cause=SERVERS,
    ),
    "expiry-that-pauses": Transition(
        fields={"timeout_s": 1800, "on_timeout": "pause"}, after=31 * MINUTE, leaves=[State.PAUSED]
    ),
    "expiry-that-deletes": Transition(
        fields={"timeout_s": 1800, "on_timeout": "delete"}, after=31 * MINUTE, leaves=[]
    ),
    "idle-pause": Transition(
        fields={"idle_timeout_s": 600}, after=11 * MINUTE, leaves=[State.PAUSED]
    ),
    "pause-for-the-providers-maximum": Transition(
        fields={"timeout_s": 7200}, after=59 * MINUTE, leaves=[State.RUNNING], moves="started_at"
    ),
    "extension-of-the-providers-timeout": Transition(
        after=8 * MINUTE, leaves=[State.RUNNING], moves="provider_until"
    ),
}


class Scene:
    """A transition that is about to happen, to sandboxes of its own."""

    def __init__(self, replicas: Replicas, transition: Transition) -> None:
        self._replicas = replicas
        self._transition = transition
        self._key = new_id()
        self._id: str | None = None
        self._before: dict[str, Sandbox] = {}

    @property
    def is_asked_for(self) -> bool:
        return self._transition.asks is not None

    @property
    def first_create(self) -> Fault | None:
        return self._transition.first_create

    async def prepare(self) -> None:
        transition, replicas = self._transition, self._replicas
        if transition.found is not None:
            self._id = await replicas.create(**transition.fields)
        if transition.found is State.PAUSED:
            await replicas.ask(replicas.survivor, "POST", f"/{self._id}/pause")
        if transition.patched is not None:
            body = dict(transition.patched)
            await replicas.ask(replicas.survivor, "PATCH", f"/{self._id}", json=body)
        if transition.with_one_waiting:
            await replicas.set_capacity(1)
            await replicas.ask(replicas.survivor, "POST", "", params={"wait": 0})
        if transition.after is not None:
            assert self._id is not None
            await replicas.living.pass_time(self._id, transition.after)
        await replicas.have_quiet()
        self._before = {row.id: row for row in await replicas.rows()}
        self._began = await replicas.living.now()

    async def begin(self, server: ServerProcess) -> None:
        """Ask the server for it, again if it has been asked for before; or let the time have come."""
        if self._transition.asks is None:
            assert self._id is not None
            await self._replicas.have_due(self._id)
            return
        method, path = self._transition.asks
        await self._replicas.ask(
            server,
            method,
            path.format(id=self._id),
            headers={"Idempotency-Key": self._key},
            **({} if self._transition.body is None else {"json": self._transition.body}),
        )

    async def require_nothing_happened(self) -> None:
        rows = await self._replicas.rows()
        assert {row.id: row.generation for row in rows} == {
            row.id: row.generation for row in self._before.values()
        }

    async def require_outcome(self) -> None:
        """Check what has become of those that have not ended, and that their time was theirs alone."""
        rows = await self._replicas.rows()
        assert [row.state for row in rows] == self._transition.leaves
        now = await self._replicas.living.now()
        for row in rows:
            if row.id in self._before:
                self._require_time(self._before[row.id], row, now)
        if name := self._transition.moves:
            (row,) = rows
            assert getattr(row, name) > getattr(self._before[row.id], name)
        if self._transition.cause is not None:
            settings = await self._replicas.settings(rows[-1].id)
            cause = settings["sandbox_id"], settings["mcp_servers"]
            assert cause == (rows[-1].id, self._transition.cause)
        if self._transition.with_one_waiting:
            assert self._id not in {row.id for row in rows}

    def _require_time(self, before: Sandbox, row: Sandbox, now: datetime) -> None:
        left = _time_left(before, self._began)
        assert left - (now - self._began) <= _time_left(row, now) <= left
        if row.state is State.PAUSED:
            kept_until = before.retain_until or self._began + DEFAULT_RULES.retention
            assert row.retain_until is not None
            assert row.retain_until >= kept_until
        else:
            assert row.retain_until is None
            assert row.expires_at is not None
            assert row.provider_until is not None


def _time_left(row: Sandbox, now: datetime) -> timedelta:
    if row.expires_at is not None:
        return max(row.expires_at - now, NOTHING)
    return row.timeout if row.remaining is None else row.remaining
