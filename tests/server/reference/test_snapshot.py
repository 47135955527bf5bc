"""The OpenAPI snapshot in the repository."""

import copy
import difflib

import pytest
from reference import snapshot
from reference.breaking import breaks

VERBS = set(
    "approve archive attach cancel check choose connect create delete end expose follow fork get interrupt keep kill list listen make move pack pause "
    "prepare put read rebuild receive release resize restart restore resume retry revoke run save send set sign start unpack update use watch write".split()
)


def test_openapi_snapshot__matches_this_version():
    before, now = snapshot.FILE.read_text(), snapshot.written()
    if before == now:
        return
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "docs/openapi.json", "the API", lineterm=""
    )
    broken = "".join(
        f"\nIt breaks callers: {each}" for each in breaks(snapshot.read(), snapshot.now())
    )
    pytest.fail(
        "docs/openapi.json is not what the API is now: run `make openapi` and commit what it writes.\n"
        + "\n".join(lines)
        + broken,
        pytrace=False,
    )


def test_openapi_snapshot__operations_are_named_verb_and_object():
    names = [operation["operationId"] for operation in operations()]
    assert len(set(names)) == len(names)
    assert {name.partition("_")[0] for name in names} <= VERBS
    assert all("_" in name for name in names)


def remove_operation(description):
    del description["paths"]["/v1/stats"]


def rename_operation(description):
    description["paths"]["/v1/stats"]["get"]["operationId"] = "stats"


def remove_parameter(description):
    description["paths"]["/v1/sandboxes"]["get"]["parameters"].pop(0)


def require_parameter(description):
    description["paths"]["/v1/sandboxes"]["get"]["parameters"][0]["required"] = True


def remove_answer(description):
    del description["paths"]["/v1/sandboxes"]["post"]["responses"]["202"]


def remove_field(description):
    del schema(description, "SandboxRead")["properties"]["state"]


def retype_field(description):
    schema(description, "SandboxRead")["properties"]["state"] = {"type": "integer"}


def require_field(description):
    schema(description, "SandboxCreate")["required"] = ["template"]


def leave_field_out(description):
    schema(description, "SandboxRead")["required"].remove("state")


def remove_value(description):
    schema(description, "SandboxState")["enum"].remove("paused")


@pytest.mark.parametrize(
    "change",
    [
        *(remove_operation, rename_operation, remove_parameter, require_parameter),
        *(remove_answer, remove_field, retype_field, require_field, leave_field_out, remove_value),
    ],
)
def test_openapi_snapshot__breaking_changes_are_reported(change):
    before = snapshot.read()
    after = copy.deepcopy(before)
    change(after)
    assert len(list(breaks(before, after))) == 1


def test_openapi_snapshot__additions_are_compatible():
    before = snapshot.read()
    after = copy.deepcopy(before)
    after["paths"]["/v1/more"] = {"get": {"operationId": "get_more", "responses": {"200": {}}}}
    after["paths"]["/v1/sandboxes"]["get"]["parameters"].append({"in": "query", "name": "more"})
    schema(after, "SandboxRead")["properties"]["more"] = {"type": "string"}
    schema(after, "SandboxRead")["required"].append("more")
    schema(after, "SandboxCreate")["properties"]["more"] = {"type": "string"}
    assert list(breaks(before, after)) == []


def schema(description, name):
    return description["components"]["schemas"][name]


def operations():
    for item in snapshot.read()["paths"].values():
        yield from item.values()
