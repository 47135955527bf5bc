import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from fastmcp.exceptions import ToolError

from sandbox_tools.files.glob_patterns import InvalidGlob, compile_glob
from sandbox_tools.files.grep_tool import GrepTool
from sandbox_tools.toolkit.workspace import Workspace
from tests.tools.polling import until


def searches():
    """List the ripgrep processes that this process started."""
    tasks = Path("/proc/self/task").iterdir()
    pids = [pid for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in pids if b"--no-config" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def make(directory, *names):
    for age, name in enumerate(names):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("needle\n")
        os.utime(path, (10**9 - age, 10**9 - age))


async def test_list_directory__shows_types_and_sizes_sorted_by_name(directory, text_of):
    make(directory, "b.txt", "src/a.py", ".hidden")
    (directory / "link").symlink_to("b.txt")
    os.mkfifo(directory / "pipe")
    told = await text_of("list_directory", path=directory)
    assert told.splitlines() == [
        ".hidden (7 bytes)",
        "b.txt (7 bytes)",
        "link -> b.txt",
        "pipe (pipe)",
        "src/",
    ]


async def test_list_directory__depth_lists_subdirectories_except_caches(directory, text_of):
    make(directory, "a/b/c/d.txt", "node_modules/x/y.js")
    (directory / "a" / "up").symlink_to(directory)
    told = await text_of("list_directory", path=directory, depth=3)
    assert told.splitlines() == [
        "a/",
        "a/b/",
        "a/b/c/",
        f"a/up -> {directory}",
        "node_modules/ (not entered)",
    ]


async def test_list_directory__truncates_after_1000_entries(directory, text_of, refusal_of):
    assert "is empty" in await text_of("list_directory", path=directory)
    for number in range(1_001):
        (directory / f"{number:04}").touch()
    *told, last = (await text_of("list_directory", path=directory)).splitlines()
    assert len(told) == 1_000
    assert last.startswith("[Truncated after 1,000 lines.")
    assert "x does not exist" in await refusal_of("list_directory", path=directory / "x")
    assert "with read_file" in await refusal_of("list_directory", path=directory / "0001")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/er/c.py", ".github/d.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/er/c.py"]),
        ("src/**", ["src/b.py", "src/deep/er/c.py", "src/e.ts", "src/f[1].tsx"]),
        ("src/*.{ts,tsx}", ["src/e.ts", "src/f[1].tsx"]),
        ("{src,.github}/[bd].py", ["src/b.py", ".github/d.py"]),
        ("**/[!a-c].py", [".github/d.py"]),
        ("src/f[[]1].*", ["src/f[1].tsx"]),
        ("src/f\\[1\\].*", ["src/f[1].tsx"]),
        ("./src/?.ts", ["src/e.ts"]),
        ("node_modules/**/*.py", ["node_modules/g.py"]),
    ],
)
async def test_glob__returns_matching_files_newest_first(directory, text_of, pattern, names):
    make(
        directory,
        *"a.py src/b.py src/deep/er/c.py .github/d.py src/e.ts src/f[1].tsx node_modules/g.py .git/h.py".split(),
    )
    told = await text_of("glob", pattern=pattern, path=directory)
    assert told.splitlines() == [str(directory / name) for name in names]
    assert await text_of("glob", pattern=f"{directory}/{pattern}") == told


async def test_file_tools__invalid_utf_8_in_names_is_replaced(directory, text_of, refusal_of):
    make(directory, os.fsdecode(b"n\xe4he.py"))
    assert await text_of("list_directory", path=directory) == "n\ufffdhe.py (7 bytes)"
    assert await text_of("glob", pattern="*.py", path=directory) == f"{directory}/n\ufffdhe.py"
    assert "Did you mean n\ufffdhe.py?" in await refusal_of("read_file", path=directory / "nhe.py")


async def test_glob__reports_no_matches_and_truncation(directory, text_of, refusal_of):
    make(directory, "a.py", "b.py", "c.py")
    assert "No files in" in await text_of("glob", pattern="*.rs", path=directory)
    told = await text_of("glob", pattern="*.py", path=directory, limit=2)
    assert told.splitlines()[-1].startswith("[Truncated after 2 lines. 3 files match:")
    assert "Invalid glob" in await refusal_of("glob", pattern="[z-a]", path=directory)
    assert "x does not exist" in await refusal_of("glob", pattern="x/*", path=directory)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 25 + "b", "a" * 250),
        ("**/a/" * 15 + "b", "a/" * 60 + "c"),
        ("**/*a*/" * 10 + "b", "aaa/" * 60 + "c"),
    ],
)
def test_compile_glob__matches_in_linear_time(pattern, name):
    began = time.monotonic()
    assert compile_glob(pattern).fullmatch(name) is None
    assert compile_glob(pattern).fullmatch(f"{name[:-1]}b")
    assert time.monotonic() - began < 1


def test_compile_glob__rejects_excessive_brace_expansion():
    with pytest.raises(InvalidGlob, match="braces"):
        compile_glob("{1,2,3,4,5,6,7,8}" * 20)


@pytest.fixture
def grep(tmp_path):
    """Call the tool in a temporary workspace; its path is left out of the answers."""

    async def search(pattern, **options):
        answer = await GrepTool(Workspace(tmp_path)).grep(pattern, **options)
        return answer.replace(f"{tmp_path}/", "").splitlines()

    return search


