"""The cost of unauthenticated requests."""

import asyncio
from contextlib import asynccontextmanager, contextmanager

import pytest
import pytest_asyncio
from sqlalchemy import event, text

from sandbox_server.access.secrets import new_login, new_secret, new_ticket
from tests.engine.polling import until
from tests.server.support.full_server import PORT, WAIT, new_sandbox, serving_outside

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]

MANY = 950
_LARGEST_HEAD = 60_000
_TICKET = 50  # bytes, including the separator
ABSENT = "a" * 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(outside):
    async with new_sandbox(outside) as sandbox_id:
        yield sandbox_id


@contextmanager
def statements(outside):
    """Record the server's SQL statements about credentials."""
    engine = outside.components.sessions.kw["bind"].sync_engine
    sent = []

    def note(_connection, _cursor, statement, *_):
        if any(f"FROM {table}" in statement for table in ("tickets", "api_keys", "logins")):
            sent.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


@asynccontextmanager
async def locked(outside, table):
    """Lock a table during the block."""
    async with outside.components.sessions.begin() as session:
        await session.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        yield


def request(outside, host, *headers, target="/"):
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode()


def cookies(name="sandbox-preview", make=new_ticket, count=MANY):
    return "Cookie: " + "; ".join(f"{name}={make()}" for _ in range(count))


async def refused(outside, sent):
    answer = await outside.say(sent)
    return answer.split(b" ")[1] == b"401"


@pytest.mark.parametrize("sandbox", ["there", "absent"])
@pytest.mark.parametrize("name", ["sandbox-preview", "__Host-sandbox-preview"])
async def test_preview_links__many_cookies_cause_one_lookup_of_four(
    outside, sandbox_id, sandbox, name
):
    host = outside.host_of(sandbox_id if sandbox == "there" else ABSENT, PORT)
    with statements(outside) as sent:
        sent_cookies = cookies(name, count=_LARGEST_HEAD // (len(name) + _TICKET))
        assert await refused(outside, request(outside, host, sent_cookies))
    # Without TLS the `__Host-` name is not ours.
    assert len(sent) == (1 if name == "sandbox-preview" else 0)
    assert all(statement.count("::BYTEA") <= 4 for statement in sent)


async def test_preview_links__malformed_cookies_are_not_looked_up(outside, sandbox_id):
    host = outside.host_of(sandbox_id, PORT)
    with statements(outside) as sent:
        for make in (new_secret, new_login, lambda: "sbt_x"):
            assert await refused(outside, request(outside, host, cookies(make=make)))
    assert sent == []


@pytest.mark.parametrize("where", ["host", "api"])
@pytest.mark.parametrize(
    "headers",
    [
        [f"X-API-Key: {new_secret()}" for _ in range(100)],
        [f"Authorization: Bearer {new_secret()}" for _ in range(100)],
        [f"X-API-Key: {new_secret()}", f"Authorization: Bearer {new_secret()}"] * 50,
        [cookies("sandbox-login", new_login, 500)],
        [cookies("__Host-sandbox-login", new_login, 500)],
    ],
    ids=["keys", "bearers", "both", "logins", "secure-logins"],
)
async def test_preview_links__at_most_one_of_many_credentials_is_looked_up(
    outside, sandbox_id, headers, where
):
    host = outside.host if where == "api" else outside.host_of(sandbox_id, PORT)
    with statements(outside) as sent:
        assert await refused(outside, request(outside, host, *headers, target="/v1/sandboxes"))
    assert len(sent) <= 1


@pytest.mark.parametrize("where", ["host", "api"])
async def test_preview_links__one_of_many_tickets_in_a_query_is_looked_up(
    outside, sandbox_id, where
):
    host = outside.host if where == "api" else outside.host_of(sandbox_id, PORT)
    target = "/v1/sandboxes?" + "&".join(f"ticket={new_ticket()}" for _ in range(MANY))
    with statements(outside) as sent:
        assert await refused(outside, request(outside, host, target=target))
    assert len(sent) == 1


async def cookie_for(outside, sandbox_id, port=PORT):
    async with outside.api() as api:
        path = f"/v1/sandboxes/{sandbox_id}/ports/{port}/links"
        made = (await api.post(path, json={})).json()
    return f"sandbox-preview={made['url'].partition('ticket=')[2]}"


async def test_preview_links__a_valid_ticket_among_others_is_found(outside, sandbox_id):
    """Another sandbox's page may have set cookies of the same name for all hosts."""
    host = outside.host_of(sandbox_id, PORT)
    own, of_another_port = [await cookie_for(outside, sandbox_id, port) for port in (PORT, 4000)]
    others = [of_another_port, f"sandbox-preview={new_ticket()}", "sandbox-preview=x"]
    with statements(outside) as sent:
        answer = await outside.say(request(outside, host, "Cookie: " + "; ".join([*others, own])))
    assert answer.split(b" ")[1] == b"200", answer
    assert sum("FROM tickets" in one for one in sent) == 1


async def test_authentication__unauthenticated_clients_do_not_delay_others(outside, sandbox_id):
    host = outside.host_of(sandbox_id, PORT)
    _, key = await outside.new_key()
    async with locked(outside, "tickets"):
        strangers = [
            asyncio.create_task(outside.say(request(outside, host, cookies(count=3))))
            for _ in range(20)
        ]
        async with outside.api(**{"X-API-Key": key}) as api, asyncio.timeout(WAIT):
            assert (await api.get("/v1/sandboxes")).status_code == 200
        assert not any(one.done() for one in strangers)
    await asyncio.gather(*strangers)


async def test_preview_links__nothing_is_looked_up_for_a_disconnected_client(outside, sandbox_id):
    host = outside.host_of(sandbox_id, PORT)
    cookie = f"Cookie: {await cookie_for(outside, sandbox_id)}"
    with statements(outside) as sent:
        async with locked(outside, "tickets"):
            for _ in range(40):
                _, writer = await asyncio.open_connection("127.0.0.1", outside.port)
                writer.write(request(outside, host, cookies()))
                await writer.drain()
                writer.transport.abort()

            async def is_busy():
                return len(sent) >= 2

            await until(is_busy, timeout=WAIT)
        # Lookups run in order, so this one is the last.
        answer = await outside.say(request(outside, host, cookie))
    assert answer.split(b" ")[1] == b"200", answer
    assert sum("FROM tickets" in one for one in sent) <= 4


async def test_preview_links__with_tls_only_the_host_prefixed_cookie_is_accepted(
    database_url, engine, tmp_path
):
    settings = {"state_dir": tmp_path, "public_url": "https://sandboxes.example.com"}
    async with (
        serving_outside(database_url, engine, **settings) as outside,
        new_sandbox(outside) as sandbox_id,
    ):
        host = f"{PORT}-{sandbox_id}.sandboxes.example.com"
        own = await cookie_for(outside, sandbox_id)
        with statements(outside) as sent:
            assert await refused(outside, request(outside, host, f"Cookie: {own}"))
        assert sent == []
        answer = await outside.say(request(outside, host, f"Cookie: __Host-{own}"))
        assert answer.split(b" ")[1] == b"200", answer
