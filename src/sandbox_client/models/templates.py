from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from sandbox_client.models.sandboxes import Resources
from sandbox_client.models.wire import Capability, Envs, Name, RequestModel, ResponseModel, Storable

_LONGEST_DOCKERFILE = 128 * 1024
_LONGEST_COMMAND = 32 * 1024
_MOST_STEPS = 200
_MOST_BACKENDS = 100

Command = Annotated[Storable, Field(min_length=1, max_length=_LONGEST_COMMAND)]
TemplateName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_-]{1,128}$",
        description="Letters, digits, hyphens and underscores; converted to lower case.",
    ),
    AfterValidator(str.lower),
]
Backends = Annotated[
    list[Name],
    Field(
        min_length=1,
        max_length=_MOST_BACKENDS,
        description="Backends to build on. Default: all.",
    ),
]
Force = Annotated[
    bool, Field(strict=True, description="Run every step again instead of using cached results.")
]


class TemplateStep(RequestModel):
    """One build step; set exactly one field."""

    run: Command | None = None
    workdir: Command | None = None
    user: Name | None = None

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("A step needs exactly one of run, workdir and user.")
        return self


class _Definition(RequestModel):
    dockerfile: (
        Annotated[
            Storable,
            Field(
                min_length=1,
                max_length=_LONGEST_DOCKERFILE,
                description="Contents of the Dockerfile. There is no build context; COPY works with heredocs only (COPY <<EOF).",
            ),
        ]
        | None
    ) = None
    from_image: Annotated[Name, Field(description="Image in a container registry.")] | None = None
    from_template: (
        Annotated[
            Name,
            Field(
                description="Your own template, a shared one, or a public one of the backend's provider. "
                "Snapshots are not supported."
            ),
        ]
        | None
    ) = None
    steps: Annotated[list[TemplateStep], Field(max_length=_MOST_STEPS)] = Field(
        default_factory=list
    )
    envs: Annotated[Envs, Field(description="Environment variables during the build.")] = Field(
        default_factory=dict
    )
    start_command: (
        Annotated[Command, Field(description="Command that runs in every sandbox from its start.")]
        | None
    ) = None
    ready_command: (
        Annotated[Command, Field(description="The template is ready when this command succeeds.")]
        | None
    ) = None
    capabilities: (
        Annotated[
            list[Capability],
            Field(
                max_length=16,
                description="What its sandboxes offer, for requests that select a template by `capabilities`. "
                "Default: those of `from_template`.",
            ),
        ]
        | None
    ) = None
    cpu_count: Annotated[int, Field(ge=1, le=1024)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] | None = None

    @property
    def sources(self) -> int:
        """How many sources of a template are set."""
        sources = (self.dockerfile, self.from_image, self.from_template)
        return sum(source is not None for source in sources)


class TemplateCreate(_Definition):
    """A new template: its base and the steps to apply."""

    name: TemplateName
    backends: Backends | None = None
    force: Force = False

    @model_validator(mode="after")
    def _require_one_source(self) -> Self:
        if self.sources != 1:
            raise ValueError("Set exactly one of dockerfile, from_image and from_template.")
        return self


class TemplateRebuild(_Definition):
    """A rebuild of an existing template. Without a source, the previous definition is built again."""

    backends: Backends | None = None
    force: Force = False

    @property
    def is_as_before(self) -> bool:
        return not self.model_fields_set - {"backends", "force"}

    @model_validator(mode="after")
    def _require_all_or_nothing(self) -> Self:
        if self.sources != 1 and not self.is_as_before:
            raise ValueError(
                "To change the definition, send all of it, with exactly one of dockerfile, from_image and from_template."
            )
        return self


class TemplateBuildState(StrEnum):
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


class TemplateBuildRead(ResponseModel):
    """The latest build of a template at one backend."""

    backend: str
    state: TemplateBuildState
    state_reason: str | None
    resources: Annotated[Resources, Field(description="Resources of its sandboxes.")]
    requested_at: datetime
    ready_at: (
        Annotated[
            datetime,
            Field(
                description="Since when sandboxes can be created from it; later builds do not change this."
            ),
        ]
        | None
    )


class TemplateBuildLog(TemplateBuildRead):
    """A build with its log. Of a long log, the middle is omitted."""

    log: str
    log_offset: Annotated[
        int,
        Field(
            description="Offset of the first character; larger than requested if a part was omitted."
        ),
    ]
    next_offset: Annotated[int, Field(description="Offset to request next.")]


class TemplateRead(ResponseModel):
    """A template to create sandboxes from."""

    id: str
    name: str
    shared: Annotated[bool, Field(description="Whether it is available to all tenants.")]
    capabilities: Annotated[
        list[str],
        Field(
            description="What its sandboxes offer: `code`, `desktop`, `gui`, `browser`, `mcp` or others."
        ),
    ] = Field(default_factory=list)
    created_at: datetime
    builds: list[TemplateBuildRead]


class TemplateCapabilitiesRead(ResponseModel):
    """A template's capabilities, and its state at each backend."""

    name: str
    shared: Annotated[bool, Field(description="Whether it is available to all tenants.")]
    capabilities: list[str]
    backends: Annotated[
        dict[str, str],
        Field(description="State by backend: `ready`, `building` or `missing`."),
    ]


class BackendCapabilities(ResponseModel):
    """The capabilities of the templates that are ready at a backend."""

    name: str
    capabilities: list[str]


class CapabilityMatrix(ResponseModel):
    """Which templates have which capabilities, and at which backends."""

    capabilities: Annotated[list[str], Field(description="All capabilities, by name.")]
    templates: list[TemplateCapabilitiesRead]
    backends: list[BackendCapabilities]
