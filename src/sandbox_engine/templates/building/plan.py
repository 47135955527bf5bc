from dataclasses import dataclass
from enum import StrEnum

from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.records.catalog import Template


class StepKind(StrEnum):
    """Kind of a build step."""

    RUN = "RUN"
    COPY = "COPY"
    ENV = "ENV"
    ARG = "ARG"
    WORKDIR = "WORKDIR"
    USER = "USER"


@dataclass(frozen=True)
class Step:
    """One instruction; `files_hash` identifies the uploaded files of a COPY."""

    kind: StepKind
    args: tuple[str, ...] = ()
    files_hash: str = ""
    force: bool = False

    def __str__(self) -> str:
        return " ".join((self.kind, *self.args))


@dataclass(frozen=True)
class StartCommands:
    """Start and ready commands of a template."""

    start: str = ""
    ready: str = ""


@dataclass(frozen=True)
class BuildPlan:
    """Definition of a build: exactly one of the two bases, and steps on top."""

    steps: tuple[Step, ...] = ()
    from_image: str = ""
    from_template: Template | None = None
    credentials: RegistryCredentials | None = None
    start_command: str = ""
    ready_command: str = ""
    cpu_count: int | None = None
    memory_mb: int | None = None
    force: bool = False

    @property
    def commands(self) -> StartCommands:
        """The plan's start and ready commands; the default are those of its base template."""
        template = self.from_template
        if self.start_command or self.ready_command or template is None:
            return StartCommands(self.start_command, self.ready_command)
        return StartCommands(template.start_command, template.ready_command)
