"""E2B's wire models of builds."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool

from sandbox_engine.control.models.wire import WireModel
from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.records.catalog import Catalog
from sandbox_engine.system.errors import InvalidRequest, NotImplementedHere
from sandbox_engine.templates.building.log import BuildLog, BuildLogEntry, Level
from sandbox_engine.templates.building.plan import BuildPlan, Step, StepKind
from sandbox_engine.templates.records import (
    BuildRecord,
    BuildStatus,
    Failure,
    TemplateRecord,
)

_MOST_STEPS = 1000
_ENTRIES_OF_A_FAILURE = 100


class GeneralRegistry(WireModel):
    type: Literal["registry"]
    username: str
    password: str

    def to_credentials(self) -> RegistryCredentials:
        return RegistryCredentials(self.username, self.password)


class GcpRegistry(WireModel):
    type: Literal["gcp"]
    service_account_json: str

    def to_credentials(self) -> RegistryCredentials:
        return RegistryCredentials("_json_key", self.service_account_json)


class AwsRegistry(WireModel):
    type: Literal["aws"]

    def to_credentials(self) -> RegistryCredentials:
        raise NotImplementedHere(
            "Signing in to AWS with an access key (use the username AWS with the password that "
            "`aws ecr get-login-password` prints)"
        )


Registry = Annotated[GeneralRegistry | GcpRegistry | AwsRegistry, Field(discriminator="type")]


class StepBody(WireModel):
    """One instruction of a build."""

    type: str
    args: list[str] = Field(default_factory=list)
    files_hash: str = ""
    force: StrictBool = False

    def to_step(self) -> Step:
        try:
            kind = StepKind(self.type)
        except ValueError:
            raise NotImplementedHere(f"The instruction {self.type}") from None
        return Step(kind, tuple(self.args), files_hash=self.files_hash, force=self.force)


class StartBuildBody(WireModel):
    """Definition of a build (v2)."""

    from_image: str = ""
    from_template: str = ""
    from_image_registry: Registry | None = None
    steps: list[StepBody] = Field(default_factory=list, max_length=_MOST_STEPS)
    start_cmd: str = ""
    ready_cmd: str = ""
    force: StrictBool = False

    def to_plan(self, build: BuildRecord, catalog: Catalog) -> BuildPlan:
        if bool(self.from_image) == bool(self.from_template):
            raise InvalidRequest("A build needs either fromImage or fromTemplate")
        registry = self.from_image_registry
        return BuildPlan(
            steps=tuple(step.to_step() for step in self.steps),
            from_image=self.from_image,
            from_template=catalog.get(self.from_template) if self.from_template else None,
            credentials=registry.to_credentials() if registry else None,
            start_command=self.start_cmd,
            ready_command=self.ready_cmd,
            cpu_count=build.cpu_count,
            memory_mb=build.memory_mb,
            force=self.force,
        )


class BuildLogLine(WireModel):
    timestamp: datetime
    level: Level
    message: str
    step: str | None = None

    @classmethod
    def of(cls, entry: BuildLogEntry) -> Self:
        return cls(
            timestamp=entry.timestamp, level=entry.level, message=entry.message, step=entry.step
        )


class BuildLogs(WireModel):
    logs: list[BuildLogLine]


class FailureReason(WireModel):
    """Reason of a failed build, with the log of the failing step."""

    message: str
    step: str | None
    log_entries: list[BuildLogLine]

    @classmethod
    def of(cls, failure: Failure, log: BuildLog) -> Self:
        entries = log.of_step(failure.step) if failure.step else log.read(level=Level.WARN)
        lines = [BuildLogLine.of(entry) for entry in entries[-_ENTRIES_OF_A_FAILURE:]]
        return cls(message=failure.message, step=failure.step, log_entries=lines)


class BuildStatusBody(WireModel):
    """State of a build, with a part of its log."""

    template_id: str = Field(alias="templateID")
    build_id: str = Field(alias="buildID")
    status: BuildStatus
    logs: list[str] = Field(default_factory=list)
    log_entries: list[BuildLogLine]
    reason: FailureReason | None

    @classmethod
    def of(
        cls,
        template: TemplateRecord,
        build: BuildRecord,
        log: BuildLog,
        *,
        shown: list[BuildLogLine],
    ) -> Self:
        return cls(
            template_id=template.id,
            build_id=build.id,
            status=build.status,
            log_entries=shown,
            reason=build.failure and FailureReason.of(build.failure, log),
        )
