from datetime import timedelta
from typing import Annotated

import pytest
from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict

from sandbox_server.domain import errors as e
from sandbox_server.domain.errors import SandboxError
from sandbox_server.http.deps import Operator, Reader
from sandbox_server.http.problems import status_of


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    parts: dict[str, Part] = {}


def raising(error):
    async def fail(caller: Reader) -> None:
        raise error

    return fail


@pytest.fixture
def app(app):
    """Add routes with all kinds of failures."""
    router = APIRouter(prefix="/v1/test")

    @router.post("/things")
    async def make_thing(
        caller: Operator,
        thing: Thing,
        limit: Annotated[int, Query(ge=1)] = 1,
        x_size: Annotated[int, Header()] = 1,
    ) -> Thing:
        return thing

    router.get("/unknown")(raising(RuntimeError("the password is hunter2")))
    router.get("/missing")(raising(e.SandboxNotFound("abc")))
    router.get("/busy")(
        raising(e.BackendBusy("local", "no room", retry_after=timedelta(seconds=1.2)))
    )
    app.include_router(router)
    return app


def all_errors(root=SandboxError):
    for error in root.__subclasses__():
        yield error
        yield from all_errors(error)


def test_problems__every_error_has_a_status():
    assert all(400 <= status_of(error) < 600 for error in all_errors())


def assert_problem(answer, *, status, code):
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["code"] == code
    assert problem["type"] == f"urn:sandbox-server:problem:{code}"
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


async def test_problems__a_known_error_has_a_remediation(admin):
    problem = assert_problem(
        await admin.get("/v1/test/missing"), status=404, code="sandbox-not-found"
    )
    assert problem["detail"] == "There is no sandbox 'abc'."
    assert "deleted after some days" in problem["remediation"]


async def test_problems__retry_after_is_in_whole_seconds(admin):
    answer = await admin.get("/v1/test/busy")
    assert_problem(answer, status=503, code="backend-busy")
    assert answer.headers["retry-after"] == "2"


async def test_problems__an_unexpected_error_is_logged_and_not_disclosed(admin, caplog):
    answer = await admin.get("/v1/test/unknown")
    assert_problem(answer, status=500, code="internal-error")
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text


async def test_problems__an_unknown_path_is_not_found(admin):
    assert_problem(await admin.get("/v1/nothing"), status=404, code="route-not-found")


async def test_problems__a_wrong_method_lists_the_allowed_ones(admin):
    answer = await admin.delete("/v1/test/things")
    assert_problem(answer, status=405, code="method-not-allowed")
    assert answer.headers["allow"] == "POST"


async def test_problems__invalid_fields_are_named(admin):
    body = {"name": "n", "parts": {"a/b~c": {"size": "big"}}, "extra": 1}
    answer = await admin.post("/v1/test/things?limit=0", json=body, headers={"x-size": "wide"})
    problem = assert_problem(answer, status=422, code="validation-failed")
    places = {error.get("pointer") or error["parameter"] for error in problem["errors"]}
    assert places == {"#/parts/a~1b~0c/size", "#/extra", "limit", "x-size"}


async def test_problems__a_missing_body_is_reported(admin):
    problem = assert_problem(
        await admin.post("/v1/test/things"), status=422, code="validation-failed"
    )
    assert [error["pointer"] for error in problem["errors"]] == ["#"]


async def test_problems__sent_values_are_not_echoed(admin):
    answer = await admin.post("/v1/test/things", json={"name": ["s3cret"]})
    assert answer.status_code == 422
    assert "s3cret" not in answer.text


async def test_problems__an_unsupported_content_type_is_rejected(admin):
    answer = await admin.post("/v1/test/things", data={"name": "n"})
    assert_problem(answer, status=415, code="unsupported-media-type")


async def test_request_id__a_valid_one_of_the_client_is_kept(stranger):
    answer = await stranger.get("/v1/test/missing", headers={"x-request-id": "trace-1.a"})
    assert answer.json()["request_id"] == "trace-1.a"


@pytest.mark.parametrize("name", ["a b", "a\tb", "", "x" * 101, "ä", '"', "a=b"])
async def test_request_id__an_invalid_one_of_the_client_is_replaced(stranger, name):
    answer = await stranger.get("/v1/x", headers={"x-request-id": name.encode()})
    assert len(answer.headers["x-request-id"]) == 20
