"""A piece of work that takes every tool of a full sandbox."""

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.template.clients.hands import Hands

_PNG = "89504e470d0a1a0a"
_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
_STDIO_SERVER = Path(__file__).parents[2] / "tools/gateway/stdio_server.py"
_REMOTE_SERVER = """
from fastmcp import FastMCP

server = FastMCP("remote")


@server.tool
def double(number: int) -> int:
    return 2 * number


server.run("http", host="127.0.0.1", port=8701, path="/mcp", show_banner=False)
"""
_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>A shop</title>
<style>body { font: 18px sans-serif; margin: 2em } p.far { margin-top: 2000px }</style>
<h1>A shop in a sandbox</h1>
<form onsubmit="told.textContent = who.value + ' wants ' + size.value; return false">
<input id="who" aria-label="Name"> <select id="size" aria-label="Size"><option>Small<option>Large</select>
<button>Order</button>
</form>
<p id="told">Nothing was ordered yet.</p>
<a href="other.html" target="_blank">Another page</a>
<p class="far">The end of the page</p>
"""


async def do_all(hands: Hands) -> None:
    await do_what_needs_no_programs(hands)
    await run_in_the_background(hands)
    await stay_in_a_shell(hands)
    async with served_page(hands) as port:
        await tell_where_it_is(hands, port)
        await browse(hands, port)
    await have_agents_work(hands)
    await add_a_server_that_is_a_program(hands)
    await add_a_server_that_is_an_address(hands)


async def do_what_needs_no_programs(hands: Hands) -> None:
    await work_with_files(hands)
    await see_a_picture(hands)
    await run_commands(hands)


async def work_with_files(hands: Hands) -> None:
    path, moved = f"{hands.site.place}/notes.txt", f"{hands.site.place}/sub/moved.txt"
    await hands.use("write_file", path=path, content="one\ntwo\nthree\n")
    await hands.use("edit_file", path=path, old_string="two", new_string="TWO")
    edits = [{"old_string": old, "new_string": old.upper()} for old in ("one", "three")]
    await hands.use("multi_edit", path=path, edits=edits)
    assert "2\tTWO" in await hands.use("read_file", path=path)
    assert "notes.txt" in await hands.use("list_directory", path=hands.site.place)
    assert "notes.txt" in await hands.use("glob", pattern="**/*.txt", path=hands.site.place)
    found = await hands.use("grep", pattern="^TH", path=hands.site.place)
    assert "3:THREE" in found, found
    await hands.use("move", source=path, destination=moved)
    assert "ONE" in await hands.use("read_file", path=moved)
    await hands.use("delete", path=moved)
    assert "moved.txt" in await hands.fail("read_file", path=moved)


async def see_a_picture(hands: Hands) -> None:
    path = f"{hands.site.place}/dot.png"
    await hands.use("run_command", command=f"base64 --decode >{path} <<<'{_DOT}'")
    assert await hands.look("read_file", path=path) == base64.b64decode(_DOT)


async def run_commands(hands: Hands) -> None:
    told = await hands.use(
        "run_command", command="echo out; echo err >&2; pwd; exit 3", cwd=hands.site.place
    )
    assert told == f"out\nerr\n{hands.site.place}\n[exit code 3]"
    late = await hands.use("run_command", command="sleep 600", timeout_s=0.5)
    assert "timed out and killed after 0.5 s" in late


async def run_in_the_background(hands: Hands) -> None:
    begun = await hands.use(
        "run_command", command="read -r line; echo got $line; exit 4", background=True
    )
    name = begun.partition(" ")[0]
    await hands.use("shell_write", shell=name, text="a line")
    seen = await hands.use("shell_view", shell=name, wait_s=60)
    assert "got a line" in seen
    assert "exit code 4" in seen


async def stay_in_a_shell(hands: Hands) -> None:
    shell = f"{hands.site.name}-shell"
    await hands.use("shell_open", name=shell, cwd=hands.site.place)
    await hands.use("shell_run", shell=shell, command="cd sub; kept=there")
    told = await hands.use("shell_run", shell=shell, command='echo "$kept in $PWD"')
    assert f"there in {hands.site.place}/sub" in told
    asking = "read -r -p 'who? ' who; echo hello $who"
    assert "still running" in await hands.use(
        "shell_run", shell=shell, command=asking, timeout_s=0.5
    )
    await hands.use("shell_write", shell=shell, text="Ada")
    assert "hello Ada" in await hands.use("shell_view", shell=shell, wait_s=60)
    assert shell in await hands.use("shell_list")
    await hands.use("shell_kill", shell=shell)
    assert "idle" not in await hands.fail("shell_view", shell=shell)


@asynccontextmanager
async def served_page(hands: Hands) -> AsyncIterator[int]:
    """Serve a page in the sandbox while the block lasts; gives the port."""
    port = 8700
    site = f"{hands.site.place}/site"
    await hands.use("write_file", path=f"{site}/index.html", content=_PAGE)
    await hands.use("write_file", path=f"{site}/other.html", content="<title>Another</title>")
    begun = await hands.use(
        "run_command",
        command=f"exec python -m http.server --bind 127.0.0.1 {port}",
        cwd=site,
        background=True,
    )
    await wait_for(hands, f"http://127.0.0.1:{port}")
    yield port
    await hands.use("shell_kill", shell=begun.partition(" ")[0])


async def wait_for(hands: Hands, url: str) -> None:
    waited = (
        f"curl --silent --retry 60 --retry-delay 1 --retry-connrefused --output /dev/null {url}"
    )
    assert "[no output; exit code 0]" in await hands.use("run_command", command=waited)


async def tell_where_it_is(hands: Hands, port: int) -> None:
    told = json.loads(await hands.use("expose_port", port=port))
    assert told["listening"]
    # Not every resolver knows that names below localhost are this machine.
    outside = httpx.URL(told["url"])
    headers = {"Host": outside.netloc.decode(), "X-API-Key": hands.site.key}
    async with httpx.AsyncClient(headers=headers) as caller:
        answer = await caller.get(outside.copy_with(host="127.0.0.1"))
    assert "A shop in a sandbox" in answer.text


async def browse(hands: Hands, port: int) -> None:
    picture = await hands.look("browser_navigate", url=f"http://127.0.0.1:{port}")
    assert picture.hex().startswith(_PNG)
    seen = await hands.use("browser_view")
    button = re.search(r'button "Order".*\[ref=(\w+)\]', seen)
    assert button is not None, seen
    await hands.use("browser_type", text="Ada", selector="#who")
    await hands.use("browser_select", options=["Large"], selector="#size")
    await hands.use("browser_click", ref=button[1])
    await hands.use("browser_view", wait_for="Ada wants Large")
    await hands.use("browser_type", text="Grace", selector="#who")
    await hands.use("browser_press", key="Enter", selector="#who")
    await hands.use("browser_view", wait_for="Grace wants Large")
    await hands.use("browser_scroll", direction="into_view", selector="p.far")
    await hands.look("browser_screenshot", full_page=True)
    await hands.use("browser_click", selector="a")
    tabs = await hands.use("browser_tabs")
    assert "A shop" in tabs
    assert "Another" in tabs
    await hands.use("browser_tabs", action="close", tab=2)
    assert await hands.use("browser_close") == "The browser is closed."


async def have_agents_work(hands: Hands) -> None:
    for agent in ("claude_code", "codex"):
        path = f"{hands.site.place}/{agent}.txt"
        order = f"model, run: echo made by {agent} > {path}; cat {path}"
        answer = json.loads(await hands.use(agent, prompt=order, cwd=hands.site.place))
        assert f"made by {agent}" in answer["output"]
        assert answer["changed_files"] == [f"{agent}.txt"]
        again = json.loads(
            await hands.use(agent, prompt="model, run: echo again", session_id=answer["session_id"])
        )
        assert again["output"].startswith("2 prompts; the tool said:")


async def add_a_server_that_is_a_program(hands: Hands) -> None:
    name, script = f"{hands.site.name}-small", f"{hands.site.place}/stdio_server.py"
    await hands.use("write_file", path=script, content=_STDIO_SERVER.read_text())
    added = json.loads(
        await hands.use("mcp_add_server", name=name, command="python3", args=[script])
    )
    assert added["state"] == "ready", added
    assert await hands.use(f"{name}__say", text="hello") == "hello"
    [pid] = json.loads(await hands.use(f"{name}__processes"))
    assert await lives(hands, pid)
    await hands.use("mcp_disable_server", name=name)
    assert not await lives(hands, pid)
    await hands.use("mcp_enable_server", name=name)
    [other] = json.loads(await hands.use(f"{name}__processes"))
    assert await lives(hands, other)
    await hands.use("mcp_remove_server", name=name)
    assert not await lives(hands, other)


async def lives(hands: Hands, pid: int) -> bool:
    told = await hands.use("run_command", command=f"kill -0 {pid} 2>/dev/null && echo lives")
    return told.startswith("lives")


async def add_a_server_that_is_an_address(hands: Hands) -> None:
    name, script = f"{hands.site.name}-remote", f"{hands.site.place}/remote.py"
    await hands.use("write_file", path=script, content=_REMOTE_SERVER)
    begun = await hands.use(
        "run_command", command=f"exec /opt/sandbox/venv/bin/python {script}", background=True
    )
    await wait_for(hands, "http://127.0.0.1:8701")
    added = json.loads(
        await hands.use("mcp_add_server", name=name, url="http://127.0.0.1:8701/mcp")
    )
    assert added["tools"] == [f"{name}__double"], added
    assert await hands.use(f"{name}__double", number=21) == "42"
    listed = json.loads(await hands.use("mcp_list_servers"))["servers"]
    assert [one["state"] for one in listed if one["name"] == name] == ["ready"]
    left = json.loads(await hands.use("mcp_remove_server", name=name))["servers"]
    assert name not in [one["name"] for one in left]
    await hands.use("shell_kill", shell=begun.partition(" ")[0])
