import pytest

from sandbox_client import errors
from sandbox_client.errors import ApiError, UnexpectedAnswer
from sandbox_client.errors.parsing import error_of, errors_by_code
from sandbox_client.models import ERROR_CODES, Problem
from sandbox_server.domain.errors import SandboxError
from sandbox_server.http import faults
from sandbox_server.providers.protocol.errors import AnswerLost


def kinds_of(kind):
    for each in kind.__subclasses__():
        if each.__module__.startswith("sandbox_server."):
            yield each
            yield from kinds_of(each)


SERVERS = {kind.code: kind for kind in kinds_of(SandboxError)}
FAULTS = {fault.code: fault for fault in vars(faults).values() if isinstance(fault, faults.Fault)}


def test_error_codes__table_server_and_client_have_the_same_codes():
    assert SERVERS.keys() | FAULTS.keys() == ERROR_CODES.keys()
    assert errors_by_code().keys() == ERROR_CODES.keys() | {UnexpectedAnswer.code}


@pytest.mark.parametrize("code", sorted(ERROR_CODES))
def test_error_codes__exceptions_have_the_status_and_title_of_the_table(code):
    error = errors_by_code()[code]("Detail.")
    assert (error.code, error.status, error.title) == ERROR_CODES[code]


@pytest.mark.parametrize("code", sorted(SERVERS))
def test_error_codes__client_exceptions_have_the_name_and_base_of_the_servers(code):
    theirs, ours = SERVERS[code], errors_by_code()[code]
    assert ours.__name__ == theirs.__name__
    above = theirs.__mro__[1]
    if above is not SandboxError:
        assert ours.__mro__[1] is errors_by_code()[above.code]


def test_error_codes__provider_errors_are_included():
    assert SERVERS[AnswerLost.code] is AnswerLost


def a_problem(**fields):
    said = {
        "type": "urn:x",
        "title": "Title",
        "status": 409,
        "code": "sandbox-paused",
        "detail": "It sleeps.",
        "remediation": "Wake it.",
        "request_id": "r1",
    }
    return Problem(**{**said, **fields}).model_dump_json().encode()


def test_error_parsing__problem_becomes_its_exception():
    error = error_of(409, {"retry-after": "7"}, a_problem())
    assert isinstance(error, errors.SandboxPaused)
    assert isinstance(error, errors.Conflict)
    assert str(error) == "It sleeps. Wake it. (sandbox-paused)"
    assert (error.title, error.status, error.retry_after) == ("Title", 409, 7)
    assert (error.remediation, error.request_id) == ("Wake it.", "r1")


def test_error_parsing__validation_errors_are_listed():
    parts = [{"detail": "Too long.", "pointer": "#/name"}]
    error = error_of(422, {}, a_problem(code="validation-failed", errors=parts))
    assert error.errors[0].pointer == "#/name"
    assert "#/name: Too long." in str(error)


def test_error_parsing__unknown_code_becomes_an_api_error():
    error = error_of(418, {}, a_problem(code="teapot"))
    assert type(error) is ApiError
    assert error.code == "teapot"


@pytest.mark.parametrize("content", [b"", b"<h1>502</h1>", b'{"detail": "x"}', b"\xff"])
def test_error_parsing__foreign_response_becomes_unexpected_answer(content):
    error = error_of(502, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, content)
    assert isinstance(error, UnexpectedAnswer)
    assert (error.status, error.retry_after) == (502, None)
