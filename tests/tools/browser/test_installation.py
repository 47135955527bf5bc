import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fastmcp.exceptions import ToolError

from sandbox_tools.browser.chromium import _locked_profile
from sandbox_tools.browser.navigation import complete_url
from sandbox_tools.server import make_server
from sandbox_tools.toolkit.settings_file import SettingsFile
from sandbox_tools.toolkit.workspace import Workspace


async def test_browser__without_chromium_no_tools_are_registered(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    server = make_server(SettingsFile(tmp_path / "none"), workspace=Workspace(tmp_path))
    names = [tool.name for tool in await server.local_provider.list_tools()]
    assert names
    assert not [name for name in names if name.startswith("browser_")]
    transport = httpx.ASGITransport(server.http_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        health = (await client.get("/health")).json()
    assert "agent-full" in health["browser"]


@pytest.mark.slow  # browsers in depth
def test_browser__playwright_is_imported_at_first_use():
    script = "import sandbox_tools.server, sys; sys.exit('playwright' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_browser__the_profile_is_locked_and_stale_locks_are_removed(tmp_path):
    with _locked_profile(tmp_path) as profile:
        profile.mkdir()
        (profile / "SingletonLock").symlink_to("another-host-4711")
        with pytest.raises(ToolError, match="another tool server"), _locked_profile(tmp_path):
            pass
    with _locked_profile(tmp_path):
        assert not (profile / "SingletonLock").is_symlink()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://example.org/a b", "https://example.org/a b"),
        ("example.org", "https://example.org"),
        ("example.org/path:1", "https://example.org/path:1"),
        ("localhost", "http://localhost"),
        ("localhost:3000/x", "http://localhost:3000/x"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("[::1]:80", "http://[::1]:80"),
        ("web:8080", "http://web:8080"),
        ("/tmp/a b.html", "file:///tmp/a%20b.html"),
        ("./x.html", "file:///work/x.html"),
        ("data:text/html,x", "data:text/html,x"),
    ],
)
def test_complete_url__accepts_urls_hosts_and_paths(given, url):
    assert complete_url(given, Workspace(Path("/work"))) == url


@pytest.mark.parametrize("given", ["javascript:alert(1)", "chrome://settings", "ftp://example.org"])
def test_complete_url__rejects_other_schemes(given):
    with pytest.raises(ToolError, match="Use http, https, file, data or about"):
        complete_url(given, Workspace(Path("/work")))
