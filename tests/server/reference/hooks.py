"""What schemathesis, which loads this, is told of our API beside its description; it needs nothing else of ours."""

import json
from pathlib import Path

import schemathesis

PROBLEM = "application/problem+json"
# What a sandbox or its provider is not ready for has a status of servers too, as where its time is up in the middle.
NOT_OURS = {"not-ready", "backend-busy", "backend-unavailable"}
# As they stand in the description: the tool replaces references by what they lead to.
OPERATIONS = {
    operation["operationId"]: item
    for item in json.loads(Path("openapi.json").read_text())["paths"].values()
    for operation in item.values()
}


@schemathesis.check
def problems_are_those_that_are_described(ctx, response, case):
    """Know each problem's code under its status, and that no failure is the server's own."""
    if response.headers.get("content-type") != [PROBLEM]:
        assert response.status_code < 500, response.text
        return
    code = response.json()["code"]
    described = OPERATIONS[case.operation.definition.raw["operationId"]]
    if case.method.lower() in described:  # as it is not where another method was tried
        answers = described[case.method.lower()]["responses"]
        told = answers.get(str(response.status_code), {"description": ""})["description"]
        assert f"`{code}`" in told, f"{code} is not described"
    assert response.status_code < 500 or code in NOT_OURS, f"the server failed: {response.text}"
