"""Hooks loaded by schemathesis, in addition to the OpenAPI document; imports nothing of ours."""

import json
from pathlib import Path

import schemathesis

PROBLEM = "application/problem+json"
# Unavailable sandboxes and providers are answered with 5xx too.
NOT_OURS = {"not-ready", "backend-busy", "backend-unavailable"}
# As in the document: the tool resolves references.
OPERATIONS = {
    operation["operationId"]: item
    for item in json.loads(Path("openapi.json").read_text())["paths"].values()
    for operation in item.values()
}


@schemathesis.check
def problems_are_those_that_are_described(ctx, response, case):
    """Check that each problem is documented under its status and that there is no 500."""
    if response.headers.get("content-type") != [PROBLEM]:
        assert response.status_code < 500, response.text
        return
    code = response.json()["code"]
    described = OPERATIONS[case.operation.definition.raw["operationId"]]
    if case.method.lower() in described:  # undocumented methods are tried too
        answers = described[case.method.lower()]["responses"]
        told = answers.get(str(response.status_code), {"description": ""})["description"]
        assert f"`{code}`" in told, f"{code} is not described"
    assert response.status_code < 500 or code in NOT_OURS, f"the server failed: {response.text}"
