from pydantic import Field

from sandbox_client.models.wire import ResponseModel


class InputProblem(ResponseModel):
    """An invalid part of a request: a field of the body or a parameter."""

    detail: str
    pointer: str | None = Field(
        None, description="JSON pointer into the body, for example `#/metadata/team`."
    )
    parameter: str | None = Field(
        None, description="Name of the path parameter, query parameter or header."
    )


class Problem(ResponseModel):
    """An error (RFC 9457 problem details). `code` is stable; the texts may change."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    remediation: str | None = None
    request_id: str
    errors: list[InputProblem] | None = None
