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
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.domain.wording import explain
from sandbox_server.metrics.instruments import TRANSITION_SECONDS
from sandbox_server.providers.protocol.errors import AnswerLost, PauseConflict, SandboxGone
from sandbox_server.providers.protocol.provider import Access
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes import outcomes
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.provider_calls import ProviderCalls
from sandbox_server.sandboxes.repositories.sandboxes import deadlines_of
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.services.sealed import seal_access
from sandbox_server.sandboxes.transitions import HoldBack, Transition, Transitions, cause_of, into
from sandbox_server.vault import Vault

_REFRESH = Step(Act.PAUSE, State.PAUSING, State.PAUSED, Target.RUNNING)


class StepExecutor:
    """Carries out steps: commits what is about to be done, has it done, and commits what came of it.

    Each gives the row as it left it, with what its provider has by then.
    """

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        changes: Changes | None,
        service_config: ServiceConfigWriter,
    ) -> None:
        self._transitions = Transitions(sessions, changes)
        self._calls = ProviderCalls(backends, vault)
        self._vault = vault
        self._service_config = service_config
        self._provider_acts = {
            Act.START: self._start,
            Act.PAUSE: self._pause,
            Act.RESUME: self._resume,
            Act.KILL: self._kill,
        }

    async def execute(self, observed: Observation, step: Step, due: Due) -> Observation:
        match step.act, due.why:
            case Act.NONE, Why.PROVIDER_TIMEOUT:
                return await self._extend(observed)
            case Act.NONE, Why.LONGEST_RUN:
                step = _REFRESH
        if step.act not in self._provider_acts:
            return await self.record(observed, step, due=None if due.why is Why.UNSETTLED else due)
        self._calls.enter(observed.row)
        began = perf_counter()
        done = await self._provider_acts[step.act](await self._begin(observed, step, due))
        TRANSITION_SECONDS.labels(step.act, done.row.state).observe(perf_counter() - began)
        return done

    async def _begin(self, observed: Observation, step: Step, due: Due) -> Observation:
        """Commit what is about to be done, unless this process has just committed it.

        Whoever else was about to do it has lost the row by that.
        """
        row = observed.row
        is_said = row.state is step.via and (step.act is not Act.START or row.tried_at is not None)
        if observed.is_own and is_said and due.why is Why.UNSETTLED:
            return observed
        values = observed.found_id
        if step.act is Act.START:
            values |= {"tried_at": row.tried_at or observed.now}
        begun = replace(self._wanted(observed, due), change=into(step.via), values=values)
        committed = await self._commit(observed, begun, due=due)
        return replace(
            committed,
            found=observed.found,
            maybe_requested=observed.maybe_requested,
            exhausted=observed.exhausted,
        )

    async def _start(self, observed: Observation) -> Observation:
        try:
            access = await self._calls.create(observed)
        except (SandboxGone, BackendRefused) as error:
            return await self._commit(observed, outcomes.not_started(error))
        except AnswerLost as error:
            _require_refusal(observed, error)
            failed = await self._commit(observed, outcomes.not_started(error))
            return Observation.at_found(failed.row, failed.now)  # it may be there nevertheless
        except (BackendBusy, BackendUnavailable) as error:
            # Where something may have begun, it keeps its place until that is known; the queue is for what is to run.
            if observed.maybe_requested or observed.row.target is Target.PAUSED:
                raise
            return await self._make_wait(observed, outcomes.not_let_in(error), error)
        try:
            return await self._commit(observed, await self._runs(observed, access))
        except (Superseded, SandboxNotFound):
            await self._account_for(observed.row, access)
            raise

    async def _resume(self, observed: Observation) -> Observation:
        rules = self._calls.rules(observed.row)
        try:
            access = await self._calls.connect(observed)
        except (BackendRefused, AnswerLost) as error:
            _require_refusal(observed, error)
            return await self._commit(observed, outcomes.not_resumed(error, rules=rules))
        except BackendBusy as error:
            waits = outcomes.not_let_back_in(error, rules=rules)
            return await self._make_wait(observed, waits, error)
        return await self._commit(observed, await self._runs(observed, access))

    async def _pause(self, observed: Observation) -> Observation:
        try:
            await self._calls.pause(observed)
        except (BackendRefused, AnswerLost, PauseConflict) as error:
            _require_refusal(observed, error)
            await self._commit(observed, outcomes.not_paused(error))
            raise
        return await self._commit(observed, self._done(observed, State.PAUSED), outcomes.KEEPS_SLOT)

    async def _kill(self, observed: Observation) -> Observation:
        try:
            await self._calls.kill(observed)
        except BackendRefused as error:
            await self._record_reason(observed, outcomes.not_deleted(error))
            raise
        return await self._commit(observed, self._done(observed, State.STOPPED))

    async def kill_leftovers(self, observed: Observation) -> None:
        """Kill what is left of a sandbox that has ended."""
        await self._calls.kill(observed)

    async def _extend(self, observed: Observation) -> Observation:
        rules = self._calls.rules(observed.row)
        try:
            await self._calls.extend(observed)
        except BackendRefused as error:
            await self._record_reason(observed, outcomes.not_extended(error))
            raise
        extended = Transition(
            change=lambda row, now: extend_provider(row, now, rules=rules),
            cause=cause_of(observed.row) if outcomes.is_not_extended(observed.row) else None,
        )
        return await self._commit(observed, extended)

    async def _record_reason(self, observed: Observation, why: TransitionCause) -> None:
        """Say why the sandbox is still what it is, once for the same reason."""
        if observed.row.state_reason != why.reason:
            await self._commit(observed, Transition(change=into(observed.row.state), cause=why))

    async def record(
        self, observed: Observation, step: Step, *, due: Due | None = None, wake: bool = False
    ) -> Observation:
        """Let the row say what is so at its provider, or that nothing has to be done there."""
        assert step.act is not Act.ADMIT  # nobody takes a place but from admission
        row, said = observed.row, self._wanted(observed, due)
        if step.act is Act.RECORD and (cause := outcomes.behind_our_back(row, step.to)):
            target = None if step.target is row.target else step.target
            said = replace(said, cause=cause, target=target)
        return await self._commit(
            observed, *await self._recorded(observed, step, said), due=due, wake=wake
        )

    async def _recorded(
        self, observed: Observation, step: Step, said: Transition
    ) -> Sequence[Transition]:
        row, rules = observed.row, self._calls.rules(observed.row)
        if step.to is State.RUNNING and row.state is not State.PAUSING:
            runs = await self._runs(observed, await self._calls.connect(observed))
            return [replace(runs, cause=said.cause or runs.cause, target=said.target)]
        said = replace(said, values=observed.found_id)
        change = outcomes.becomes(step.to, rules=rules)
        if step.via is not row.state:
            return [replace(said, change=into(step.via)), Transition(change=change)]
        keeps_place = [outcomes.KEEPS_SLOT] if step.to is State.PAUSED else []
        return [replace(said, change=change), *keeps_place]

    def _done(self, observed: Observation, state: State) -> Transition:
        """Tell of what has been done by the wish that it was begun for, whatever is wanted by now."""
        change = outcomes.becomes(state, rules=self._calls.rules(observed.row))
        return Transition(change=change, cause=cause_of(observed.row))

    async def _runs(self, observed: Observation, access: Access) -> Transition:
        row = observed.row
        return Transition(
            change=outcomes.runs(row, since=observed.runs_since, rules=self._calls.rules(row)),
            cause=cause_of(row),
            values={
                "backend_sandbox_id": access.provider_id,
                "access_sealed": seal_access(self._vault, row.id, access),
                **await self._service_config.write(row, access),
            },
        )

    def _wanted(self, observed: Observation, due: Due | None) -> Transition:
        """Begin a transition with what a deadline wants; what is wanted anyway has its wish already."""
        change = into(observed.row.state)
        if due is None or due.why is Why.UNSETTLED:
            return Transition(change=change)
        reason = explain(due, deadlines_of(observed.row), rules=self._calls.rules(observed.row))
        cause = TransitionCause(cause=CAUSES[due.why], reason=reason)
        return Transition(change=change, target=due.target, cause=cause)

    async def _make_wait(
        self, observed: Observation, waits: Transition, error: BackendError
    ) -> Observation:
        """Give its place back, and let nobody take it before the provider has room."""
        assert observed.row.backend is not None
        hold_back = HoldBack(
            observed.row.backend, observed.now + (error.retry_after or outcomes.BUSY_FOR)
        )
        waiting = await self._transitions.commit(
            observed.row, waits, holds=outcomes.may_wait, hold_back=hold_back
        )
        return Observation.at_own(*waiting)

    async def _commit(
        self,
        observed: Observation,
        *transitions: Transition,
        due: Due | None = None,
        wake: bool = False,
    ) -> Observation:
        def holds(row: Sandbox, now: datetime) -> bool:
            return due is None or self._is_still_due(due, row, now)

        return Observation.at_own(
            *await self._transitions.commit(observed.row, *transitions, holds=holds, wake=wake)
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


def _require_refusal(observed: Observation, error: BackendError) -> None:
    """Try again what may yet succeed, unless it has failed too often."""
    if isinstance(error, (AnswerLost, PauseConflict)) and not observed.exhausted:
        raise error
