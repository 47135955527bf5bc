import json
import re

import pytest

from tests.engine.engine_process import REPOSITORY
from tests.template.recipe import SANDBOX_FILES

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PACKAGE = json.loads((SANDBOX_FILES / "agents/package.json").read_text())
AGENTS = PACKAGE["dependencies"]


def pin(file, name):
    found = re.search(rf"(?m)^{name}==(\S+)$", (REPOSITORY / file).read_text())
    assert found
    return found[1]


@pytest.mark.parametrize("which", ["slim_computer", "computer"])
def test_image__commands_run_as_user_with_sudo_in_the_workdir(which, request):
    computer = request.getfixturevalue(which)
    assert computer.run("id -u; pwd -P; sudo -n id -u").split() == ["1000", "/workspace", "0"]
    assert computer.run("cd ~/workspace && pwd -P && touch made && rm made") == "/workspace\n"


def test_image__agent_contains_the_tools_and_no_large_parts(slim_computer):
    programs = (
        "gcc g++ make python python3 node npm npx git git-lfs gh jq rg tmux curl sandbox-tools"
    )
    slim_computer.run(f"for one in {programs}; do command -v $one || exit; done")
    assert (
        slim_computer.run(
            "git config filter.lfs.required; git config lfs.skipdownloaderrors"
        ).split()
        == ["true"] * 2
    )
    absent = "chromium code-server claude codex copilot gemini opencode"
    assert slim_computer.run(f"for one in {absent}; do command -v $one; done; true") == ""
    assert slim_computer.run("node --version").startswith("v24.")


def test_image__packages_can_be_installed_without_sudo(slim_computer):
    slim_computer.run("pip install --quiet six==1.17.0 && npm install --global is-number@7.0.0")
    assert slim_computer.run("python -c 'import six; print(six.__version__)'") == "1.17.0\n"


@pytest.mark.parametrize("name", ["slim", "full"])
def test_image__contains_no_build_leftovers(name, request, computer_of):
    leftovers = (
        "/var/lib/apt/lists/*Packages* /var/cache/apt/archives/*.deb /root/.npm /root/.cache"
    )
    with computer_of(request.getfixturevalue(name)) as fresh:
        assert fresh.run(f"ls -d {leftovers} 2>/dev/null; true", user="root") == ""
        assert fresh.run("ls /tmp | grep -v -e ^tmux -e ^node-compile-cache; true") == ""


def test_image__agents_have_their_pinned_versions(computer):
    versions = {
        "codex": AGENTS["@openai/codex"],
        "copilot": AGENTS["@github/copilot"],
        "gemini": AGENTS["@google/gemini-cli"],
        "opencode": AGENTS["opencode-ai"],
        "code-server": "4.139.1",
        "node": "24.21.0",
    }
    for program, version in versions.items():
        assert version in computer.run(f"{program} --version"), program
    assert re.match(r"\d+\.\d+\.\d+ \(Claude Code\)", computer.run("claude --version"))
    packages = computer.run("/opt/sandbox/venv/bin/python -m pip --version 2>&1 || echo none")
    assert "No module named pip" in packages


def test_image__claude_code_is_installed_once(computer):
    found = computer.run("find / -xdev -size +100M -name '*claude*' -type f 2>/dev/null; true")
    assert found.split() == [computer.run("readlink -f /usr/local/bin/claude").strip()]
    sdk = pin("docker/sandbox/requirements-agents.txt", "claude-agent-sdk")
    assert f"claude_agent_sdk-{sdk}.dist-info" in computer.run(
        "ls /opt/sandbox/venv/lib/python3*/site-packages"
    )


def test_image__chromium_opens_a_page_as_user(computer):
    computer.run(
        "echo '<title>seen</title><p id=x></p><script>x.textContent=6*7</script>' >~/p.html"
    )
    page = computer.run(
        "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom file://$HOME/p.html"
    )
    assert '<p id="x">42</p>' in page


def test_image__native_modules_match_the_installed_node(slim_computer):
    script = "mkdir -p ~/native && cd ~/native && npm init -y && npm install nan node-gyp@11"
    slim_computer.run(f"{script} >/dev/null")
    slim_computer.run(
        'cd ~/native && printf \'%s\' \'{"targets":[{"target_name":"a","sources":["a.c"]}]}\' >binding.gyp'
        " && printf '#include <node_api.h>\\nNAPI_MODULE_INIT() { napi_value n; napi_create_int32(env, 7, &n);"
        " return n; }\\n' >a.c && npm install --no-save && node -e"
        " 'if (require(\"./build/Release/a.node\") !== 7) process.exit(1)'",
        timeout=300,
    )
