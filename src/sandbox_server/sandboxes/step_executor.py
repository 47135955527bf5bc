import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from time import perf_counter
from typing import Protocol

from sandbox_server.db.models import Sandbox
from sandbox_server.domain.deadlines import extend_provider
from sandbox_server.domain.due import Due, Why, next_due
from sandbox_server.domain.errors import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
    SandboxError,
    SandboxNotFound,
    Superseded,
)
from sandbox_server.domain.events import CAUSES
from sandbox_server.domain.explanations import explain
from sandbox_server.domain.state import State, Target
from sandbox_server.domain.steps import Act, Step
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.metrics.instruments import TRANSITION_SECONDS
from sandbox_server.providers.protocol.errors import AnswerLost, PauseConflict, SandboxGone
from sandbox_server.providers.protocol.provider import Access
from sandbox_server.sandboxes import outcomes
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.provider_calls import ProviderCalls
from sandbox_server.sandboxes.repositories.sandboxes import cause_of, deadlines_of
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.services.encrypted_columns import seal_access
from sandbox_server.sandboxes.transitions import HoldBack, Transition, Transitions, into
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)

_STOPPING_ACTS = frozenset({Act.PAUSE, Act.KILL})
_REFRESH = Step(Act.PAUSE, State.PAUSING, State.PAUSED, Target.RUNNING)


class WorkKeeper(Protocol):
    """Saves work that is in a sandbox only."""

    async def save_before(self, row: Sandbox, act: str) -> None:
        """Save what a running sandbox has, before it is paused or deleted."""
        ...


class NoWork:
    """Nothing in sandboxes is saved."""

    async def save_before(self, row: Sandbox, act: str) -> None:
        pass


class WorkKeepers:
    """Has several kinds of work saved; the failure of one does not prevent the others."""

    def __init__(self, *keepers: WorkKeeper) -> None:
        self._keepers = [*keepers]

    def add(self, keeper: WorkKeeper) -> None:
        self._keepers.append(keeper)

    async def save_before(self, row: Sandbox, act: str) -> None:
        failure: SandboxError | TimeoutError | None = None
        for keeper in self._keepers:
            try:
                await keeper.save_before(row, act)
            except (SandboxError, TimeoutError) as error:
                failure = failure or error
        if failure is not None:
            raise failure


