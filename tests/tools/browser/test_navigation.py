import asyncio
import re
import struct
import threading

import pytest
from fastmcp.exceptions import ToolError

from tests.ports import free_port


def size_of(png):
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


async def test_browser_navigate__returns_title_url_and_screenshot(browse, site):
    told, picture = await browse.see("navigate", url=site.serve("/", "<title>Hello</title>"))
    assert re.search(r"Tab \d+: Hello\n", told)
    assert f"URL: {site.url}/\n" in told
    assert size_of(picture) == (1280, 800)


async def test_browser_view__includes_frames_and_shadow_trees(browse, site):
    site.serve("/frame", "<button onclick='top.document.title = `framed`'>In frame</button>")
    page = """<p>Some text</p><iframe src=/frame></iframe><div id=host></div><script>
      host.attachShadow({mode: "open"}).innerHTML =
        "<button onclick='document.title = `shadowed`'>In shadow</button>"
    </script>"""
    await browse.open(site.serve("/", page))
    assert "Some text" in await browse("view")
    for name, becomes in (("In frame", "framed"), ("In shadow", "shadowed")):
        told = await browse("click", ref=await browse.ref(f'button "{name}"'))
        assert f": {becomes}\n" in told


async def test_browser_view__long_pages_are_truncated_and_can_be_continued(browse, site):
    lines = "".join(f"<p>line {number} {'x' * 300}</p>" for number in range(100))
    await browse.open(site.serve("/", lines))
    first = await browse("view")
    assert len(first) < 25_000
    more = re.search(r"lines truncated; continue with from_line=(\d+)", first)
    assert more
    second = await browse("view", from_line=int(more[1]))
    assert [int(number) for number in re.findall(r"line (\d+) x", first + second)] == [*range(100)]


async def test_browser_view__find_shows_matching_lines_with_context(browse, site):
    lines = "".join(f"<p>line {number}.</p>" for number in range(100))
    await browse.open(site.serve("/", lines))
    found = await browse("view", find="LINE 50.")
    assert re.findall(r"line (\d+)", found) == ["48", "49", "50", "51", "52"]


async def test_browser_view__wait_for_waits_for_text(browse, site):
    await browse.open(
        site.serve("/", "<script>setTimeout(() => document.body.append('done'), 300)</script>")
    )
    assert "done" in await browse("view", wait_for="done", timeout_s=60)


async def test_browser_screenshot__full_page_is_scaled_and_truncated(browse, site):
    page = "<body style='margin: 0'><div style='width: 1280px; height: 9000px'>tall</div>"
    await browse.open(site.serve("/", page))
    told, picture = await browse.see("screenshot", full_page=True)
    width, height = size_of(picture)
    assert max(width, height) <= 2000
    assert "scaled to 50%, truncated from 1280 by 9000; scroll to see the rest" in told


@pytest.mark.slow  # browsers in depth
async def test_browser_screenshot__large_images_become_jpeg(browse, site):
    noise = """<body style="margin: 0"><canvas id="c" width="4000" height="4000"></canvas><script>
      const context = c.getContext("2d"), image = context.createImageData(c.width, c.height);
      for (let i = 0; i < image.data.length; i++) image.data[i] = i % 4 == 3 ? 255 : Math.random() * 256;
      context.putImageData(image, 0, 0);</script>"""
    await browse.open(site.serve("/", noise))
    _, picture = await browse.see("screenshot", full_page=True)
    assert picture.startswith(b"\xff\xd8")
    assert len(picture) < 750_000


async def test_browser_screenshot__captures_one_element(browse, site):
    page = "<div style='height: 3000px'></div><p style='width: 200px; height: 100px'>small"
    await browse.open(site.serve("/", page))
    _, picture = await browse.see("screenshot", selector="p")
    assert size_of(picture) == (200, 100)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:{port}/", "connection refused"),
        ("http://name.invalid/", "host not found"),
        ("/no/such/file.html", "the file does not exist"),
        ("javascript:alert(1)", "is not supported. Use http, https, file, data or about"),
    ],
)
async def test_browser_navigate__explains_network_errors(browse, url, why):
    with pytest.raises(ToolError, match=why):
        await browse.open(url.format(port=free_port()))


async def test_browser_navigate__works_right_after_a_failed_navigation(browse, site):
    page = site.serve("/", "<title>There</title>")
    for _ in range(3):
        with pytest.raises(ToolError, match="connection refused"):
            await browse.open(f"http://127.0.0.1:{free_port()}/")
        assert ": There\n" in await browse.open(page)


async def test_browser_navigate__reports_http_error_statuses(browse, site):
    told = await browse("navigate", url=f"{site.url}/nothing", show="view")
    assert "the server returned status 404" in told
    assert "there is nothing" in told


async def test_browser_navigate__opens_files_by_path(browse, tool_server):
    (tool_server.workspace / "page.html").write_text("<title>Mine</title>")
    assert ": Mine\n" in await browse.open("./page.html")


async def test_browser_navigate__goes_back_and_forward(browse, site):
    await browse.open(site.serve("/one", "<title>One</title>"))
    await browse.open(site.serve("/two", "<title>Two</title>"))
    assert ": One\n" in await browse.open("back")
    assert ": Two\n" in await browse.open("forward")
    with pytest.raises(ToolError, match="has no page to go forward to"):
        await browse.open("forward")


async def test_page_events__console_errors_are_reported_once(browse, site):
    page = "<script>for (let i = 0; i < 9; i++) console.error('oh no'); missing()</script>"
    told = await browse.open(site.serve("/", page))
    assert told.count("oh no") == 1
    assert "Uncaught error in the page: missing is not defined" in told
    assert "oh no" not in await browse("view")


async def test_browser_navigate__a_timeout_keeps_the_previous_page(browse, site):
    answered = threading.Event()
    held = site.serve("/held", "", held_until=answered)
    await browse.open(site.serve("/", "<p>before</p>"))
    try:
        with pytest.raises(ToolError, match=r"did not load within 0\.5 s"):
            await browse("navigate", url=held, timeout_s=0.5)
        assert "before" in await browse("view")
    finally:
        answered.set()


async def test_browser_navigate__a_cancelled_call_keeps_the_previous_page(browse, site):
    answered = threading.Event()
    held = site.serve("/held", "", held_until=answered)
    await browse.open(site.serve("/", "<p>before</p>"))
    try:
        opening = asyncio.create_task(browse("navigate", url=held, timeout_s=120))
        await asyncio.to_thread(site.wait_until_asked, "/held")
        opening.cancel()
        assert "before" in await browse("view")
    finally:
        answered.set()


async def test_browser__concurrent_calls_run_one_at_a_time(browse, site):
    answered = threading.Event()
    held = site.serve("/held", "<title>Held</title>", held_until=answered)
    await browse.open(site.serve("/", ""))
    first = asyncio.create_task(browse.open(held))
    await asyncio.to_thread(site.wait_until_asked, "/held")
    second = asyncio.create_task(browse.open(site.serve("/next", "<title>Next</title>")))
    # The second is held up by nothing but the first: a call that needs no browser passes it.
    await browse.tools.list_tools()
    assert site.asked == ["/", "/held"]
    answered.set()
    assert ": Held\n" in await first
    assert ": Next\n" in await second
    assert site.asked == ["/", "/held", "/next"]
