from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sandbox_client.models.commands import OutputCut
from sandbox_client.models.wire import Cwd, Envs, RequestModel, ResponseModel, Seconds, Storable

_LONGEST_CODE = 2**20
DEFAULT_TIMEOUT_S = 300.0

Language = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_+#.-]{1,32}$",
        description="For example `python`, `javascript`, `typescript`, `bash`, `r` or `java`.",
    ),
]
ContextId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}$")]


class CodeExecutionState(StrEnum):
    """State of an execution: `error` if the code raised an exception, `failed` if it was not started, `lost` if its result is unknown."""

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ERROR = "error"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    FAILED = "failed"
    LOST = "lost"


class CodeCreate(RequestModel):
    """Code to run in the interpreter of a sandbox."""

    code: Annotated[Storable, Field(max_length=_LONGEST_CODE)]
    language: Annotated[
        Language | None,
        Field(
            description="Runs the code in the default context of this language. Default: `python`."
        ),
    ] = None
    context_id: Annotated[ContextId | None, Field(description="Runs the code in this context.")] = (
        None
    )
    env_vars: Annotated[
        Envs, Field(description="Environment variables of this execution only; not stored.")
    ] = Field(default_factory=dict)
    timeout_s: Annotated[
        Seconds,
        Field(
            description="Interrupt the code after this many seconds, time in the queue of its context included."
        ),
    ] = DEFAULT_TIMEOUT_S

    @model_validator(mode="after")
    def _names_one_context(self) -> Self:
        if self.language is not None and self.context_id is not None:
            raise ValueError("Use either language or context_id, not both.")
        return self


class CodeError(ResponseModel):
    """The exception that ended the code."""

    name: str
    value: str
    traceback: str


class CodeResult(ResponseModel):
    """A result: the value of the last expression, or something that was displayed, such as a figure."""

    number: int
    is_main_result: Annotated[bool, Field(description="It is the value of the last expression.")]
    data: Annotated[
        dict[str, Any],
        Field(
            description="Formats of at most 1 MiB by name, such as `text`, `html`, `json` or `png` (base64)."
        ),
    ]
    sizes: Annotated[
        dict[str, int],
        Field(description="Bytes of each format; each can be read as a file."),
    ]
    dropped: Annotated[
        dict[str, int], Field(description="Bytes of formats that were too large to be kept.")
    ]

    @property
    def text(self) -> str | None:
        """The result as plain text."""
        text = self.data.get("text")
        return text if isinstance(text, str) else None


class CodeExecutionRead(ResponseModel):
    """An execution of code and its state."""

    id: str
    sandbox_id: str
    state: CodeExecutionState
    state_reason: str | None
    code: Annotated[str, Field(description="In lists, the first 1000 characters.")]
    language: str | None
    context_id: str | None
    timeout_s: float
    stdout_size: int
    stderr_size: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None


class CodeOutcome(CodeExecutionRead):
    """An execution with its output and results; a line in the text marks missing output.

    Of longer output, the first and the last 512 KiB are returned.
    """

    stdout: str
    stderr: str
    stdout_cut: OutputCut | None
    stderr_cut: OutputCut | None
    results: list[CodeResult]
    error: CodeError | None
    execution_count: int | None

    @property
    def text(self) -> str | None:
        """The value of the last expression as plain text."""
        return next((each.text for each in self.results if each.is_main_result), None)


class CodeContextCreate(RequestModel):
    """A context: an interpreter process with variables of its own."""

    language: Language = "python"
    cwd: Cwd = None


class CodeContext(ResponseModel):
    id: str
    language: str
    cwd: str
    busy: Annotated[bool | None, Field(description="It runs code; null if unknown.")] = None
    execution_count: int | None = None


class CodeContexts(ResponseModel):
    items: list[CodeContext]
