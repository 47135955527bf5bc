"""Cross-origin requests to a server, in a real browser."""

import pytest

from tests.server.supervisor.conftest import NOWHERE
from tests.server.support.server_process import server_process
from tests.server.web.pages import running_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Returns what a page can read of a response, or that it failed.
ASK = """async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    return {status: answer.status, id: answer.headers.get("x-request-id"), body: await answer.json()};
  } catch (error) {
    return {failed: error.name};
  }
}"""
FOLLOW = """url => new Promise(resolve => {
  const source = new EventSource(url);
  source.onerror = () => resolve({state: source.readyState});
})"""
REFUSED = {"failed": "TypeError"}


@pytest.fixture(scope="module")
def site():
    with running_site(page="<p>a page") as site:
        yield site


@pytest.fixture(scope="module")
def server(site):
    with server_process("--allowed-origins", site.origin, variables=NOWHERE) as server:
        server.start()
        yield server


@pytest.fixture
def ask(tab, server):
    async def ask(path, **options):
        return await tab.page.evaluate(ASK, [f"{server.url}{path}", options])

    return ask


async def test_cors__a_page_of_an_allowed_origin_calls_with_a_key_and_reads_the_response(
    tab, site, server, ask
):
    await tab.page.goto(f"{site.origin}/page")
    headers = {"X-API-Key": server.admin_key, "Content-Type": "application/json"}
    made = await ask("/v1/tickets", method="POST", headers=headers, body='{"ttl_s": 60}')
    assert made["status"] == 201
    assert made["id"]
    read = await ask(f"/v1/sandboxes?ticket={made['body']['ticket']}")
    assert read["body"] == {"items": [], "next_cursor": None}
    assert tab.complaints == []


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/v1/sandboxes", {}, 401, "unauthenticated"),
        ("/v1/nothing", {"X-API-Key": "{key}"}, 404, "route-not-found"),
        ("/v1/sandboxes?limit=x", {"X-API-Key": "{key}"}, 422, "validation-failed"),
    ],
    ids=["no key", "no route", "no number"],
)
async def test_cors__a_page_can_read_errors(tab, site, server, ask, path, headers, status, code):
    await tab.page.goto(f"{site.origin}/page")
    sent = {name: text.format(key=server.admin_key) for name, text in headers.items()}
    told = await ask(path, headers=sent)
    assert (told["status"], told["body"]["code"]) == (status, code)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:{port}/page", "data:text/html,<p>null"])
async def test_cors__pages_of_other_origins_can_read_nothing(tab, site, server, ask, origin):
    await tab.page.goto(origin.format(port=site.origin.rpartition(":")[2]))
    assert await ask("/v1/sandboxes", headers={"X-API-Key": server.admin_key}) == REFUSED
    assert await ask("/version") == REFUSED


async def test_cors__cookies_are_not_accepted_from_pages_of_other_origins(tab, site, ask):
    await tab.page.goto(f"{site.origin}/page")
    assert await ask("/version", credentials="include") == REFUSED


async def test_cors__a_stream_with_an_invalid_ticket_ends_for_the_browser(tab, site, server):
    await tab.page.goto(f"{site.origin}/page")
    url = f"{server.url}/v1/events?ticket=sbt_{'a' * 43}"
    assert await tab.page.evaluate(FOLLOW, url) == {"state": 2}  # closed: no reconnection


async def test_tickets__a_page_opened_with_a_ticket_does_not_leak_its_url(tab, site, server):
    secret = f"sbt_{'a' * 43}"
    await tab.page.goto(f"{server.url}/v1/events?ticket={secret}")
    await tab.page.evaluate("url => { location.href = url }", f"{site.origin}/page")
    await tab.page.wait_for_url(f"{site.origin}/page")
    _, headers = site.asked[-1]
    assert "Referer" not in headers


async def test_docs_page__cannot_be_framed(tab, site, server):
    site.pages["framing"] = f'<iframe name="inner" src="{server.url}/docs"></iframe>'
    refused = tab.page.expect_console_message(lambda message: "frame-ancestors" in message.text)
    async with refused:
        await tab.page.goto(f"{site.origin}/framing")
    assert not any(frame.url.startswith(server.url) for frame in tab.page.frames)


async def test_docs_page__works_without_external_resources(tab, server):
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url))
    await tab.page.goto(f"{server.url}/docs")
    # Of a long description Swagger UI renders what is in sight only.
    await tab.page.get_by_placeholder("Filter by tag or path").fill("/v1/tickets")
    await tab.page.get_by_text("/v1/tickets").first.wait_for()
    assert tab.complaints == []
    assert all(url.startswith((server.url, "data:")) for url in asked)
