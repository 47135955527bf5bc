import pytest

from sandbox_engine.templates.building.steps import expand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$NAME/bin", "value/bin"),
        ("${NAME}s", "values"),
        ("$UNKNOWN|", "|"),
        ("${UNKNOWN:-word}", "word"),
        ("${NAME:-word}", "value"),
        ("${NAME:+word}", "word"),
        ("${UNKNOWN:+word}", ""),
        ("$(rm -rf /) `id` $1 $$", "$(rm -rf /) `id` $1 $$"),
        ("${NAME", "${NAME"),
    ],
)
def test_build_variables__references_are_expanded_without_execution(text, expected):
    assert expand(text, {"NAME": "value"}) == expected
