from datetime import timedelta

from sandbox_server.domain.requests import Defaults, Idempotency, SandboxRequest
from sandbox_server.domain.state import OnTimeout


def test_sandbox_request__the_tenants_defaults_precede_the_servers():
    own = Defaults(timeout=timedelta(minutes=5)).overridden(
        {"template": "ci", "idle_timeout_s": 60, "on_timeout": "delete"}
    )
    assert own == Defaults(
        template="ci",
        timeout=timedelta(minutes=5),
        idle_timeout=timedelta(minutes=1),
        on_timeout=OnTimeout.DELETE,
    )


def test_idempotency__equivalent_bodies_are_the_same_request():
    def digest(body, path="/v1/sandboxes"):
        return Idempotency.of("key", method="POST", path=path, body=body).digest

    assert digest({"a": 1, "b": None}) == digest({"b": None, "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})
    assert digest({}) != digest({}, path="/v1/snapshots")


def test_sandbox_request__its_text_contains_no_secrets():
    wanted = SandboxRequest(envs={"TOKEN": "hush"}, mcp_servers={"git": {"token": "hush"}})
    assert "hush" not in repr(wanted)
    assert wanted.secrets() == {
        "envs": {"TOKEN": "hush"},
        "mcp_servers": {"git": {"token": "hush"}},
    }
    assert SandboxRequest().secrets() == {}
