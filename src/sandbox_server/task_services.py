"""The part of the composition root that builds what works on tasks."""

from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.commands.service import Commands
from sandbox_server.db.session import Sessions
from sandbox_server.domain.tasks.stages import AttemptState, Stage
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.forges.redelivery import Redelivery
from sandbox_server.forges.service import Forges
from sandbox_server.git.bare import TaskRepositories
from sandbox_server.git.checkouts import Checkouts
from sandbox_server.git.lfs.fetching import LargeFileFetcher
from sandbox_server.git.lfs.forge import ForgeLargeFiles
from sandbox_server.git.work import SandboxWork
from sandbox_server.git_services import GitServices
from sandbox_server.jobs.kinds import (
    FORGE_WRITES,
    PULL_REQUEST,
    TASK,
    TASK_ATTEMPT,
    TASK_SAVE,
    TRIGGER_LOOK,
    WEBHOOK_DELIVERY,
    WEBHOOK_REDELIVERY,
)
from sandbox_server.jobs.worker import Handler
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.snapshots.service import SnapshotService
from sandbox_server.tasks.attempts.agent_run import AttemptAgent, AttemptStart
from sandbox_server.tasks.attempts.checks import AttemptChecks
from sandbox_server.tasks.attempts.choosing import AttemptChoice
from sandbox_server.tasks.attempts.ending import AttemptEnd, AttemptsEnding
from sandbox_server.tasks.attempts.reconciler import AttemptReconciler
from sandbox_server.tasks.attempts.runs import AttemptRuns
from sandbox_server.tasks.attempts.sandboxes import AttemptSandboxes
from sandbox_server.tasks.attempts.snapshots import AttemptSnapshots
from sandbox_server.tasks.attempts.transitions import AttemptTransitions
from sandbox_server.tasks.automatic_saves import IntervalSaves
from sandbox_server.tasks.following.follower import PullRequestFollower
from sandbox_server.tasks.history import TaskHistory
from sandbox_server.tasks.large_files.service import TaskLargeFiles
from sandbox_server.tasks.outbox import OutboxWorker
from sandbox_server.tasks.overlaps.service import TaskOverlaps
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.stages.after_run import AfterRun
from sandbox_server.tasks.stages.agent_requests import AgentRequests
from sandbox_server.tasks.stages.agent_work import AgentWork
from sandbox_server.tasks.stages.checking import Checking
from sandbox_server.tasks.stages.checkout import TaskCheckout
from sandbox_server.tasks.stages.ending import Ending
from sandbox_server.tasks.stages.preflight import Preflight
from sandbox_server.tasks.stages.preparation import Preparation
from sandbox_server.tasks.stages.publishing import Publishing
from sandbox_server.tasks.stages.pull_requests import PullRequests
from sandbox_server.tasks.stages.reconciler import TaskReconciler
from sandbox_server.tasks.stages.runs import TaskRuns
from sandbox_server.tasks.stages.sandboxes import TaskSandboxes
from sandbox_server.tasks.stages.waiting import Waiting
from sandbox_server.tasks.stages.work import Step
from sandbox_server.tasks.transitions import TaskTransitions
from sandbox_server.tasks.triggers.reconciliation import MissedTriggers
from sandbox_server.tasks.triggers.worker import DeliveryWorker
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class TaskParts:
    """Services that tasks depend on."""

    sessions: Sessions
    controller: SandboxController
    commands: Commands
    forges: Forges
    repositories: Repositories
    git: GitServices
    saves: TaskSaves
    save_every: timedelta
    snapshots: SnapshotService


@dataclass(frozen=True, kw_only=True)
class TaskServices:
    """Use cases of tasks, and the handlers of their jobs."""

    tasks: Tasks
    history: TaskHistory
    overlaps: TaskOverlaps
    reconciler: TaskReconciler
    attempts: AttemptReconciler
    interval_saves: IntervalSaves
    follower: PullRequestFollower
    outbox: OutboxWorker
    deliveries: DeliveryWorker
    redelivery: Redelivery
    missed_triggers: MissedTriggers

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            TASK: self.reconciler.reconcile,
            TASK_ATTEMPT: self.attempts.reconcile,
            TASK_SAVE: self.interval_saves.work,
            PULL_REQUEST: self.follower.work,
            FORGE_WRITES: self.outbox.work,
            WEBHOOK_DELIVERY: self.deliveries.work,
            WEBHOOK_REDELIVERY: self.redelivery.work,
            TRIGGER_LOOK: self.missed_triggers.work,
        }


def build_saves(
    sessions: Sessions, vault: Vault, large_files: tuple[ForgeLargeFiles, LargeFileFetcher]
) -> TaskSaves:
    return TaskSaves(sessions, vault, SandboxWork(), TaskLargeFiles(sessions, vault, *large_files))


