import pytest

from sandbox_server.browserbase.requests import read_metadata_query
from sandbox_server.domain.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, {}),
        ("user_metadata['a']:'b'", {"a": "b"}),
        ('user_metadata["a"]["b"]: "c d"', {"a": {"b": "c d"}}),
        ("user_metadata['n']:3", {"n": 3}),
        ("user_metadata['n']:true", {"n": True}),
    ],
)
def test_metadata_query__is_what_the_metadata_contains(text, wanted):
    assert read_metadata_query(text) == wanted


@pytest.mark.parametrize("text", ["x", "user_metadata:'b'", "user_metadata['a'"])
def test_metadata_query__other_texts_are_refused(text):
    with pytest.raises(InvalidRequest, match="must have the form"):
        read_metadata_query(text)
