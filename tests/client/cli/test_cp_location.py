import pytest

from sandbox_client.cli.files.cp import Location, base_name, join_path, parse_location


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("notes.txt", Location(None, "notes.txt")),
        ("web:notes.txt", Location("web", "notes.txt")),
        ("web:", Location("web", ".")),
        ("web:a:b", Location("web", "a:b")),
        ("./a:b", Location(None, "./a:b")),
        ("/tmp/a:b", Location(None, "/tmp/a:b")),
        (":a", Location(None, ":a")),
        ("-", Location(None, "-")),
    ],
)
def test_cp_location__is_local_or_in_a_sandbox(written, place):
    assert parse_location(written) == place


def test_cp_location__dash_is_a_standard_stream_only_locally():
    assert parse_location("-").is_standard
    assert not parse_location("web:-").is_standard


@pytest.mark.parametrize(
    ("path", "name"),
    [("/a/b", "b"), ("a/", "a"), (".", ""), ("~", ""), ("/", ""), ("..", ""), ("a/.", "")],
)
def test_cp_location__base_name_may_be_missing(path, name):
    assert base_name(path) == name


def test_cp_location__join_path():
    assert join_path("/", "a") == "/a"
    assert join_path("a/", "b") == "a/b"
    assert join_path("a", "") == "a"
