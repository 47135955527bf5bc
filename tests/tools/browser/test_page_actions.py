import pytest
from fastmcp.exceptions import ToolError


async def test_browser_type__fills_in_a_form_that_is_submitted(browse, site):
    form = """<form action=/sent><label>Name <input name=name value=old></label>
      <select name=colour aria-label=Colour><option value=r>Red</option><option value=b>Blue</option></select>
      <label><input type=checkbox name=yes> Yes</label><button>Send</button></form>"""
    await browse.open(site.serve("/", form))
    site.serve("/sent", "<title>Thanks</title>")
    await browse("type", text="An", ref=await browse.ref('textbox "Name"'))
    await browse("type", text="n", ref=await browse.ref('textbox "Name"'), clear=False)
    await browse("select", options=["Blue"], ref=await browse.ref('combobox "Colour"'))
    await browse("click", ref=await browse.ref('checkbox "Yes"'))
    told = await browse("click", ref=await browse.ref('button "Send"'))
    assert ": Thanks\n" in told
    assert site.asked[-1] == "/sent?name=Ann&colour=b&yes=on"


async def test_browser_press__keys_edit_and_enter_submits(browse, site):
    await browse.open(site.serve("/", "<form action=/sent><input name=text autofocus></form>"))
    site.serve("/sent", "<title>Thanks</title>")
    await browse("type", text="abc", selector="input")
    await browse("press", key="Backspace")
    assert ": Thanks\n" in await browse("type", text="d", clear=False, submit=True)
    assert site.asked[-1] == "/sent?text=abd"


async def test_browser_select__an_unknown_option_lists_the_available_ones(browse, site):
    await browse.open(site.serve("/", "<select><option>Red<option>Blue</select>"))
    with pytest.raises(ToolError, match=r"No option 'Green'\. Available: 'Red', 'Blue'"):
        await browse("select", options=["Green"], selector="select")


async def test_browser_type__sets_the_files_of_a_file_input(browse, site, tool_server):
    (tool_server.workspace / "mine.txt").write_text("text")
    page = "<input type=file onchange='document.title = files[0].name + files[0].size'>"
    await browse.open(site.serve("/", page))
    assert ": mine.txt4\n" in await browse("type", text="mine.txt", selector="input")
    with pytest.raises(ToolError, match="does not exist"):
        await browse("type", text="other.txt", selector="input")


async def test_element_refs__refs_of_the_previous_page_are_rejected(browse, site):
    await browse.open(site.serve("/one", "<button>Keep</button>"))
    ref = await browse.ref('button "Keep"')
    await browse.open(site.serve("/two", "<button onclick='document.title = 1'>Delete</button>"))
    for _ in range(2):
        with pytest.raises(ToolError, match=f"{ref} no longer exists"):
            await browse("click", ref=ref)
        await browse("view")


async def test_element_refs__refs_of_removed_elements_are_rejected(browse, site):
    page = "<button onclick='this.remove()'>Go</button><button onclick='document.title = `stays`'>Stay</button>"
    await browse.open(site.serve("/", page))
    goes, stays = await browse.ref('button "Go"'), await browse.ref('button "Stay"')
    await browse("click", ref=goes)
    with pytest.raises(ToolError, match=f"{goes} no longer exists"):
        await browse("click", ref=goes)
    assert ": stays\n" in await browse("click", ref=stays)


async def test_browser_click__explains_why_an_element_is_not_usable(browse, site):
    page = """<button disabled id=off>Off</button><button id=covered>Covered</button>
      <div style="position: absolute; inset: 0 0 0 60px"></div>"""
    await browse.open(site.serve("/", page))
    for named, why in (
        ({}, "exactly one of ref and selector"),
        ({"ref": "e1", "selector": "p"}, "exactly one of ref and selector"),
        ({"ref": "#send"}, "is not a ref"),
        ({"selector": "button"}, "matches several elements"),
        ({"selector": "#nothing"}, "No element matches"),
        ({"selector": "#off"}, "it is disabled"),
        ({"selector": "#covered"}, "another element covers it: <div"),
        ({"selector": "a[["}, "css selector"),
    ):
        with pytest.raises(ToolError, match=why):
            await browse("click", **named, timeout_s=1)


@pytest.mark.slow  # browsers in depth
async def test_browser_scroll__scrolls_the_page_or_a_container(browse, site):
    page = """<body style="margin: 0"><div style="height: 5000px">
      <div id=part style="height: 100px; overflow: auto"><p style="height: 1000px; margin: 0"></div></div>
      <p id=end>end"""
    await browse.open(site.serve("/", page))
    assert "The page scrolled by 500 pixels" in await browse("scroll", pixels=500)
    assert "shows 0 to" in await browse("scroll", direction="top")
    told = await browse("scroll", selector="#part p", direction="bottom")
    assert "A part of the page scrolled by 900 pixels and shows 900 to 1000 of 1000" in told
    assert "This is the end in that direction" in await browse("scroll", direction="bottom")
    await browse("scroll", direction="top")
    await browse("scroll", direction="into_view", selector="#end")
    assert "scrolled by 0 pixels" in await browse("scroll", direction="down")
