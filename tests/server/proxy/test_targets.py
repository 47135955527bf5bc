import pytest

from sandbox_server.domain.errors import SandboxNotFound
from sandbox_server.proxy.targets import PortTarget, PublicAddress

ID = "0hoadxm9zokq4h0r4j5e"
PUBLIC = PublicAddress("https://Sandboxes.example.org:8443")


@pytest.mark.parametrize(
    "host",
    [
        f"3000-{ID}.sandboxes.example.org",
        f"3000-{ID}.sandboxes.example.org:8443",
        f"3000-{ID}.sandboxes.example.org:80",
        f"3000-{ID.upper()}.Sandboxes.Example.Org.",
    ],
)
def test_public_address__a_host_below_its_own_names_a_port(host):
    assert PUBLIC.is_sandbox_host(host)
    assert PUBLIC.find(host) == PortTarget(ID, 3000)


@pytest.mark.parametrize(
    "host",
    [
        "sandboxes.example.org",
        f"3000-{ID}.example.org",
        f"3000-{ID}.notsandboxes.example.org",
        f"3000-{ID}sandboxes.example.org",
        "app.sandboxes.example.org",
        "127.0.0.1",
        "",
        "[::1]:8100",
    ],
)
def test_public_address__any_other_host_is_not_a_sandbox_host(host):
    assert not PUBLIC.is_sandbox_host(host)


@pytest.mark.parametrize("label", [f"0-{ID}", f"65536-{ID}", "1-x", f"1-{ID}x", f"x.1-{ID}"])
def test_public_address__an_invalid_sandbox_host_is_not_found(label):
    host = f"{label}.sandboxes.example.org"
    assert PUBLIC.is_sandbox_host(host)
    with pytest.raises(SandboxNotFound):
        PUBLIC.find(host)


def test_public_address__generated_urls_are_parsed_back():
    assert PUBLIC.url(ID, 80) == f"https://80-{ID}.sandboxes.example.org:8443"
    assert PUBLIC.find(PUBLIC.url(ID, 80).removeprefix("https://")) == PortTarget(ID, 80)
    assert PUBLIC.path_url(ID, 80) == (
        f"https://Sandboxes.example.org:8443/v1/sandboxes/{ID}/ports/80/proxy/"
    )
