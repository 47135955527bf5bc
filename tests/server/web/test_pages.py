"""A foreign page in a real browser, with a server that restarts."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio

from tests.browser import WatchedPage
from tests.server.support.databases import new_database
from tests.server.support.server_process import server_process, variables_of
from tests.server.web.pages import running_site

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

PATIENCE_MS = 30_000

# Everything a page needs, without an API key.
PAGE = """<!doctype html>
<title>A page elsewhere</title>
<style>body { font: 14px monospace; display: flex } pre { flex: 1; border: 1px solid; padding: 1em; min-height: 20em }</style>
<pre id="output"></pre>
<pre id="screen"></pre>
<script>
const output = document.getElementById("output"), screenful = document.getElementById("screen");
const told = {types: [], ids: [], interrupted: 0, controls: [], closes: []};
const count = (list, one) => list.filter(each => each === one).length;
let source, socket;

function follow(url) {
  source = new EventSource(url);
  source.onmessage = ({data, lastEventId}) => {
    const record = JSON.parse(data);
    told.types.push(record.type);
    told.ids.push(Number(lastEventId));
    if (record.type === "stdout") output.textContent += record.text;
  };
  source.onerror = () => { told.interrupted += 1; };
}


function attach(url) {
  const decoder = new TextDecoder();
  let shown = null;
  const open = () => {
    socket = new WebSocket(shown === null ? url : `${url}&after=${shown}`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({data}) => {
      if (typeof data !== "string") {
        shown += data.byteLength;
        screenful.textContent += decoder.decode(data, {stream: true});
        return;
      }
      const said = JSON.parse(data);
      told.controls.push(said.type);
      if (said.type === "attached") shown = said.offset;
      if (said.type === "gap") shown += said.size ?? 0;
    };
    socket.onclose = ({code}) => {
      told.closes.push(code);
      if (code !== 1000) setTimeout(open, 50);
    };
  };
  open();
}

document.addEventListener("keydown", ({key}) => {
  const typed = key === "Enter" ? "\\r" : key.length === 1 ? key : "";
  if (typed) socket.send(new TextEncoder().encode(typed));
});
</script>
"""


@pytest.fixture(scope="module")
def site():
    with running_site(page=PAGE) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(site, bundled_url, engine):
    async with new_database(bundled_url) as url:
        variables = variables_of(engine, url)
        flags = ("--allowed-origins", site.origin, "--lease-s", "2")
        with server_process(*flags, variables=variables) as server:
            server.start()
            yield server


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(server):
    """Create a running sandbox; returns its API path."""
    async with server.client() as api:
        made = await api.post("/v1/sandboxes", params={"wait": 60}, json={})
        assert made.status_code == 201, made.text
        path = f"/v1/sandboxes/{made.json()['id']}"
        yield path
        await api.delete(path)


async def post(server, path, **body):
    async with server.client() as api:
        answer = await api.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


async def text_in(tab: WatchedPage, element, text):
    """Wait until the element has the text."""
    await tab.page.wait_for_function(
        "([id, text]) => document.getElementById(id).textContent.includes(text)",
        arg=[element, text],
        timeout=PATIENCE_MS,
    )


async def holds(tab: WatchedPage, condition):
    await tab.page.wait_for_function(f"() => {condition}", timeout=PATIENCE_MS)


async def kill(server):
    await asyncio.to_thread(server.kill)


async def stop(server):
    assert await asyncio.to_thread(server.stop) == 0


@pytest.mark.slow  # restarts servers below a browser
async def test_cors__a_page_follows_a_command_and_types_in_a_terminal_across_restarts(
    tab, site, server, sandbox
):
    command = await post(
        server,
        f"{sandbox}/commands",
        cmd='while read -r line; do echo "<$line>"; done',
        background=True,
        stdin=True,
    )
    command_path = f"{sandbox}/commands/{command['id']}"
    terminal = await post(server, f"{sandbox}/terminals", cmd="sh")
    sandbox_id = sandbox.rpartition("/")[2]
    ticket = await post(server, "/v1/tickets", sandbox_id=sandbox_id, scope="sandboxes")
    query = f"?ticket={ticket['ticket']}"

    async def work(word):
        await post(server, f"{command_path}/input", text=f"{word}\n")
        await text_in(tab, "output", f"<{word}>\n")
        await tab.page.keyboard.type(f"echo $((6 * 7))-{word}\n")
        await text_in(tab, "screen", f"42-{word}")

    await tab.page.goto(f"{site.origin}/page")
    await tab.page.evaluate("follow", f"{server.url}{command_path}/output{query}")
    await tab.page.evaluate(
        "attach", server.url.replace("http", "ws", 1) + terminal["path"] + query
    )
    await text_in(tab, "screen", "$ ")
    await work("one")
    for gaps, (end, word) in enumerate(((kill, "two"), (stop, "three")), start=1):
        await end(server)
        await asyncio.to_thread(server.start)
        # The new server sends gaps: it may have missed output of both.
        await holds(tab, f"count(told.types, 'gap') === {gaps}")
        await holds(tab, f"count(told.controls, 'gap') === {gaps}")
        await work(word)
    await post(server, f"{command_path}/input", close=True)
    await holds(tab, "source.readyState === EventSource.CLOSED")
    await tab.page.keyboard.type("exit\n")
    await holds(tab, "told.closes.includes(1000)")

    told = await tab.page.evaluate("told")
    assert await tab.page.text_content("#output") == "<one>\n<two>\n<three>\n"
    assert told["types"] == ["started", "stdout", "gap", "stdout", "gap", "stdout", "exit"]
    assert told["ids"] == sorted(set(told["ids"]))
    assert told["interrupted"] >= 3
    screen = await tab.page.text_content("#screen")
    assert [screen.count(f"42-{word}") for word in ("one", "two", "three")] == [1, 1, 1]
    assert told["controls"].count("attached") >= 3
    assert set(told["closes"]) <= {1000, 1001, 1006, 1012}


async def test_tickets__a_file_of_a_sandbox_cannot_run_as_a_page_that_reads_the_ticket(
    tab, server, sandbox
):
    path = f"{sandbox}/files/content?path=page.html"
    page = b"<!doctype html><script>document.title = location.search</script>"
    async with server.client() as api:
        assert (await api.put(path, content=page)).status_code == 201
    wanted = {"sandbox_id": sandbox.rpartition("/")[2], "scope": "sandboxes"}
    ticket = await post(server, "/v1/tickets", **wanted)
    async with tab.page.expect_download() as downloading:
        await tab.page.evaluate(
            "url => { location.href = url }", f"{server.url}{path}&ticket={ticket['ticket']}"
        )
    download = await downloading.value
    assert download.suggested_filename == "page.html"
    assert Path(await download.path()).read_bytes() == page
    assert await tab.page.title() == ""
