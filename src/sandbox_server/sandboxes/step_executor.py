from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from time import perf_counter

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.deadlines import extend_provider
from sandbox_server.domain.due import Due, Why, next_due
from sandbox_server.domain.errors import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
    SandboxNotFound,
    Superseded,
)
from sandbox_server.domain.events import CAUSES
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.steps import Act, Step
from sandbox_server.domain.transition_cause import Wish
from sandbox_server.domain.wording import explain
from sandbox_server.metrics.instruments import TRANSITION_SECONDS
from sandbox_server.providers.protocol.errors import AnswerLost, PauseConflict, SandboxGone
from sandbox_server.providers.protocol.provider import Access
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes import outcomes
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.observation import Look
from sandbox_server.sandboxes.provider_calls import Calls
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of
from sandbox_server.sandboxes.services.config import Furnishing
from sandbox_server.sandboxes.services.sealed import seal_access
from sandbox_server.sandboxes.transitions import HoldBack, Transition, Transitions, into, wish_of
from sandbox_server.vault import Vault

_REFRESH = Step(Act.PAUSE, State.PAUSING, State.PAUSED, Target.RUNNING)


class Acts:
    """Carries out steps: commits what is about to be done, has it done, and commits what came of it.

    Each gives the row as it left it, with what its provider has by then.
    """

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        changes: Changes | None,
        furnishing: Furnishing,
    ) -> None:
        self._transitions = Transitions(sessions, changes)
        self._calls = Calls(backends, vault)
        self._vault = vault
        self._furnishing = furnishing
        self._provider_acts = {
            Act.START: self._start,
            Act.PAUSE: self._pause,
            Act.RESUME: self._resume,
            Act.KILL: self._kill,
        }

    async def carry_out(self, look: Look, step: Step, due: Due) -> Look:
        match step.act, due.why:
            case Act.REST, Why.PROVIDER_TIMEOUT:
                return await self._extend(look)
            case Act.REST, Why.LONGEST_RUN:
                step = _REFRESH
        if step.act not in self._provider_acts:
            return await self.record(look, step, due=None if due.why is Why.UNSETTLED else due)
        self._calls.enter(look.row)
        began = perf_counter()
        done = await self._provider_acts[step.act](await self._begin(look, step, due))
        TRANSITION_SECONDS.labels(step.act, done.row.state).observe(perf_counter() - began)
        return done

    async def _begin(self, look: Look, step: Step, due: Due) -> Look:
        """Commit what is about to be done, unless this process has just committed it.

        Whoever else was about to do it has lost the row by that.
        """
        row = look.row
        is_said = row.state is step.via and (step.act is not Act.START or row.tried_at is not None)
        if look.ours and is_said and due.why is Why.UNSETTLED:
            return look
        values = look.found_id
        if step.act is Act.START:
            values |= {"tried_at": row.tried_at or look.now}
        begun = replace(self._wanted(look, due), change=into(step.via), values=values)
        committed = await self._commit(look, begun, due=due)
        return replace(committed, found=look.found, doubted=look.doubted, exhausted=look.exhausted)

    async def _start(self, look: Look) -> Look:
        try:
            access = await self._calls.create(look)
        except (SandboxGone, BackendRefused) as error:
            return await self._commit(look, outcomes.not_started(error))
        except AnswerLost as error:
            _require_refusal(look, error)
            failed = await self._commit(look, outcomes.not_started(error))
            return Look.at_found(failed.row, failed.now)  # it may be there nevertheless
        except (BackendBusy, BackendUnavailable) as error:
            # Where something may have begun, it keeps its place until that is known; the queue is for what is to run.
            if look.doubted or look.row.target is Target.PAUSED:
                raise
            return await self._make_wait(look, outcomes.not_let_in(error), error)
        try:
            return await self._commit(look, await self._runs(look, access))
        except (Superseded, SandboxNotFound):
            await self._account_for(look.row, access)
            raise

    async def _resume(self, look: Look) -> Look:
        rules = self._calls.rules(look.row)
        try:
            access = await self._calls.connect(look)
        except (BackendRefused, AnswerLost) as error:
            _require_refusal(look, error)
            return await self._commit(look, outcomes.not_resumed(error, rules=rules))
        except BackendBusy as error:
            waits = outcomes.not_let_back_in(error, rules=rules)
            return await self._make_wait(look, waits, error)
        return await self._commit(look, await self._runs(look, access))

    async def _pause(self, look: Look) -> Look:
        try:
            await self._calls.pause(look)
        except (BackendRefused, AnswerLost, PauseConflict) as error:
            _require_refusal(look, error)
            await self._commit(look, outcomes.not_paused(error))
            raise
        return await self._commit(look, self._done(look, State.PAUSED), outcomes.KEEPS_PLACE)

    async def _kill(self, look: Look) -> Look:
        try:
            await self._calls.kill(look)
        except BackendRefused as error:
            await self._tell(look, outcomes.not_deleted(error))
            raise
        return await self._commit(look, self._done(look, State.STOPPED))

    async def kill_leftovers(self, look: Look) -> None:
        """Kill what is left of a sandbox that has ended."""
        await self._calls.kill(look)

    async def _extend(self, look: Look) -> Look:
        rules = self._calls.rules(look.row)
        try:
            await self._calls.extend(look)
        except BackendRefused as error:
            await self._tell(look, outcomes.not_extended(error))
            raise
        extended = Transition(
            change=lambda row, now: extend_provider(row, now, rules=rules),
            told=wish_of(look.row) if outcomes.is_not_extended(look.row) else None,
        )
        return await self._commit(look, extended)

    async def _tell(self, look: Look, why: Wish) -> None:
        """Say why the sandbox is still what it is, once for the same reason."""
        if look.row.state_reason != why.reason:
            await self._commit(look, Transition(change=into(look.row.state), told=why))

    async def record(
        self, look: Look, step: Step, *, due: Due | None = None, wake: bool = False
    ) -> Look:
        """Let the row say what is so at its provider, or that nothing has to be done there."""
        assert step.act is not Act.ADMIT  # nobody takes a place but from admission
        row, said = look.row, self._wanted(look, due)
        if step.act is Act.RECORD and (told := outcomes.behind_our_back(row, step.to)):
            target = None if step.target is row.target else step.target
            said = replace(said, told=told, target=target)
        return await self._commit(look, *await self._recorded(look, step, said), due=due, wake=wake)

    async def _recorded(self, look: Look, step: Step, said: Transition) -> Sequence[Transition]:
        row, rules = look.row, self._calls.rules(look.row)
        if step.to is State.RUNNING and row.state is not State.PAUSING:
            runs = await self._runs(look, await self._calls.connect(look))
            return [replace(runs, told=said.told or runs.told, target=said.target)]
        said = replace(said, values=look.found_id)
        change = outcomes.becomes(step.to, rules=rules)
        if step.via is not row.state:
            return [replace(said, change=into(step.via)), Transition(change=change)]
        keeps_place = [outcomes.KEEPS_PLACE] if step.to is State.PAUSED else []
        return [replace(said, change=change), *keeps_place]

    def _done(self, look: Look, state: State) -> Transition:
        """Tell of what has been done by the wish that it was begun for, whatever is wanted by now."""
        change = outcomes.becomes(state, rules=self._calls.rules(look.row))
        return Transition(change=change, told=wish_of(look.row))

    async def _runs(self, look: Look, access: Access) -> Transition:
        row = look.row
        return Transition(
            change=outcomes.runs(row, since=look.runs_since, rules=self._calls.rules(row)),
            told=wish_of(row),
            values={
                "backend_sandbox_id": access.provider_id,
                "access_sealed": seal_access(self._vault, row.id, access),
                **await self._furnishing.furnish(row, access),
            },
        )

    def _wanted(self, look: Look, due: Due | None) -> Transition:
        """Begin a transition with what a deadline wants; what is wanted anyway has its wish already."""
        change = into(look.row.state)
        if due is None or due.why is Why.UNSETTLED:
            return Transition(change=change)
        reason = explain(due, deadlines_of(look.row), rules=self._calls.rules(look.row))
        told = Wish(cause=CAUSES[due.why], reason=reason)
        return Transition(change=change, target=due.target, told=told)

    async def _make_wait(self, look: Look, waits: Transition, error: BackendError) -> Look:
        """Give its place back, and let nobody take it before the provider has room."""
        assert look.row.backend is not None
        hold_back = HoldBack(look.row.backend, look.now + (error.retry_after or outcomes.BUSY_FOR))
        waiting = await self._transitions.commit(
            look.row, waits, holds=outcomes.may_wait, hold_back=hold_back
        )
        return Look.at_own(*waiting)

    async def _commit(
        self, look: Look, *transitions: Transition, due: Due | None = None, wake: bool = False
    ) -> Look:
        def holds(row: Sandbox, now: datetime) -> bool:
            return due is None or self._is_still_due(due, row, now)

        return Look.at_own(
            *await self._transitions.commit(look.row, *transitions, holds=holds, wake=wake)
        )

    def _is_still_due(self, due: Due, row: Sandbox, now: datetime) -> bool:
        # Somebody may have used it, or given it time, since it was looked at.
        still = next_due(deadlines_of(row), now, rules=self._calls.rules(row))
        return (
            still is not None
            and still.at <= now
            and (still.why, still.target) == (due.why, due.target)
        )

    async def _account_for(self, seen: Sandbox, access: Access) -> None:
        """Let nothing be lost that was started for a row which has gone on meanwhile."""
        if not await self._transitions.note_provider_id(seen, access.provider_id):
            await self._calls.kill_late(seen, access)


def _require_refusal(look: Look, error: BackendError) -> None:
    """Try again what may yet succeed, unless it has failed too often."""
    if isinstance(error, (AnswerLost, PauseConflict)) and not look.exhausted:
        raise error
