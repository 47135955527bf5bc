import pytest

from sandbox_engine.images.credentials import RegistryCredentials
from sandbox_engine.images.references import Reference
from sandbox_engine.system.errors import InvalidRequest

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("alpine", "docker.io/library/alpine:latest"),
        ("alpine:3.20", "docker.io/library/alpine:3.20"),
        ("index.docker.io/library/alpine", "docker.io/library/alpine:latest"),
        ("oven/bun", "docker.io/oven/bun:latest"),
        ("localhost/mine", "localhost/mine:latest"),
        ("127.0.0.1:5000/a/b__c:x-Y.z", "127.0.0.1:5000/a/b__c:x-Y.z"),
        ("[::1]:5000/mine", "[::1]:5000/mine:latest"),
        ("registry.example.org/owner/name@" + DIGEST, "registry.example.org/owner/name@" + DIGEST),
        (
            "registry.example.org/owner/name:1@" + DIGEST,
            "registry.example.org/owner/name@" + DIGEST,
        ),
    ],
)
def test_reference__is_parsed_like_docker(text, full):
    assert str(Reference.parse(text)) == full


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ":1", "alpine:", "alpine@", "Alpine", "a//b", "-a", "a:b:c", "a@sha256:12"),
        *("../a", "a/../b", "example.com:99999/a", "example.com:/a", "a b", "a\n", "--all", "a:-b"),
        *("https://example.com/a", "a" * 300, "a:" + "b" * 129, "example.com/a@md5:" + "0" * 64),
    ],
)
def test_reference__invalid_reference_is_rejected(text):
    with pytest.raises(InvalidRequest, match="invalid image reference"):
        Reference.parse(text)


def test_reference__password_is_not_shown():
    assert "hunter2" not in repr(RegistryCredentials("alice", "hunter2"))


@pytest.mark.parametrize(("username", "password"), [("a:b", "c"), ("", "c"), ("a", "")])
def test_reference__invalid_credentials_are_rejected(username, password):
    with pytest.raises(InvalidRequest):
        RegistryCredentials(username, password)
