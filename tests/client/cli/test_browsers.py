import json

import pytest

pytestmark = pytest.mark.needs_engine


def test_browser__is_created_listed_and_released(sbx):
    created = sbx("browser", "create", "--template", "base", "--keep-alive", "--metadata", "a=b")
    browser_id = created.stdout.strip()
    assert browser_id in sbx("-q", "browser", "list").stdout.split()
    shown = json.loads(
        sbx("--json", "browser", "list", "--state", "running").stdout.splitlines()[0]
    )
    assert (shown["id"], shown["keep_alive"], shown["metadata"]) == (browser_id, True, {"a": "b"})
    assert sbx("browser", "url", browser_id).stdout.startswith("ws://")
    assert sbx("browser", "url", browser_id, "webdriver").stdout.strip().endswith("/webdriver")
    assert sbx("browser", "release", browser_id).stdout.strip() == browser_id
    refused = sbx("browser", "url", browser_id)
    assert refused.returncode == 1
    assert "it is completed" in refused.stderr