class StepExecutor:
    """Executes steps: commits the intermediate state, calls the provider, commits the result.

    Each method returns the row as it committed it, with the resulting state at the provider.
    """

    def __init__(
        self,
        transitions: Transitions,
        calls: ProviderCalls,
        vault: Vault,
        service_config: ServiceConfigWriter,
        work: WorkKeeper,
    ) -> None:
        self._work = work
        self._transitions = transitions
        self._calls = calls
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
        await self._save_work(observed, step)
        began = perf_counter()
        done = await self._provider_acts[step.act](await self._begin(observed, step, due))
        TRANSITION_SECONDS.labels(step.act, done.row.state).observe(perf_counter() - began)
        return done

    async def _begin(self, observed: Observation, step: Step, due: Due) -> Observation:
        """Commit the intermediate state, unless this process has just committed it.

        The commit increments the generation, so any other process working on the row is fenced off.
        """
        row = observed.row
        is_begun = row.state is step.via and (step.act is not Act.START or row.tried_at is not None)
        if observed.is_own and is_begun and due.why is Why.UNSETTLED:
            return observed
        values = observed.found_id
        if step.act is Act.START:
            values |= {"tried_at": row.tried_at or observed.now}
        begun = replace(self._caused_by(observed, due), change=into(step.via), values=values)
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
            return Observation.of_read(failed.row, failed.now)  # the sandbox may exist nevertheless
        except (BackendBusy, BackendUnavailable) as error:
            # A sandbox that may exist keeps its slot until that is known. Only rows with the target
            # `running` may be queued.
            if observed.maybe_requested or observed.row.target is Target.PAUSED:
                raise
            return await self._requeue(observed, outcomes.not_let_in(error), error)
        try:
            return await self._commit(observed, await self._running(observed, access))
        except (Superseded, SandboxNotFound):
            await self._keep_or_kill(observed.row, access)
            raise

    async def _resume(self, observed: Observation) -> Observation:
        rules = self._calls.rules(observed.row)
        try:
            access = await self._calls.connect(observed)
        except (BackendRefused, AnswerLost) as error:
            _require_refusal(observed, error)
            return await self._commit(observed, outcomes.not_resumed(error, rules=rules))
        except BackendBusy as error:
            queued = outcomes.not_let_back_in(error, rules=rules)
            return await self._requeue(observed, queued, error)
        return await self._commit(observed, await self._running(observed, access))

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

    async def _save_work(self, observed: Observation, step: Step) -> None:
        """Have work saved before a sandbox stops running; a deletion waits for that, until its retries are used up."""
        is_running = observed.row.state is State.RUNNING
        if step.act not in _STOPPING_ACTS or not is_running:
            return
        try:
            await self._work.save_before(observed.row, step.act)
        except (SandboxError, TimeoutError) as error:
            if step.act is Act.KILL and not observed.exhausted:
                raise
            log.warning("work not saved before %s error=%s", step.act, error)

    async def kill_leftovers(self, observed: Observation) -> None:
        """Kill remaining provider sandboxes of an ended row."""
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

    async def _record_reason(self, observed: Observation, cause: TransitionCause) -> None:
        """Record why the state does not change; the same reason is recorded once."""
        if observed.row.state_reason != cause.reason:
            unchanged = Transition(change=into(observed.row.state), cause=cause)
            await self._commit(observed, unchanged)

    async def record(
        self, observed: Observation, step: Step, *, due: Due | None = None, wake: bool = False
    ) -> Observation:
        """Update the row to its state at the provider, or to a target that needs no provider call."""
        assert step.act is not Act.ADMIT  # only admission gives out slots
        row, recorded = observed.row, self._caused_by(observed, due)
        if step.act is Act.RECORD and (cause := outcomes.by_provider_alone(row, step.to)):
            target = None if step.target is row.target else step.target
            recorded = replace(recorded, cause=cause, target=target)
        transitions = await self._recorded(observed, step, recorded)
        return await self._commit(observed, *transitions, due=due, wake=wake)

    async def _recorded(
        self, observed: Observation, step: Step, recorded: Transition
    ) -> Sequence[Transition]:
        row, rules = observed.row, self._calls.rules(observed.row)
        if step.to is State.RUNNING and row.state is not State.PAUSING:
            running = await self._running(observed, await self._calls.connect(observed))
            cause = recorded.cause or running.cause
            return [replace(running, cause=cause, target=recorded.target)]
        recorded = replace(recorded, values=observed.found_id)
        change = outcomes.becomes(step.to, rules=rules)
        if step.via is not row.state:
            return [replace(recorded, change=into(step.via)), Transition(change=change)]
        keeps_slot = [outcomes.KEEPS_SLOT] if step.to is State.PAUSED else []
        return [replace(recorded, change=change), *keeps_slot]

    def _done(self, observed: Observation, state: State) -> Transition:
        """Attribute a finished step to the cause that began it, even if the target has changed since."""
        change = outcomes.becomes(state, rules=self._calls.rules(observed.row))
        return Transition(change=change, cause=cause_of(observed.row))

    async def _running(self, observed: Observation, access: Access) -> Transition:
        row = observed.row
        rules = self._calls.rules(row)
        return Transition(
            change=outcomes.runs(row, since=observed.runs_since, rules=rules),
            cause=cause_of(row),
            values={
                "backend_sandbox_id": access.provider_id,
                "access_sealed": seal_access(self._vault, row.id, access),
                **await self._service_config.write(row, access),
            },
        )

    def _caused_by(self, observed: Observation, due: Due | None) -> Transition:
        """Begin a transition with the target and cause of a deadline, or with the row's own."""
        change = into(observed.row.state)
        if due is None or due.why is Why.UNSETTLED:
            return Transition(change=change)
        rules = self._calls.rules(observed.row)
        reason = explain(due, deadlines_of(observed.row), rules=rules)
        cause = TransitionCause(cause=CAUSES[due.why], reason=reason)
        return Transition(change=change, target=due.target, cause=cause)

    async def _requeue(
        self, observed: Observation, queued: Transition, error: BackendError
    ) -> Observation:
        """Release the slot, and admit nobody at the backend until the provider has room."""
        assert observed.row.backend is not None
        until = observed.now + (error.retry_after or outcomes.BUSY_FOR)
        hold_back = HoldBack(observed.row.backend, until)
        committed = await self._transitions.commit(
            observed.row, queued, condition=outcomes.may_wait, hold_back=hold_back
        )
        return Observation.of_commit(*committed)

    async def _commit(
        self,
        observed: Observation,
        *transitions: Transition,
        due: Due | None = None,
        wake: bool = False,
    ) -> Observation:
        def condition(row: Sandbox, now: datetime) -> bool:
            return due is None or self._is_still_due(due, row, now)

        committed = await self._transitions.commit(
            observed.row, *transitions, condition=condition, wake=wake
        )
        return Observation.of_commit(*committed)

    def _is_still_due(self, due: Due, row: Sandbox, now: datetime) -> bool:
        # Activity or a request may have moved the deadline since the row was read.
        still = next_due(deadlines_of(row), now, rules=self._calls.rules(row))
        return (
            still is not None
            and still.at <= now
            and (still.why, still.target) == (due.why, due.target)
        )

    async def _keep_or_kill(self, seen: Sandbox, access: Access) -> None:
        """Add a sandbox that was created for a superseded row to that row, or kill it."""
        if not await self._transitions.note_provider_id(seen, access.provider_id):
            await self._calls.kill_late(seen, access)


def _require_refusal(observed: Observation, error: BackendError) -> None:
    """Raise an error that a retry may resolve, unless the retries are used up."""
    if isinstance(error, (AnswerLost, PauseConflict)) and not observed.exhausted:
        raise error
