"""The part of the composition root that builds what changes the state of sandboxes and snapshots."""

from collections.abc import Collection
from dataclasses import dataclass

from sandbox_server.db.session import Sessions
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.providers.registry import Backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.activity import ActivityTracker
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.creation import Creation
from sandbox_server.sandboxes.drift.checker import INTERVALS, CheckIntervals, DriftChecker
from sandbox_server.sandboxes.drift.liveness import TIMEOUTS, LivenessChecker, LivenessTimeouts
from sandbox_server.sandboxes.drift.orphans import OrphanResolver
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.sandboxes.provider_calls import ProviderCalls
from sandbox_server.sandboxes.reconciler import InlineJobs, Reconciler
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.sandboxes.step_executor import NoWork, StepExecutor, WorkKeeper
from sandbox_server.sandboxes.targets import Targets
from sandbox_server.sandboxes.template_waiters import TemplateWaiters
from sandbox_server.sandboxes.transitions import Transitions
from sandbox_server.sandboxes.waiting import Waiting
from sandbox_server.snapshots.reconciler import SnapshotReconciler
from sandbox_server.snapshots.service import SnapshotService
from sandbox_server.templates.lookup import TemplateLookup
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """The handlers of jobs about sandboxes and snapshots."""

    transitions: Transitions
    service_config: ServiceConfigWriter
    reconciler: Reconciler
    admission: Admission
    waiters: TemplateWaiters
    snapshots: SnapshotReconciler


@dataclass(frozen=True, kw_only=True)
class UseCases:
    """The use cases of sandboxes and snapshots."""

    access: SandboxAccess
    activity: ActivityTracker
    lookup: TemplateLookup
    controller: SandboxController
    snapshots: SnapshotService


def build_reconciliation(
    sessions: Sessions,
    backends: Backends,
    vault: Vault,
    *,
    changes: Changes | None = None,
    public_address: PublicAddress | None = None,
    work_keeper: WorkKeeper | None = None,
) -> Reconciliation:
    transitions = Transitions(sessions, changes)
    calls = ProviderCalls(backends, vault)
    service_config = ServiceConfigWriter(sessions, backends, vault, public_address)
    work = work_keeper or NoWork()
    executor = StepExecutor(transitions, calls, vault, service_config, work)
    return Reconciliation(
        transitions=transitions,
        service_config=service_config,
        reconciler=Reconciler(sessions, calls, executor, service_config),
        admission=Admission(sessions, by=changes.name if changes else ""),
        waiters=TemplateWaiters(sessions, transitions),
        snapshots=SnapshotReconciler(sessions, backends, transitions),
    )


def build_drift_checker(
    sessions: Sessions,
    backends: Backends,
    vault: Vault,
    reconciliation: Reconciliation,
    *,
    intervals: CheckIntervals = INTERVALS,
    timeouts: LivenessTimeouts = TIMEOUTS,
) -> DriftChecker:
    reconciler = reconciliation.reconciler
    return DriftChecker(
        sessions,
        backends,
        reconciler,
        LivenessChecker(sessions, vault, timeouts=timeouts),
        OrphanResolver(sessions, reconciler, reconciliation.transitions),
        intervals=intervals,
    )


def build_use_cases(
    sessions: Sessions,
    backends: Backends,
    vault: Vault,
    reconciliation: Reconciliation,
    scheduler: SandboxQueueScheduler,
    *,
    changes: Changes,
    placement: Placement,
    bundled: Collection[str] = (),
) -> UseCases:
    jobs, admission = InlineJobs(scheduler), reconciliation.admission
    lookup = TemplateLookup(sessions, backends, bundled=bundled)
    creation = Creation(sessions, jobs, admission, placement, lookup, vault)
    waiting = Waiting(sessions, changes)
    access, activity = SandboxAccess(backends, vault), ActivityTracker(sessions)
    return UseCases(
        access=access,
        activity=activity,
        lookup=lookup,
        controller=SandboxController(
            sessions,
            backends,
            vault,
            creation=creation,
            targets=Targets(sessions, jobs, admission, backends, changes),
            waiting=waiting,
            access=access,
            activity=activity,
        ),
        snapshots=SnapshotService(sessions, scheduler, creation, waiting),
    )
