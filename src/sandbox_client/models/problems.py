from pydantic import Field

from sandbox_client.models.wire import ResponseModel


class InputProblem(ResponseModel):
    """What is wrong with one part of a request: a place in its body, or a parameter."""

    detail: str
    pointer: str | None = Field(
        None, description="JSON pointer into the body, as in `#/metadata/team`."
    )
    parameter: str | None = Field(
        None, description="Name of the parameter of the path or query, or of the header."
    )


class Problem(ResponseModel):
    """What went wrong (RFC 9457); `code` is stable, the texts are for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    remediation: str | None = None
    request_id: str
    errors: list[InputProblem] | None = None