@pytest_asyncio.fixture
async def endless_search(tmp_path, monkeypatch):
    """Start a search by a ripgrep that never ends by itself."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "rg"
    program.write_text("#!/bin/sh\nexec tail -f /dev/null -- --no-config\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return asyncio.create_task(GrepTool(Workspace(tmp_path)).grep("needle"))


async def test_grep__returns_paths_and_line_numbers(grep, tmp_path):
    make(tmp_path, "a.py", "src/b.py", ".github/c", "node_modules/d", ".git/e")
    (tmp_path / ".gitignore").write_text("src\n")
    (tmp_path / "src/b.py").write_bytes(b"hay\r\nthe Needle: (x)\r\n")
    assert await grep("needle") == [".github/c:1:needle", "a.py:1:needle"]
    assert await grep("needle", ignore_case=True, path="src") == ["src/b.py:2:the Needle: (x)"]
    assert await grep(r"^\w+ [A-Z]\w+:.*\)$") == ["src/b.py:2:the Needle: (x)"]
    assert await grep("(x)", literal=True) == ["src/b.py:2:the Needle: (x)"]
    assert await grep("needle", path="a.py") == ["a.py:1:needle"]
    assert await grep("needle", path="node_modules") == ["node_modules/d:1:needle"]
    assert await grep("--needle") == [f"[No matches in {tmp_path}.]"]


async def test_grep__context_lines_are_marked(grep, tmp_path):
    (tmp_path / "a").write_text("".join(f"{n}\n" for n in "1 2 x 4 x 6 7 8 9 x".split()))
    (tmp_path / "b").write_text("x\n")
    assert await grep("x", context=1) == [
        *("a-2-2", "a:3:x", "a-4-4", "a:5:x", "a-6-6"),
        *("--", "a-9-9", "a:10:x"),
        *("--", "b:1:x"),
    ]


async def test_grep__mode_selects_files_or_counts(grep, tmp_path):
    make(tmp_path, "a.py", "src/b.py")
    (tmp_path / "a.py").write_text("needle\nhay\nneedle needle\n")
    assert await grep("needle", mode="files") == ["a.py", "src/b.py"]
    assert await grep("needle", mode="count") == ["a.py:2", "src/b.py:1"]


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*.py", ["a.py", "src/b.py", "src/in/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("/*.py", ["a.py"]),
        ("src/**/*.{py,ts}", ["src/b.py", "src/d.ts", "src/in/c.py"]),
        ("!*.py", ["src/d.ts"]),
    ],
)
async def test_grep__glob_selects_files(grep, tmp_path, glob, names):
    make(tmp_path, "a.py", "src/b.py", "src/in/c.py", "src/d.ts")
    assert await grep("needle", mode="files", glob=glob) == names


async def test_grep__skips_binary_files_pipes_and_symlinks(grep, tmp_path):
    (tmp_path / "binary").write_bytes(b"\0\1needle\n")
    (tmp_path / "secret").symlink_to("/etc/passwd")
    (tmp_path / "utf16").write_text("the needle\n", encoding="utf-16")
    os.mkfifo(tmp_path / "pipe")
    assert await grep("needle|root") == ["utf16:1:the needle"]


async def test_grep__limits_lines_and_their_length(grep, tmp_path):
    (tmp_path / "a").write_text(f"{'x' * 5_000}\n" * 100)
    told = await grep("x", limit=3)
    assert len(told) == 4
    assert all(2_000 < len(line) < 2_100 and line.endswith("]") for line in told[:3])
    assert told[3].startswith("[Truncated after 3 lines.")
    assert sum(map(len, await grep("x"))) < 60_000


async def test_grep__a_cancelled_call_ends_ripgrep(endless_search):
    await until(searches)
    endless_search.cancel()
    with suppress(asyncio.CancelledError):
        await endless_search
    assert not searches()


async def test_grep__a_killed_ripgrep_is_an_error_and_not_an_empty_result(endless_search):
    await until(searches)
    os.kill(int(searches()[0]), signal.SIGKILL)
    with pytest.raises(ToolError, match="The search was killed"):
        await endless_search


async def test_grep__a_missing_ripgrep_is_an_error_that_names_the_package(grep, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolError, match="apt-get install ripgrep"):
        await grep("needle")


async def test_grep__rejects_pipes_and_nul_characters(directory, refusal_of):
    os.mkfifo(directory / "pipe")
    said = await refusal_of("grep", pattern="x", path=directory / "pipe")
    assert said.endswith("pipe: a pipe, not a regular file.")
    assert "NUL" in await refusal_of("grep", pattern="x\0y", path=directory)


async def test_grep__reports_invalid_regular_expressions(grep, tmp_path):
    with pytest.raises(ToolError, match=r"The search failed: (?s:.)*unclosed"):
        await grep("(needle")


async def test_grep__resolves_relative_paths(directory, text_of, refusal_of):
    make(directory, "a.txt")
    told = await text_of("grep", pattern="needle", path=Path(directory.name))
    assert told == f"{directory}/a.txt:1:needle"
    assert "x does not exist" in await refusal_of("grep", pattern="x", path=directory / "x")
