import pytest
from pydantic import ValidationError

from sandbox_client.models import (
    CreateVerb,
    OnTimeout,
    ReadFileVerb,
    SandboxCreate,
    SandboxState,
    SandboxTarget,
    SandboxUpdate,
    WriteFileVerb,
)
from sandbox_server.domain import state

REFUSED: list[tuple[str, object]] = [
    ("tmeout_s", 60),
    ("timeout_s", 0),
    ("timeout_s", 366 * 86400),
    ("timeout_s", True),
    ("timeout_s", "60"),
    ("timeout_s", float("nan")),
    ("timeout_s", 10**400),
    ("priority", 10**40),
    ("template", ""),
    ("template", "x" * 201),
    ("template", "nul\0"),
    ("template", "half \ud800"),
    ("user_id", 7),
    ("on_timeout", "explode"),
    ("metadata", {"k": "v" * 1025}),
    ("metadata", {"": "v"}),
    ("metadata", {"k": 1}),
    ("metadata", {str(n): "" for n in range(65)}),
    ("envs", {"1A": ""}),
    ("envs", {"A\n": ""}),
    ("envs", {"A=B": ""}),
    ("envs", {"A": "nul\0"}),
    ("envs", {f"A{n}": "" for n in range(257)}),
    ("envs", {f"A{n}": "v" * 120_000 for n in range(5)}),
    ("mcp_servers", {"files": {"command": "v" * 300_000}}),
    ("volumes", {"relative": "data"}),
    ("network", {"allow_in": []}),
    ("network", {"allow_out": ["1.1.1.1"] * 201}),
    ("resources", {"cpu_count": 0}),
]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SandboxState, state.State),
        (SandboxTarget, state.Target),
        (OnTimeout, state.OnTimeout),
    ],
    ids=["state", "target", "on-timeout"],
)
def test_models__enums_match_the_servers(ours, theirs):
    assert [word.value for word in ours] == [word.value for word in theirs]


@pytest.mark.parametrize(
    ("field", "value"),
    REFUSED,
    ids=[f"{field}-{number}" for number, (field, _) in enumerate(REFUSED)],
)
def test_models__unknown_fields_are_rejected(field, value):
    with pytest.raises(ValidationError) as refused:
        SandboxCreate.model_validate({field: value})
    assert {error["loc"][0] for error in refused.value.errors()} == {field}


def test_models__update_distinguishes_null_from_omitted():
    assert SandboxUpdate.model_validate({"idle_timeout_s": None}).model_fields_set == {
        "idle_timeout_s"
    }


@pytest.mark.parametrize("spelling", ["template_id", "sandbox_template_id"])
def test_verbs__accept_aliases_of_template_id(spelling):
    assert CreateVerb.model_validate({spelling: "python"}).template_id == "python"


@pytest.mark.parametrize("spelling", ["path", "file_path"])
def test_verbs__accept_aliases_of_path(spelling):
    given = {"sandbox_id": "s", spelling: "/a"}
    assert ReadFileVerb.model_validate(given).path == "/a"


def test_verbs__file_contents_may_contain_nul():
    given = {"sandbox_id": "s", "path": "/a", "content": "\0"}
    assert WriteFileVerb.model_validate(given).content == "\0"