def build_task_services(parts: TaskParts) -> TaskServices:
    sessions, forges = parts.sessions, parts.forges
    transitions, runs = TaskTransitions(sessions), TaskRuns(sessions, parts.commands)
    tasks = Tasks(sessions, parts.repositories)
    deliveries = Deliveries(sessions, forges)
    sandboxes = TaskSandboxes(sessions, parts.controller, parts.repositories, transitions)
    checkouts, task_repositories = parts.git.checkouts, parts.git.scratch
    agents = _agent_parts(parts, sandboxes=sandboxes, runs=runs, transitions=transitions)
    attempts = _attempts(parts, agents, sandboxes=sandboxes, runs=runs)
    snapshots = AttemptSnapshots(sessions, sandboxes, parts.snapshots, transitions)
    ending = Ending(
        sessions,
        sandboxes=sandboxes,
        saves=parts.saves,
        runs=runs,
        repositories=task_repositories,
        forges=forges,
        transitions=transitions,
    )
    steps = _steps(
        parts,
        agents,
        tasks=tasks,
        sandboxes=sandboxes,
        runs=runs,
        checkouts=checkouts,
        repositories=task_repositories,
        transitions=transitions,
    )
    steps[Stage.WORKING] = AttemptChoice(
        sessions,
        sandboxes=sandboxes,
        snapshots=snapshots,
        saves=parts.saves,
        repositories=task_repositories,
        agent_work=steps[Stage.WORKING],
    )
    return TaskServices(
        tasks=tasks,
        history=TaskHistory(
            sessions,
            controller=parts.controller,
            saves=parts.saves,
            repositories=parts.repositories,
            task_repositories=task_repositories,
            checkouts=checkouts,
            forges=forges,
        ),
        overlaps=TaskOverlaps(
            sessions,
            saves=parts.saves,
            repositories=parts.repositories,
            task_repositories=task_repositories,
        ),
        reconciler=TaskReconciler(
            sessions,
            forges=forges,
            runs=runs,
            steps=steps,
            ending=AttemptsEnding(sessions, snapshots, ending),
        ),
        attempts=attempts,
        interval_saves=IntervalSaves(
            sessions, parts.controller, parts.saves, every=parts.save_every
        ),
        follower=PullRequestFollower(sessions, forges, tasks),
        outbox=OutboxWorker(sessions, forges),
        redelivery=Redelivery(sessions, forges),
        deliveries=DeliveryWorker(sessions, deliveries, forges, parts.repositories, tasks),
        missed_triggers=MissedTriggers(sessions, deliveries, forges, parts.repositories),
    )


@dataclass(frozen=True, kw_only=True)
class _AgentParts:
    """Services for runs of agents, in tasks and in attempts."""

    checkout: TaskCheckout
    requests: AgentRequests
    after_run: AfterRun


def _agent_parts(
    parts: TaskParts, *, sandboxes: TaskSandboxes, runs: TaskRuns, transitions: TaskTransitions
) -> _AgentParts:
    checkout = TaskCheckout(SandboxWork())
    return _AgentParts(
        checkout=checkout,
        requests=AgentRequests(parts.sessions, sandboxes, checkout),
        after_run=AfterRun(
            parts.sessions,
            sandboxes=sandboxes,
            checkout=checkout,
            saves=parts.saves,
            runs=runs,
            transitions=transitions,
        ),
    )


def _attempts(
    parts: TaskParts, agents: _AgentParts, *, sandboxes: TaskSandboxes, runs: TaskRuns
) -> AttemptReconciler:
    sessions = parts.sessions
    transitions, own_runs = AttemptTransitions(sessions), AttemptRuns(sessions, runs)
    own = AttemptSandboxes(sessions, parts.controller, sandboxes, parts.saves, transitions)
    agent = AttemptAgent(
        sessions,
        sandboxes=sandboxes,
        checkout=agents.checkout,
        runs=own_runs,
        requests=agents.requests,
        after_run=agents.after_run,
        save_every=parts.save_every,
        transitions=transitions,
    )
    checks = AttemptChecks(sandboxes=sandboxes, runs=own_runs, transitions=transitions)
    return AttemptReconciler(
        sessions,
        runs=own_runs,
        sandboxes=sandboxes,
        steps={
            AttemptState.QUEUED: AttemptStart(own, transitions),
            AttemptState.WORKING: agent,
            AttemptState.CHECKING: checks,
        },
        end=AttemptEnd(own=own, sandboxes=sandboxes, runs=own_runs, transitions=transitions),
        transitions=transitions,
    )


def _steps(
    parts: TaskParts,
    agents: _AgentParts,
    *,
    tasks: Tasks,
    sandboxes: TaskSandboxes,
    runs: TaskRuns,
    checkouts: Checkouts,
    repositories: TaskRepositories,
    transitions: TaskTransitions,
) -> dict[Stage, Step]:
    sessions, saves = parts.sessions, parts.saves
    checkout = agents.checkout
    pull_requests = PullRequests(sessions, parts.forges, transitions)
    agent_work = AgentWork(
        sessions,
        sandboxes=sandboxes,
        checkout=checkout,
        runs=runs,
        requests=agents.requests,
        after_run=agents.after_run,
        save_every=parts.save_every,
    )
    return {
        Stage.QUEUED: Preflight(sessions, parts.forges),
        Stage.PREPARING: Preparation(
            sandboxes=sandboxes,
            checkouts=checkouts,
            saves=saves,
            runs=runs,
            forges=parts.forges,
            tasks=tasks,
            transitions=transitions,
        ),
        Stage.WORKING: agent_work,
        Stage.FIXING: agent_work,
        Stage.CHECKING: Checking(
            sessions, sandboxes=sandboxes, runs=runs, tasks=tasks, transitions=transitions
        ),
        Stage.PUBLISHING: Publishing(
            sandboxes=sandboxes,
            checkout=checkout,
            saves=saves,
            repositories=repositories,
            forges=parts.forges,
            tasks=tasks,
            pull_requests=pull_requests,
            transitions=transitions,
        ),
        Stage.IN_REVIEW: pull_requests,
        Stage.WAITING_FOR_USER: Waiting(sessions, sandboxes, transitions),
    }
