import json
import re
from pathlib import Path

import pytest

from sandbox_tools.gateway.server_config import (
    ConfigSource,
    InvalidServerConfig,
    ServerConfig,
    Transport,
)

_SHIPPED = Path(__file__).parents[3] / "docker/sandbox/mcp.json"
_SERVERS = json.loads(_SHIPPED.read_bytes())["mcpServers"]


def test_shipped_servers__are_disabled_by_default():
    assert _SERVERS.keys() >= {
        *("playwright", "context7", "ctxkit", "sequential-thinking", "awesome-copilot")
    }
    for name, document in _SERVERS.items():
        assert ServerConfig.of(name, document, ConfigSource.SHIPPED).disabled


@pytest.mark.parametrize("name", _SERVERS)
def test_shipped_servers__need_only_the_variables_they_name(name):
    entry = ServerConfig.of(name, _SERVERS[name], ConfigSource.SHIPPED)
    launch = entry.launch({"CTXKIT_URL": "http://127.0.0.1:9000/mcp"})
    if launch.transport is Transport.STDIO:
        packages = [one for one in launch.args if one.startswith("@")]
        assert packages
        assert all(re.fullmatch(r"@[\w-]+/[\w-]+@\d+\.\d+\.\d+", one) for one in packages)


def test_shipped_servers__a_missing_variable_is_named():
    with pytest.raises(InvalidServerConfig, match="CTXKIT_URL"):
        ServerConfig.of("ctxkit", _SERVERS["ctxkit"], ConfigSource.SHIPPED).launch({})


def test_shipped_servers__use_the_documented_ports():
    urls = {name: document["url"] for name, document in _SERVERS.items() if "url" in document}
    assert "127.0.0.1:8080/" in urls["awesome-copilot"]
    assert "127.0.0.1:8081/" in urls["extra"]
