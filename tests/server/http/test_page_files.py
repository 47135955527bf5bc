import re

import pytest

PAGE = ("/", "/page/start.js", "/page/style.css", "/page/icon.svg")


async def test_web_files__are_public_with_their_media_types(stranger):
    types = [(await stranger.get(path)).headers["content-type"] for path in PAGE]
    assert [each.partition(";")[0] for each in types] == [
        "text/html",
        "text/javascript",
        "text/css",
        "image/svg+xml",
    ]


async def test_web_files__everything_that_they_reference_exists(stranger):
    pending, seen = ["/"], set()
    while pending:
        path = pending.pop()
        seen.add(path)
        answer = await stranger.get(path)
        assert answer.status_code == 200, path
        at = "/page/" if path.startswith("/page/") else "/"
        named = re.findall(
            r"""(?:\b(?:src|href)="|from "\./|import\("\./)([\w/.-]+\.\w+)"|url\("([\w/.-]+)"\)""",
            answer.text,
        )
        found = {at + (one or other) for one, other in named}
        # Files fetched at installation may be missing.
        pending += [each for each in found - seen if "/vendor/" not in each]
    assert len(seen) > 15


async def test_web_files__scripts_and_styles_are_only_in_files(stranger):
    page = await stranger.get("/")
    assert not re.search(r"<script>|<style|\bon\w+=|\bstyle=|javascript:", page.text)
    assert "//" not in re.sub(r"<!--.*?-->", "", page.text)
    for path in PAGE:
        policy = (await stranger.get(path)).headers["content-security-policy"]
        directives = dict(each.split(" ", 1) for each in policy.split("; "))
        assert directives["default-src"] == directives["frame-ancestors"] == "'none'"
        assert directives["script-src"] == directives["style-src"] == "'self'"
        assert directives["base-uri"] == directives["form-action"] == "'none'"
        assert "unsafe" not in policy


async def test_web_files__an_unchanged_file_is_answered_304(stranger):
    for path in PAGE:
        first = await stranger.get(path)
        assert first.headers["cache-control"] == "no-cache"
        etag = first.headers["etag"]
        again = await stranger.get(path, headers={"If-None-Match": f'"older", W/{etag}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
        assert (await stranger.get(path, headers={"If-None-Match": '"older"'})).status_code == 200
        head = await stranger.head(path)
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "name",
    ["", "package.json", "vendor", "..%2fapp.py", "../app.py", "%2e%2e/log.py", "nothing.js"],
)
async def test_web_files__other_files_are_not_served(stranger, name):
    assert (await stranger.get(f"/page/{name}")).status_code in {401, 404}
