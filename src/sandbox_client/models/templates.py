from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from sandbox_client.models.sandboxes import Resources
from sandbox_client.models.wire import Envs, Name, RequestModel, ResponseModel, Storable

_LONGEST_DOCKERFILE = 128 * 1024
_LONGEST_COMMAND = 32 * 1024
_MOST_STEPS = 200
_MOST_BACKENDS = 100

Command = Annotated[Storable, Field(min_length=1, max_length=_LONGEST_COMMAND)]
TemplateName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]{1,128}$",
        description="Letters, digits, hyphens and underscores; capitals become small letters.",
    ),
    AfterValidator(str.lower),
]
Backends = Annotated[
    list[Name],
    Field(
        min_length=1,
        max_length=_MOST_BACKENDS,
        description="Where to build it; else at all of them.",
    ),
]
Force = Annotated[
    bool, Field(strict=True, description="Whether to carry out every step, though it was before.")
]


class TemplateStep(RequestModel):
    """One step of a build: exactly one of these."""

    run: Command | None = None
    workdir: Command | None = None
    user: Name | None = None

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("A step has exactly one of run, workdir and user.")
        return self


class _Definition(RequestModel):
    dockerfile: (
        Annotated[
            Storable,
            Field(
                min_length=1,
                max_length=_LONGEST_DOCKERFILE,
                description="Its text. There are no files to COPY from but those in it: COPY <<EOF.",
            ),
        ]
        | None
    ) = None
    from_image: Annotated[Name, Field(description="An image of a container registry.")] | None = (
        None
    )
    from_template: (
        Annotated[
            Name,
            Field(
                description="Your own template, a shared one, or one that the backend's provider "
                "offers to everybody by name. No snapshots."
            ),
        ]
        | None
    ) = None
    steps: Annotated[list[TemplateStep], Field(max_length=_MOST_STEPS)] = Field(
        default_factory=list
    )
    envs: Annotated[Envs, Field(description="Environment variables of the build.")] = Field(
        default_factory=dict
    )
    start_command: (
        Annotated[Command, Field(description="It runs in every sandbox from the start.")] | None
    ) = None
    ready_command: (
        Annotated[Command, Field(description="The template is ready when it succeeds.")] | None
    ) = None
    cpu_count: Annotated[int, Field(ge=1, le=1024)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] | None = None

    @property
    def sources(self) -> int:
        """How many of the things that a template can be made from are given."""
        given = (self.dockerfile, self.from_image, self.from_template)
        return sum(one is not None for one in given)


class TemplateCreate(_Definition):
    """A template to be: what it is made from, and what is done to that."""

    name: TemplateName
    backends: Backends | None = None
    force: Force = False

    @model_validator(mode="after")
    def _require_one_source(self) -> Self:
        if self.sources != 1:
            raise ValueError("It is made from one of dockerfile, from_image and from_template.")
        return self


class TemplateRebuild(_Definition):
    """A build of a template there is. Without anything to make it from it is made as before."""

    backends: Backends | None = None
    force: Force = False

    @property
    def is_as_before(self) -> bool:
        return not self.model_fields_set - {"backends", "force"}

    @model_validator(mode="after")
    def _require_all_or_nothing(self) -> Self:
        if self.sources != 1 and not self.is_as_before:
            raise ValueError(
                "To change it, say all of it: it is made from one of dockerfile, from_image and from_template."
            )
        return self


class TemplateBuildState(StrEnum):
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


class TemplateBuildRead(ResponseModel):
    """What a template is at one backend: how its last build went."""

    backend: str
    state: TemplateBuildState
    state_reason: str | None
    resources: Annotated[Resources, Field(description="What its sandboxes have.")]
    requested_at: datetime
    ready_at: (
        Annotated[
            datetime,
            Field(
                description="Since when sandboxes can be made from it, whatever a later build does."
            ),
        ]
        | None
    )


class TemplateBuildLog(TemplateBuildRead):
    """A build with what it said. Where that was too much, the middle is left out."""

    log: str
    log_offset: Annotated[
        int,
        Field(description="Where it begins; past what was asked for where something is left out."),
    ]
    next_offset: Annotated[int, Field(description="What to ask for to go on.")]


class TemplateRead(ResponseModel):
    """A template: a name to create sandboxes from."""

    id: str
    name: str
    shared: Annotated[bool, Field(description="Whether it is everybody's, built elsewhere.")]
    created_at: datetime
    builds: list[TemplateBuildRead]
