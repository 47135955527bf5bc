"""Cross-origin requests in a signed-in browser: from another site, another port and a sandbox's host."""

import json
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.browser import WatchedPage
from tests.server.web.page_driver import FirstPage
from tests.server.web.pages import running_site

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

PORT = 8000
# Answers with the received headers, and with a page.
ECHO = """
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        told = json.dumps(dict(self.headers.items())) if self.path == "/headers" else "<p>a page"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(told.encode())
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""

# All kinds of requests that a page can send, each returning what the page can read.
ATTACK = """async ({origin, path, key}) => {
  const told = {};
  const attempt = async (name, act) => { told[name] = await act().catch(error => error.name); };
  const ask = (path, options) => () => fetch(origin + path, {credentials: "include", ...options})
    .then(async answer => `${answer.type} ${answer.status} ${await answer.text()}`);
  const plain = {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: "{}"};
  await attempt("read", ask("/v1/sandboxes", {}));
  await attempt("read blindly", ask(path, {mode: "no-cors"}));
  await attempt("create blindly", ask("/v1/sandboxes?wait=0", plain));
  await attempt("pause blindly", ask(`${path}/pause`, plain));
  await attempt("delete", ask(path, {method: "DELETE"}));
  await attempt("run", ask(`${path}/commands`, {...plain, mode: "cors", headers: {"Content-Type": "application/json"}}));
  await attempt("make a ticket", ask("/v1/tickets", plain));
  await attempt("sign out", ask("/v1/login", {method: "DELETE"}));
  await attempt("sign in", ask("/v1/login", {method: "POST", headers: {"X-API-Key": key}}));
  await attempt("pass on", ask(`${path}/ports/8000/proxy/`, {mode: "no-cors"}));
  await attempt("follow", () => new Promise(resolve => {
    const source = new EventSource(`${origin}/v1/events`, {withCredentials: true});
    source.onerror = () => resolve(`closed ${source.readyState}`);
    source.onmessage = ({data}) => resolve(data);
  }));
  await attempt("type", () => new Promise(resolve => {
    const socket = new WebSocket(origin.replace("http", "ws") + `${path}/terminals/${"0".repeat(20)}`);
    socket.onmessage = ({data}) => resolve(data);
    socket.onclose = ({code}) => resolve(`closed ${code}`);
  }));
  await attempt("post a form", () => new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.name = "frame";
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, {method: "post", action: `${origin}${path}/pause`, target: "frame", enctype: "text/plain"});
    document.body.append(form);
    frame.onload = () => resolve("loaded");
    form.submit();
  }));
  return told;
}"""
LEARNED = {
    "read": "TypeError",
    "read blindly": "opaque 0 ",
    "create blindly": "opaque 0 ",
    "pause blindly": "opaque 0 ",
    "delete": "TypeError",
    "run": "TypeError",
    "make a ticket": "opaque 0 ",
    "sign out": "TypeError",
    "sign in": "TypeError",
    "pass on": "opaque 0 ",
    "follow": "closed 2",
    "type": "closed 1006",
    "post a form": "loaded",
}


@pytest.fixture(scope="module")
def site():
    with running_site(page="<p>a page") as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_id(api):
    """Run a sandbox with a web server."""
    made = await api.post("/v1/sandboxes", params={"wait": 60}, json={})
    sandbox_id = made.json()["id"]
    server = {"cmd": f"python3 -c '{ECHO}'", "background": True}
    await api.post(f"/v1/sandboxes/{sandbox_id}/commands", json=server)
    return sandbox_id


@pytest.fixture
def own_host(api, sandbox_id):
    """Open a page of the sandbox by a preview link."""

    async def own_host():
        made = await api.post(f"/v1/sandboxes/{sandbox_id}/ports/{PORT}/links", json={})
        return made.json()["url"]

    return own_host


@pytest.fixture
def find(site, named_server, own_host):
    """Open a foreign page."""

    async def find(whose):
        match whose:
            case "another site":
                return f"{site.origin}/page"
            case "another port of the host":
                port = urlsplit(site.origin).port
                return f"http://boxes.localhost:{port}/page"
            case "a sandbox's host":
                return await own_host()
        raise AssertionError(whose)

    return find


@pytest_asyncio.fixture(loop_scope="module")
async def signed_in(browser, named_server):
    """Sign a user in with a new browser context; returns a second tab too."""
    context = await browser.new_context()
    page = FirstPage(WatchedPage(await context.new_page()), named_server.url)
    await page.sign_in(named_server.admin_key)
    yield page, await context.new_page()
    await context.close()


def answered(log, request):
    """Return the statuses with which a server answered a request."""
    lines = [line for line in log.splitlines() if f"{request} status=" in line]
    return [line.partition("status=")[2][:3] for line in lines]


@pytest.mark.parametrize("whose", ["another site", "another port of the host", "a sandbox's host"])
async def test_cross_origin__foreign_pages_can_neither_read_nor_change_anything(
    signed_in, find, named_server, api, sandbox_id, whose
):
    first_page, tab = signed_in
    events = (await api.get("/v1/events", params={"limit": 200})).json()["items"]
    [cookie] = await tab.context.cookies(named_server.url)
    await tab.goto(await find(whose))
    since = len(named_server.process.log)
    path = f"/v1/sandboxes/{sandbox_id}"
    asked = {"origin": named_server.url, "path": path, "key": named_server.admin_key}
    assert await tab.evaluate(ATTACK, asked) == LEARNED

    assert (await api.get("/v1/events", params={"limit": 200})).json()["items"] == events
    [still] = await tab.context.cookies(named_server.url)
    assert still["value"] == cookie["value"]
    await first_page.page.reload()
    await first_page.until_row_says(sandbox_id, "running")
    # All requests arrived and were rejected by the server, with the cookie if the browser considers them same-site.
    came = {
        request: answered(named_server.process.log[since:], request)
        for request in (f"POST {path}/pause", "POST /v1/sandboxes", "GET /v1/events", f"GET {path}")
    }
    refused = "401" if whose == "another site" else "403"
    assert came[f"POST {path}/pause"] == [refused] * 2
    assert came["POST /v1/sandboxes"] == [refused]
    assert refused in came["GET /v1/events"]
    assert refused in came[f"GET {path}"]


async def test_login_cookie__is_never_sent_to_a_sandbox(signed_in, own_host, named_server):
    _, tab = signed_in
    await tab.goto(await own_host())
    [cookie] = await tab.context.cookies(named_server.url)
    for ask in ("fetch('/headers')", "fetch('/headers', {credentials: 'include'})"):
        told = await tab.evaluate(f"{ask}.then(answer => answer.text())")
        assert cookie["value"] not in told
        assert "sandbox-login" not in json.loads(told).get("Cookie", "")


@pytest.mark.parametrize("whose", ["another site", "a sandbox's host"])
async def test_cross_origin__the_page_cannot_be_framed(signed_in, find, named_server, whose):
    _, tab = signed_in
    await tab.goto(await find(whose))
    refused = tab.expect_console_message(lambda message: "frame-ancestors" in message.text)
    async with refused:
        await tab.evaluate(
            """url => {
              const frame = document.createElement("iframe");
              frame.src = url;
              document.body.append(frame);
            }""",
            named_server.url,
        )
    assert not any(urlsplit(frame.url).netloc == named_server.host for frame in tab.frames)


async def test_cross_origin__a_page_that_opens_ours_has_no_reference_to_it(
    signed_in, find, named_server
):
    _, tab = signed_in
    await tab.goto(await find("a sandbox's host"))
    async with tab.context.expect_page() as opening:
        await tab.evaluate("url => { window.opened = window.open(url) }", named_server.url)
    opened = await opening.value
    await opened.get_by_role("button", name="Sign out").wait_for()
    assert await opened.evaluate("window.opener") is None
    assert await tab.evaluate("window.opened.closed")


async def test_login_cookie__a_sandboxs_page_cannot_sign_the_user_in_as_another(
    browser, own_host, named_server, api
):
    await api.put("/v1/tenants/attacker", json={})
    theirs = await named_server.make_key(tenant="attacker")
    own = {"X-API-Key": theirs["secret"], "Sec-Fetch-Site": "same-origin"}
    answer = await api.post("/v1/login", headers=own)
    tossed = answer.headers["set-cookie"].partition(";")[0]
    context = await browser.new_context()
    tab = await context.new_page()
    await tab.goto(await own_host())
    await tab.evaluate(
        "cookie => { document.cookie = cookie }", f"{tossed}; domain=boxes.localhost"
    )
    first_page = FirstPage(WatchedPage(await context.new_page()), named_server.url)
    await first_page.page.goto(named_server.url)
    await first_page.until_signed_out()
    # Not even for a user who was signed in before.
    await first_page.page.evaluate("localStorage.setItem('sandbox-server.login', 'of-before')")
    await first_page.page.reload()
    await first_page.until_signed_out()
    assert await first_page.page.evaluate("fetch('/v1/login').then(answer => answer.status)") == 401
    await context.close()


async def test_cross_origin__foreign_pages_cannot_type_in_the_pages_terminal(
    signed_in, find, named_server, api, sandbox_id
):
    first_page, tab = signed_in
    made = await api.post(f"/v1/sandboxes/{sandbox_id}/terminals", json={"cmd": "cat"})
    path = made.json()["path"]
    type_in = """url => new Promise(resolve => {
      const socket = new WebSocket(url);
      socket.onopen = () => socket.send(new TextEncoder().encode("typed"));
      socket.onmessage = ({data}) => typeof data === "string" || resolve("shown");
      socket.onclose = ({code}) => resolve(code);
    })"""
    url = f"{named_server.url.replace('http', 'ws')}{path}"
    for whose in ("another site", "another port of the host", "a sandbox's host"):
        await tab.goto(await find(whose))
        assert await tab.evaluate(type_in, url) == 1006
    assert (await api.get(path)).json()["size"] == 0
    assert await first_page.page.evaluate(type_in, url) == "shown"
