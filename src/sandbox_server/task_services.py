"""The part of the composition root that builds what works on tasks."""

from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.commands.service import Commands
from sandbox_server.db.session import Sessions
from sandbox_server.domain.tasks.stages import Stage
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.forges.redelivery import Redelivery
from sandbox_server.forges.service import Forges
from sandbox_server.git.bare import TaskRepositories
from sandbox_server.git.checkouts import Checkouts
from sandbox_server.git.lfs.forge import ForgeLargeFiles
from sandbox_server.git.work import SandboxWork
from sandbox_server.git_services import GitServices
from sandbox_server.jobs.kinds import (
    FORGE_WRITES,
    PULL_REQUEST,
    TASK,
    TASK_SAVE,
    WEBHOOK_DELIVERY,
    WEBHOOK_REDELIVERY,
)
from sandbox_server.jobs.worker import Handler
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.service import SandboxController
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
from sandbox_server.tasks.triggers.worker import DeliveryWorker
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class TaskParts:
    """What tasks are built on."""

    sessions: Sessions
    controller: SandboxController
    commands: Commands
    forges: Forges
    repositories: Repositories
    git: GitServices
    saves: TaskSaves
    save_every: timedelta


@dataclass(frozen=True, kw_only=True)
class TaskServices:
    """What callers may ask of tasks, and the handlers of their jobs."""

    tasks: Tasks
    history: TaskHistory
    overlaps: TaskOverlaps
    reconciler: TaskReconciler
    interval_saves: IntervalSaves
    follower: PullRequestFollower
    outbox: OutboxWorker
    deliveries: DeliveryWorker
    redelivery: Redelivery

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            TASK: self.reconciler.reconcile,
            TASK_SAVE: self.interval_saves.work,
            PULL_REQUEST: self.follower.work,
            FORGE_WRITES: self.outbox.work,
            WEBHOOK_DELIVERY: self.deliveries.work,
            WEBHOOK_REDELIVERY: self.redelivery.work,
        }


def build_saves(sessions: Sessions, vault: Vault, large_files: ForgeLargeFiles) -> TaskSaves:
    return TaskSaves(sessions, vault, SandboxWork(), TaskLargeFiles(sessions, vault, large_files))


def build_task_services(parts: TaskParts) -> TaskServices:
    sessions, forges = parts.sessions, parts.forges
    transitions, runs = TaskTransitions(sessions), TaskRuns(sessions, parts.commands)
    tasks = Tasks(sessions, parts.repositories)
    sandboxes = TaskSandboxes(sessions, parts.controller, parts.repositories, transitions)
    checkouts, task_repositories = parts.git.checkouts, parts.git.scratch
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
        tasks=tasks,
        sandboxes=sandboxes,
        runs=runs,
        checkouts=checkouts,
        repositories=task_repositories,
        transitions=transitions,
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
        reconciler=TaskReconciler(sessions, forges=forges, runs=runs, steps=steps, ending=ending),
        interval_saves=IntervalSaves(
            sessions, parts.controller, parts.saves, every=parts.save_every
        ),
        follower=PullRequestFollower(sessions, forges, tasks),
        outbox=OutboxWorker(sessions, forges),
        redelivery=Redelivery(sessions, forges),
        deliveries=DeliveryWorker(
            sessions, Deliveries(sessions, forges), forges, parts.repositories, tasks
        ),
    )


def _steps(
    parts: TaskParts,
    *,
    tasks: Tasks,
    sandboxes: TaskSandboxes,
    runs: TaskRuns,
    checkouts: Checkouts,
    repositories: TaskRepositories,
    transitions: TaskTransitions,
) -> dict[Stage, Step]:
    sessions, saves = parts.sessions, parts.saves
    checkout = TaskCheckout(SandboxWork())
    pull_requests = PullRequests(sessions, parts.forges, transitions)
    agent_work = AgentWork(
        sessions,
        sandboxes=sandboxes,
        checkout=checkout,
        runs=runs,
        requests=AgentRequests(sessions, sandboxes, checkout),
        after_run=AfterRun(
            sessions,
            sandboxes=sandboxes,
            checkout=checkout,
            saves=saves,
            runs=runs,
            transitions=transitions,
        ),
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
