import json
from collections.abc import Sequence

from sandbox_server.domain.errors import (
    ForgePermissionMissing,
    ForgeResourceNotFound,
    NotSupportedByForge,
)
from sandbox_server.domain.tasks.forges import CheckFacts, RepositoryFacts, Validated
from sandbox_server.forges.connection.answers import Answer
from sandbox_server.forges.connection.client import Call
from sandbox_server.forges.github.models import (
    Annotation,
    CheckRunDocument,
    CheckRuns,
    CombinedStatus,
    JobDocument,
    WorkflowRunDocument,
)
from sandbox_server.forges.github.permissions import RERUN
from sandbox_server.forges.github.rest import PER_PAGE, GithubApi

_ABSENT = (ForgePermissionMissing, ForgeResourceNotFound)
_EXPIRED = frozenset({404, 410})
_RUNS, _STATUS = "check-runs", "status"


class GithubChecks:
    """Check runs, jobs of GitHub Actions, and commit statuses."""

    def __init__(self, api: GithubApi) -> None:
        self._api = api

    async def list_checks(
        self, repository: RepositoryFacts, sha: str, *, validator: str | None = None
    ) -> Validated[tuple[CheckFacts, ...]]:
        """List both kinds of checks; the validator is unchanged only if both are."""
        known = _read_validators(validator)
        answers = {name: await self._ask(repository, sha, name, known) for name in (_RUNS, _STATUS)}
        if not any(answers.values()):
            raise ForgePermissionMissing(
                self._api.address.name,
                f"Neither check runs nor statuses of {sha[:12]} can be read.",
                permission="checks: read",
            )
        if known and all(answer is None or answer.is_unchanged for answer in answers.values()):
            return Validated(value=None, validator=validator)
        for name, answer in answers.items():
            if answer is not None and answer.is_unchanged:
                answers[name] = await self._ask(repository, sha, name, {})
        checks = (*_runs(answers[_RUNS]), *_statuses(answers[_STATUS]))
        return Validated(value=checks, validator=_validators_of(answers))

    async def read_check_log(
        self, repository: RepositoryFacts, check: CheckFacts, *, max_bytes: int
    ) -> bytes:
        match check.origin:
            case "job":
                return await self._read_job_log(repository, check, max_bytes)
            case "check-run":
                return (await self._read_output(repository, check))[-max_bytes:]
        return check.summary.encode()[-max_bytes:]

    async def rerun_checks(self, repository: RepositoryFacts, checks: Sequence[CheckFacts]) -> None:
        """Rerun the failed jobs of the workflow runs; a run that has a newer attempt was rerun before."""
        attempts: dict[int, int] = {}
        for check in checks:
            if check.origin == "job":
                path = f"/actions/jobs/{check.external_id}"
                job = (await self._ask_actions(repository, "GET", path)).read(JobDocument)
                attempts[job.run_id] = job.run_attempt
        if not attempts:
            reason = "Only jobs of GitHub Actions can be rerun."
            raise NotSupportedByForge(self._api.address.name, reason)
        for run_id, attempt in attempts.items():
            path = f"/actions/runs/{run_id}"
            run = (await self._ask_actions(repository, "GET", path)).read(WorkflowRunDocument)
            if run.run_attempt <= attempt:
                await self._ask_actions(repository, "POST", f"{path}/rerun-failed-jobs")

    async def _ask_actions(self, repository: RepositoryFacts, method: str, path: str) -> Answer:
        call = self._api.call(repository, method, path, about="Rerun of failed jobs")
        authorized = await self._api.credentials.authorize_for(repository, RERUN)
        return await self._api.send(authorized, call)

    async def _ask(
        self, repository: RepositoryFacts, sha: str, name: str, known: dict[str, str]
    ) -> Answer | None:
        """Ask for one kind; None where the credential may not see it."""
        try:
            return await self._api.get(
                repository,
                f"/commits/{sha}/{name}",
                about=f"Checks of {sha[:12]}",
                params={"per_page": PER_PAGE},
                validator=known.get(name),
            )
        except _ABSENT:
            return None

    async def _read_job_log(
        self, repository: RepositoryFacts, check: CheckFacts, max_bytes: int
    ) -> bytes:
        authorized = await self._api.credentials.authorize(repository)
        call = Call(
            method="GET",
            path=f"/repos/{repository.full_name}/actions/jobs/{check.external_id}/logs",
            about=f"Log of {check.name}",
        ).authorized_by(authorized)
        answer = await self._api.client.read_end(self._api.address, call, max_bytes=max_bytes)
        is_gone = answer.status in _EXPIRED
        return b"" if is_gone else answer.require_success(about=call.about).body

    async def _read_output(self, repository: RepositoryFacts, check: CheckFacts) -> bytes:
        path, about = f"/check-runs/{check.external_id}", f"Output of {check.name}"
        output = (await self._api.get(repository, path, about=about)).read(CheckRunDocument).output
        answer = await self._api.get(
            repository, f"{path}/annotations", about=about, params={"per_page": PER_PAGE}
        )
        annotations = [_line(each) for each in answer.read(list[Annotation])]
        parts = (output.title, output.summary, output.text, *annotations)
        return "\n".join(part for part in parts if part).encode()


def _runs(answer: Answer | None) -> list[CheckFacts]:
    if answer is None:
        return []
    return [run.facts() for run in answer.read(CheckRuns).check_runs]


def _statuses(answer: Answer | None) -> list[CheckFacts]:
    if answer is None:
        return []
    return [status.facts() for status in answer.read(CombinedStatus).statuses]


def _line(annotation: Annotation) -> str:
    level = annotation.annotation_level or "notice"
    return f"{annotation.path}:{annotation.start_line}: {level}: {annotation.message or ''}"


def _validators_of(answers: dict[str, Answer | None]) -> str | None:
    known = {name: answer.validator for name, answer in answers.items() if answer is not None}
    return json.dumps(known) if known and all(known.values()) else None


def _read_validators(validator: str | None) -> dict[str, str]:
    return {} if validator is None else json.loads(validator)
