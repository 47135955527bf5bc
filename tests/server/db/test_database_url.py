import pytest

from sandbox_server.db.database_url import MALFORMED, UnusablePostgres, place_of


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:secret@db.example.org/sandboxes", "db.example.org:5432"),
        ("postgres://me@db.example.org:6432/sandboxes", "db.example.org:6432"),
        ("postgresql+asyncpg://[::1]:6432/sandboxes", "[::1]:6432"),
        ("postgresql://me@one,two:6432/sandboxes", "one:5432, two:6432"),
        ("postgresql://me:se%40cret@one/sandboxes", "one:5432"),
        ("postgresql:///sandboxes?host=/run/postgresql", "the socket in /run/postgresql"),
        ("postgresql://%2Frun%2Fpostgresql/sandboxes", "the socket in /run/postgresql"),
        ("postgresql:///sandboxes?host=one", "one:5432"),
        ("postgresql://", "localhost:5432"),
    ],
)
def test_database_url__messages_name_the_host_only(url, place):
    assert place_of(url) == place


@pytest.mark.parametrize(
    "url",
    [
        "secret",
        "",
        "mysql://me:secret@one/sandboxes",
        "postgresql:me@one",
        "postgresql://me@one:port/sandboxes",
        "postgresql://me@one:65536/sandboxes",
        "postgresql://[::1/sandboxes",
        # Parsed literally these would show a part of the password as the host or the port.
        "postgresql://me:12/secret@one/sandboxes",
        "postgresql://me:12?secret@one/sandboxes",
        "postgresql://me:12#secret@one/sandboxes",
        "postgresql://me:12@secret@one/sandboxes",
    ],
)
def test_database_url__an_invalid_one_is_refused_without_quoting_it(url):
    with pytest.raises(UnusablePostgres) as refused:
        place_of(url)
    assert str(refused.value) == MALFORMED
