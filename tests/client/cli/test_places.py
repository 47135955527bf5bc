import pytest

from sandbox_client.cli.files.cp import Place, name_in, read_place, within


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("notes.txt", Place(None, "notes.txt")),
        ("web:notes.txt", Place("web", "notes.txt")),
        ("web:", Place("web", ".")),
        ("web:a:b", Place("web", "a:b")),
        ("./a:b", Place(None, "./a:b")),
        ("/tmp/a:b", Place(None, "/tmp/a:b")),
        (":a", Place(None, ":a")),
        ("-", Place(None, "-")),
    ],
)
def test_a_place_is_here_or_in_a_sandbox(written, place):
    assert read_place(written) == place


def test_a_dash_is_a_standard_stream_only_here():
    assert read_place("-").is_standard
    assert not read_place("web:-").is_standard


@pytest.mark.parametrize(
    ("path", "name"),
    [("/a/b", "b"), ("a/", "a"), (".", ""), ("~", ""), ("/", ""), ("..", ""), ("a/.", "")],
)
def test_the_last_part_of_a_path_may_be_no_name(path, name):
    assert name_in(path) == name


def test_something_in_a_directory_has_a_path():
    assert within("/", "a") == "/a"
    assert within("a/", "b") == "a/b"
    assert within("a", "") == "a"
