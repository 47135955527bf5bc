import json
import re

import pytest

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PORTS = {"tools": 6060, "agent-server": 3000, "code-server": 9000}
CHECK = "/opt/sandbox/start-services.sh --check"
STATUS = "/opt/sandbox/start-services.sh --status"
LOGIN = (
    "curl --silent --output /dev/null --write-out '%{http_code}' "
    "--data-urlencode password=$PASSWORD http://127.0.0.1:9000/login"
)
CALL = (
    "curl --silent --output /dev/null --write-out '%{http_code}' -H 'Content-Type: application/json'"
    " -H 'Accept: application/json, text/event-stream' --data"
    ' \'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    '"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\' http://127.0.0.1:6060/mcp/'
)


def test_services__answer_from_outside_when_ready(computer, slim_computer):
    for one, port in [(slim_computer, 6060), (computer, 6060), (computer, 3000)]:
        assert one.get(port, "/health").status_code == 200
    slim_computer.run(CHECK)
    assert "agent-server: not in this template" in slim_computer.run(STATUS)


def test_services__the_tool_server_requires_the_token(slim_computer):
    assert slim_computer.run(CALL) == "401"
    slim_computer.settle()
    assert slim_computer.run(CALL) == "401"
    assert slim_computer.run(f"{CALL} -H 'Authorization: Bearer {slim_computer.token}'") == "200"


def test_services__code_server_uses_the_current_password(full, computer_of):
    with computer_of(full) as computer:
        assert "code-server: waiting for its password" in computer.run(STATUS)
        passwords = []
        for _ in range(2):
            computer.settle()
            passwords.append(computer.password)
            computer.wait(f'[ "$({LOGIN.replace("$PASSWORD", computer.password)})" = 302 ]')
        assert computer.run(LOGIN, PASSWORD=passwords[0]) == "200"  # shows the form again
        assert (
            computer.run(f"ps axo args | grep -c '[{passwords[1][0]}]{passwords[1][1:]}'; true")
            == "0\n"
        )


@pytest.mark.parametrize(("session", "port"), list(PORTS.items()))
def test_services__are_restarted_when_they_end(computer, session, port):
    listens = f"ss -Hltn 'sport = :{port}' | grep -q ."
    computer.wait(listens)
    killed = computer.listener(port)
    computer.run(f"kill -KILL {killed}")
    computer.wait(f"! kill -0 {killed} 2>/dev/null && {listens}")
    assert computer.listener(port) != killed
    assert f"{session} ended with" in computer.run(f"cat /var/log/sandbox/{session}.log")
    assert session in computer.run("tmux -L services list-sessions -F '#{session_name}'").split()


def test_services__starting_twice_starts_no_second_instance(computer):
    before = [computer.listener(port) for port in PORTS.values()]
    computer.run("/opt/sandbox/start-services.sh & sudo /opt/sandbox/start-services.sh; wait")
    assert [computer.listener(port) for port in PORTS.values()] == before
    sessions = computer.run("tmux -L services list-sessions -F '#{session_name}'").split()
    assert sorted(sessions) == ["agent-server", "code-server", "logs", "tools"]


def test_services__start_again_after_a_pause_without_memory(slim, computer_of):
    with computer_of(slim) as computer:
        computer.settle()
        computer.sandbox.pause(mode="filesystem")
        computer.sandbox.connect()
        computer.run(CHECK)
        assert computer.run(f"{CALL} -H 'Authorization: Bearer {computer.token}'") == "200"


def test_services__large_logs_are_rotated(slim_computer):
    slim_computer.run("head -c 11M /dev/zero | tr '\\0' x >/var/log/sandbox/flood.log")
    slim_computer.wait("[ ! -s /var/log/sandbox/flood.log ]", seconds=150)
    assert slim_computer.run("stat -c %s /var/log/sandbox/flood.log.1") == f"{11 << 20}\n"


@pytest.mark.parametrize(("name", "most_mb"), [("slim", 150), ("full", 300)])
def test_services__idle_memory_is_within_the_limit(name, most_mb, request, computer_of):
    with computer_of(request.getfixturevalue(name)) as computer:
        computer.wait(CHECK)
        shares = computer.run("cat /proc/[0-9]*/smaps_rollup 2>/dev/null; true")
        used = sum(int(kb) for kb in re.findall(r"(?m)^Pss: +(\d+) kB", shares)) >> 10
        tools = computer.run(f"grep VmRSS /proc/{computer.listener(6060)}/status").split()[1]
        print(f"{name} idles with {used} MiB; its tool server with {int(tools) >> 10} MiB")
        assert 10 < used < most_mb
        assert int(tools) >> 10 < 100


@pytest.mark.parametrize("user", ["root", "user"])
def test_entrypoint__prints_names_but_no_values(computer, user):
    computer.settle(envs={"ANTHROPIC_API_KEY": "secret-1"})
    told = computer.run("/opt/sandbox/entrypoint.sh id -un", user=user, GITHUB_TOKEN="secret-2")
    assert told.splitlines()[-1] == "user"
    assert "secret" not in told
    assert computer.token not in told
    assert re.search(r"GITHUB_TOKEN +set$", told, re.MULTILINE)
    assert re.search(r"ANTHROPIC_API_KEY +set for agents$", told, re.MULTILINE)
    assert re.search(r"OPENAI_API_KEY +not set$", told, re.MULTILINE)
    assert re.search(r"memory +4096 MiB$", told, re.MULTILINE)
    assert re.search(r"claude +\d+\.\d+", told)
    assert "agent-server: running on port 3000" in told


def test_entrypoint__runs_commands_without_optional_parts(slim_computer):
    slim_computer.run("tmux -L services kill-server; rm -f ~/.bashrc")
    script = (
        "unset HOME GITHUB_TOKEN; /opt/sandbox/entrypoint.sh sh -c 'exit 7'; echo ended with $?"
    )
    assert slim_computer.run(script).endswith("ended with 7\n")
    slim_computer.run(CHECK)


def test_image__configuration_files_are_valid_json(computer):
    for file in (".claude.json", ".gemini/settings.json", ".copilot/mcp-config.json"):
        assert "sandbox" in json.loads(computer.run(f"cat ~/{file}"))["mcpServers"]
