import asyncio
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from fastmcp.exceptions import ToolError

from tests.tools.polling import until

POPUP = "<title>Opener</title><a href=/popup target=_blank>Open</a>"


def current_tab(told):
    found = re.search(r"^Tab (\d+):", told, re.MULTILINE)
    assert found, told
    return int(found[1])


@pytest.mark.slow  # browsers in depth
async def test_tabs__a_tab_opened_by_a_page_becomes_current(browse, site):
    site.serve("/popup", "<title>Popup</title><button onclick='window.close()'>Close</button>")
    opener = current_tab(await browse.open(site.serve("/", POPUP)))
    told = await browse.until(" was opened and is now current", "click", selector="text=Open")
    popup = opener + 1
    assert f"Tab {popup} was opened and is now current." in told
    assert "Popup" in await browse("view", wait_for="Close")
    assert f"Tab {popup}: Popup\nURL: {site.url}/popup (current)" in await browse("tabs")
    assert f"Tab {opener}: Opener" in await browse("tabs", action="switch", tab=opener)
    await browse("tabs", action="switch", tab=popup)
    await browse.until(f"Tab {popup} was closed.", "click", selector="button")
    assert f"Tab {opener}: Opener" in await browse("view")
    with pytest.raises(ToolError, match=f"No tab {popup}. Open tabs: {opener}."):
        await browse("tabs", action="switch", tab=popup)


async def test_element_refs__refs_of_other_tabs_are_rejected(browse, site):
    await browse.open(site.serve("/", "<button>Here</button>"))
    here = await browse.ref('button "Here"')
    opened = await browse("tabs", action="open", url=site.serve("/other", "<button>There</button>"))
    there = await browse.ref('button "There"')
    with pytest.raises(ToolError, match=rf"{here} belongs to tab \d+, but"):
        await browse("click", ref=here)
    await browse("click", ref=there)
    await browse("tabs", action="close", tab=current_tab(opened))
    await browse("click", ref=here)


async def test_dialogs__are_answered_and_reported(browse, site):
    page = """<button onclick="alert('beware')">Alert</button>
      <button onclick="document.title = confirm('sure?')">Confirm</button>
      <button onclick="document.title = prompt('who?')">Prompt</button>"""
    await browse.open(site.serve("/", page))
    assert "Alert shown by the page: beware" in await browse("click", selector="text=Alert")
    told = await browse("click", selector="text=Confirm")
    assert ": false\n" in told
    assert 'Dismissed the confirm; to accept it, repeat the call with dialog="accept"' in told
    assert '"sure?"' in told
    assert ": true\n" in await browse("click", selector="text=Confirm", dialog="accept")
    told = await browse("click", selector="text=Prompt", dialog="accept", dialog_text="Ann")
    assert ": Ann\n" in told
    assert 'Accepted the prompt: "who?"' in told


async def test_dialogs__beforeunload_is_confirmed(browse, site):
    page = "<button>Touch</button><script>onbeforeunload = () => 'stay'</script>"
    await browse.open(site.serve("/", page))
    await browse("click", selector="button")
    told = await browse.open(site.serve("/next", "<title>Next</title>"))
    assert ": Next\n" in told
    assert "asked to confirm leaving; confirmed" in told


@pytest.mark.slow  # browsers in depth
async def test_page_events__are_limited_in_number_and_length(browse, site):
    page = "<button onclick='for (let i = 0; i < 40; i++) alert(i + `x`.repeat(9999))'>Go</button>"
    await browse.open(site.serve("/", page))
    told = await browse("click", selector="button")
    assert len(told) < 6_000
    assert "And 28 more events." in told


async def test_downloads__are_saved_in_the_working_directory_under_unused_names(
    browse, site, tool_server
):
    headers = {"Content-Disposition": 'attachment; filename="../evil name.txt"'}
    site.serve("/file", "content", headers=headers)
    await browse.open(site.serve("/", "<a href=/file>Get</a>"))
    directory = tool_server.workspace / "downloads"
    before = set(directory.glob("*"))
    told = [
        await browse.until("(7 bytes)", "click", selector="a"),
        await browse.until("(7 bytes)", "navigate", url=f"{site.url}/file"),
    ]
    new = set(directory.glob("*")) - before
    assert len(new) == 2
    assert {path.read_text() for path in new} == {"content"}
    assert all(any(f"Downloaded {path} (7 bytes)" in text for text in told) for path in new)


@pytest.mark.slow  # browsers in depth
async def test_browser__keeps_cookies_after_browser_close(browse, site):
    page = site.serve("/", "", headers={"Set-Cookie": "who=me; Max-Age=1000"})
    await browse.open(page)
    assert await browse("close") == "The browser is closed."
    assert await browse("close") == "The browser was not running."
    await browse.open(page)
    assert site.cookies == ["", "who=me"]


async def test_browser__restarts_after_a_crash(browse, site, tool_server):
    await browse.open(site.serve("/", "<title>There</title>"))
    (driver,) = children_running(tool_server, "run-driver")
    (chromium,) = running_of(driver, "--remote-debugging-pipe")
    os.kill(chromium, signal.SIGKILL)
    told = await browse_after_a_crash(browse, site.url)
    assert "The browser crashed and was restarted" in told
    assert ": There\n" in told


async def test_browser__a_cancelled_start_leaves_one_browser(browse, site, tool_server):
    await browse("close")
    starting = asyncio.create_task(browse("tabs"))
    await until(lambda: children_running(tool_server, "run-driver"))
    starting.cancel()
    assert ": There\n" in await browse.open(site.serve("/", "<title>There</title>"))
    assert len(children_running(tool_server, "run-driver")) == 1


async def browse_after_a_crash(browse, url):
    """Open a page; a call that the crash is still under way in tells so, and the next one works."""
    with suppress(ToolError):
        return await browse.open(url)
    return await browse.open(url)


def children_running(tool_server, argument):
    return running_of(tool_server.process.pid, argument)


def running_of(parent, argument):
    """List the children of a process that were started with an argument."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [child for child in children if argument in arguments_of(child)]


def arguments_of(process):
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")
