from datetime import UTC, datetime

import pytest

from sandbox_client.cli.output.failures import CliError
from sandbox_client.cli.parser import STATES
from sandbox_client.cli.sandbox_lookup import find_by_id_suffix, near
from sandbox_client.models import SandboxRead, SandboxState


def sandbox(sandbox_id, *, state=SandboxState.RUNNING, name=None, session=None) -> SandboxRead:
    told = dict.fromkeys(SandboxRead.model_fields)
    told |= {"id": sandbox_id, "state": state, "target": "running", "template": "base"}
    told |= {"metadata": {"name": name} if name else {}, "session_id": session}
    told |= {"resources": {}, "created_at": datetime.now(UTC), "timeout_s": 60, "priority": 0}
    told |= {"on_timeout": "pause", "auto_resume": True, "capabilities": []}
    return SandboxRead.model_validate(told)


def test_sandbox_lookup__id_suffix_prefers_a_living_sandbox():
    ended = sandbox("0hoakxo08s7nev8bvabc", state=SandboxState.STOPPED)
    living = sandbox("0hoakxo08s7nev8bxabc")
    other = sandbox("0hoakxo08s7nev8bvxyz")
    assert find_by_id_suffix("abc", [ended, living, other]) is living
    assert find_by_id_suffix("vabc", [ended, living, other]) is ended
    assert find_by_id_suffix("nope", [ended, living, other]) is None
    assert find_by_id_suffix("bc", [ended, living, other]) is None


def test_sandbox_lookup__ambiguous_suffix_lists_the_ids():
    ones = [sandbox("0hoakxo08s7nev8bvabc"), sandbox("0hoakxo08s7nev8bxabc")]
    with pytest.raises(
        CliError, match="'abc' is ambiguous: 0hoakxo08s7nev8bvabc, 0hoakxo08s7nev8bxabc"
    ):
        find_by_id_suffix("abc", ones)


def test_sandbox_lookup__similar_names_are_suggested():
    known = [
        sandbox("0hoakxo08s7nev8bvabc", name="website"),
        sandbox("0hoakxo08s7nev8bvxyz", session="chat-17"),
    ]
    assert near("websit", known) == ["website"]
    assert near("chat-71", known) == ["chat-17"]
    assert near("0hoakxo08s7nev8bvabd", known)[0] == "0hoakxo08s7nev8bvabc"
    assert near("bvxy", known) == ["0hoakxo08s7nev8bvxyz"]
    assert near("elsewhere", known) == []


def test_ls__states_are_those_of_the_api():
    assert list(SandboxState) == STATES
