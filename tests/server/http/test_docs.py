import re
from typing import Annotated

from fastapi import Depends
from fastapi.routing import APIRoute, iter_route_contexts

from sandbox_server.access.authentication import is_public
from sandbox_server.domain import errors as e
from sandbox_server.http import faults
from sandbox_server.http.declared_errors import failures_of, may_fail_with
from sandbox_server.http.faults import Fault
from sandbox_server.http.problems import status_of
from sandbox_server.openapi import codes_of
from tests.server.http.test_problems import all_errors


async def test_openapi__operations_are_named_after_their_functions(stranger, app):
    description = (await stranger.get("/openapi.json")).json()
    names = [operation["operationId"] for _, operation in operations(description)]
    assert len(names) == len(set(names))
    functions = {route.name for route in iter_route_contexts(app.routes)}
    assert set(names) <= functions


async def test_openapi__every_operation_lists_its_errors_and_its_authentication(stranger):
    description = (await stranger.get("/openapi.json")).json()
    for path, operation in operations(description):
        codes = codes_of(operation)
        assert codes[400] == ["malformed-request"]
        assert codes[500] == ["internal-error"]
        needs_key = "unauthenticated" in codes.get(401, ())
        assert bool(operation["security"]) == needs_key == (not is_public(path))
        assert ("requestBody" in operation) <= (422 in codes)
        assert operation["summary"]
    assert "HTTPValidationError" not in description["components"]["schemas"]


async def test_openapi__a_problem_is_listed_under_its_status(stranger):
    description = (await stranger.get("/openapi.json")).json()
    statuses = {error.code: status_of(error) for error in all_errors()}
    statuses |= {
        fault.code: fault.status for fault in vars(faults).values() if isinstance(fault, Fault)
    }
    for _, operation in operations(description):
        for status, codes in codes_of(operation).items():
            assert codes
            assert {statuses[code] for code in codes} == {status}


def test_openapi__routes_dependencies_and_parameters_all_contribute_errors():
    def find_place(user: Annotated[str, may_fail_with(e.PathRefused)]) -> None: ...

    may_fail_with(e.PathNotFound)(find_place)

    @may_fail_with(e.DiskFull)
    def route(place: Annotated[None, Depends(find_place)]) -> None: ...

    api_route = APIRoute(
        "/x", route, dependencies=[Depends(may_fail_with(e.RateLimited)(lambda: 1))]
    )
    assert set(failures_of(api_route)) == {e.PathRefused, e.PathNotFound, e.DiskFull, e.RateLimited}


async def test_openapi__every_reference_resolves(stranger):
    answer = await stranger.get("/openapi.json")
    description = answer.json()
    for reference in set(re.findall(r'"\$ref":"#/([^"]+)"', answer.text)):
        found = description
        for step in reference.split("/"):
            found = found[step]
        assert found


async def test_docs_page__needs_no_external_resources(stranger):
    page = await stranger.get("/docs")
    assert "'unsafe" not in page.headers["content-security-policy"]
    assert "//" not in page.text
    assert not re.search(r"<script>|<style>| on\w+=", page.text)
    for asset in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        answer = await stranger.get(f"/{asset}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] in {
            "text/javascript",
            "text/css",
            "image/png",
        }


async def test_docs_page__serves_only_its_own_assets(stranger):
    for name in ("../app.py", "__init__.py", "..%2f..%2fmain.py", ""):
        assert (await stranger.get(f"/docs/{name}")).status_code in {401, 404}


def operations(description):
    for path, item in description["paths"].items():
        for operation in item.values():
            yield path, operation
