from sandbox_tools.browser.element_refs import with_tab_refs
from sandbox_tools.browser.tabs import Tab
from sandbox_tools.toolkit.truncation import truncate_line

MAX_OUTLINE_CHARACTERS = 20_000
_CONTEXT_LINES = 2


async def read_outline(tab: Tab) -> list[str]:
    """Return the page's text and elements with refs, including frames and shadow trees."""
    snapshot = await tab.page.aria_snapshot(mode="ai")
    return with_tab_refs(tab, snapshot).splitlines() if snapshot.strip() else []


def format_outline(lines: list[str], *, from_line: int = 1, find: str | None = None) -> str:
    if not lines:
        return "The page is empty."
    if from_line > len(lines):
        return f"The page has only {len(lines)} lines."
    if find is None:
        return _page_of_outline(lines, from_line)
    return _matching_lines(lines, from_line, find.casefold())


def _page_of_outline(lines: list[str], first: int) -> str:
    taken, space = [], MAX_OUTLINE_CHARACTERS
    for line in lines[first - 1 :]:
        cut = truncate_line(line)
        space -= len(cut) + 1
        if space < 0:
            break
        taken.append(cut)
    end = first - 1 + len(taken)
    if end == len(lines):
        return "\n".join(taken)
    more = f"[… {len(lines) - end} of {len(lines)} lines truncated; continue with from_line={end + 1} …]"
    return "\n".join([*taken, more])


def _matching_lines(lines: list[str], first: int, wanted: str) -> str:
    """Show the lines that contain a text, with line numbers and context."""
    found = [at for at in range(first - 1, len(lines)) if wanted in lines[at].casefold()]
    if not found:
        return f"None of the page's {len(lines)} lines contains that text."
    near = sorted(
        {near for at in found for near in range(at - _CONTEXT_LINES, at + _CONTEXT_LINES + 1)}
    )
    taken, space = [], MAX_OUTLINE_CHARACTERS
    for at in near:
        if not 0 <= at < len(lines):
            continue
        line = f"{at + 1}: {truncate_line(lines[at])}"
        space -= len(line) + 1
        if space < 0:
            taken.append(
                f"[… more of the {len(found)} matches truncated; continue with from_line={at + 1} …]"
            )
            break
        taken.append(line)
    return "\n".join(taken)
