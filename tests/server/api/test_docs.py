import re

from fastapi.routing import iter_route_contexts

from sandbox_server.api.authentication import is_open


async def test_the_description_names_each_operation_after_its_function(stranger, app):
    description = (await stranger.get("/openapi.json")).json()
    names = [operation["operationId"] for _, operation in operations(description)]
    assert len(names) == len(set(names))
    functions = {route.name for route in iter_route_contexts(app.routes)}
    assert set(names) <= functions


async def test_every_operation_tells_how_it_fails_and_who_may_call(stranger):
    description = (await stranger.get("/openapi.json")).json()
    problem = {"$ref": "#/components/responses/Problem"}
    for path, operation in operations(description):
        responses = operation["responses"]
        assert responses["default"] == problem
        assert responses.get("422", problem) == problem
        assert bool(operation["security"]) == ("401" in responses) == (not is_open(path))
        assert operation["summary"]
    assert "HTTPValidationError" not in description["components"]["schemas"]


async def test_every_reference_of_the_description_leads_somewhere(stranger):
    answer = await stranger.get("/openapi.json")
    description = answer.json()
    for reference in set(re.findall(r'"\$ref":"#/([^"]+)"', answer.text)):
        found = description
        for step in reference.split("/"):
            found = found[step]
        assert found


async def test_the_pages_need_nothing_from_elsewhere(stranger):
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


async def test_nothing_else_is_among_the_assets(stranger):
    for name in ("../app.py", "__init__.py", "..%2f..%2fmain.py", ""):
        assert (await stranger.get(f"/docs/{name}")).status_code in {401, 404}


def operations(description):
    for path, item in description["paths"].items():
        for operation in item.values():
            yield path, operation
