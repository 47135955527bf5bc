import asyncio
import hashlib
import json

import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
)
from e2b.envd.process import process_pb as pb

from tests.engine.output_collector import Heard

pytestmark = pytest.mark.needs_engine

LONGEST_ARGUMENT = 128 << 10


async def test_command__result_has_the_output_and_exit_code(shared):
    result = await shared.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert (result.exit_code, result.error) == (0, None)


@pytest.mark.parametrize("code", [1, 2, 42, 126, 127, 255])
async def test_command__failed_command_raises_with_exit_code_and_output(shared, code):
    with pytest.raises(CommandExitException) as caught:
        await shared.commands.run(f"echo out; echo err >&2; exit {code}")
    assert (caught.value.stdout, caught.value.stderr) == ("out\n", "err\n")
    assert (caught.value.exit_code, caught.value.error) == (code, f"exit status {code}")


@pytest.mark.parametrize(
    ("script", "code", "error"),
    [
        ("kill -KILL $$", -1, "signal: killed"),
        ("kill -TERM $$", -1, "signal: terminated"),
        ("kill -SEGV $$", -1, "signal: segmentation fault"),
        ("bash -c 'kill -KILL $$'; exit $?", 137, "exit status 137"),
        ("bash -c 'kill -TERM $$'; exit $?", 143, "exit status 143"),
    ],
)
async def test_command__signal_is_reported(shared, script, code, error):
    with pytest.raises(CommandExitException) as caught:
        await shared.commands.run(script)
    assert (caught.value.exit_code, caught.value.error) == (code, error)


async def test_command__missing_program_fails_like_in_a_shell(shared):
    with pytest.raises(CommandExitException, match="no-such-program: command not found") as caught:
        await shared.commands.run("no-such-program")
    assert caught.value.exit_code == 127


async def test_command__commands_run_in_a_login_shell(shared):
    result = await shared.commands.run("shopt -q login_shell; echo $? $0; echo 'a  b' | { cat; }")
    assert result.stdout == "0 /bin/bash\na  b\n"
    assert (await shared.commands.run("")).stdout == ""


# Output


async def test_command__output_arrives_while_it_runs(sandbox):
    out, err = Heard(), Heard()
    script = "echo first; echo complaint >&2; until [ -e go ]; do sleep 0.01; done; echo second"
    running = asyncio.create_task(sandbox.commands.run(script, on_stdout=out, on_stderr=err))
    await out.wait_for(b"first\n")
    await err.wait_for(b"complaint\n")
    assert out.data == b"first\n"
    await sandbox.files.write("go", "")
    result = await running
    assert out.data.decode() == result.stdout == "first\nsecond\n"
    assert err.data.decode() == result.stderr == "complaint\n"


async def test_command__streams_keep_their_order(shared):
    script = "for i in $(seq 20000); do echo $i; echo e$i >&2; done"
    result = await shared.commands.run(script)
    numbers = [str(number) for number in range(1, 20_001)]
    assert result.stdout.split() == numbers
    assert result.stderr.split() == [f"e{number}" for number in numbers]


async def test_command__concurrent_outputs_do_not_mix(shared):
    async def report(word):
        return (await shared.commands.run(f"for i in $(seq 500); do echo {word}; done")).stdout

    words = [f"word{number}" for number in range(20)]
    assert await asyncio.gather(*map(report, words)) == [f"{word}\n" * 500 for word in words]


async def test_command__multibyte_text_survives_chunking(shared):
    text = "日本語 ñ é 🐍 \u200d עברית\n" * 20_000
    await shared.files.write("/tmp/text", text)
    assert (await shared.commands.run("cat /tmp/text; cat /tmp/text >&2")).stdout == text
    assert (await shared.commands.run("echo '日本語 🐍'")).stdout == "日本語 🐍\n"


async def test_command__binary_output_arrives_unchanged(shared):
    everything = bytes(range(256)) * 4096
    await shared.files.write("/tmp/bytes", everything)
    process = pb.ProcessConfig(cmd="/bin/cat", args=["/tmp/bytes"])
    request = pb.StartRequest(process=process, stdin=False)
    received = b""
    async for answer in shared.commands._rpc.start(request):
        event = answer.event.event
        if event.field == "data":
            received += event.value.output.value
    assert hashlib.sha256(received).digest() == hashlib.sha256(everything).digest()
    replaced = await shared.commands.run(r"printf 'a\xffb'")
    assert replaced.stdout == "a\ufffdb"


async def test_command__outputs_can_be_reopened_by_name(shared):
    for user in ("user", "root"):
        result = await shared.commands.run(
            "echo one > /dev/stdout; echo two | tee /dev/stderr >/dev/null", user=user
        )
        assert (result.stdout, result.stderr) == ("one\n", "two\n")


# Environment


async def test_command__environment_precedence_is_account_sandbox_command(options):
    envs = {"BOTH": "sandbox", "ONE": "sandbox", "EMPTY": "", "ODD": "a=b 'c'\n\"d\" $HOME é"}
    async with await AsyncSandbox.create(timeout=60, envs=envs, **options) as sandbox:
        printing = "import json, os; print(json.dumps(dict(os.environ)))"
        script = f"exec python3 -c '{printing}'"
        environment = await _json(sandbox, script, envs={"BOTH": "command", "HOME": "/tmp"})
        assert environment["BOTH"] == "command"
        assert environment["ONE"] == "sandbox"
        assert environment["EMPTY"] == ""
        assert environment["ODD"] == envs["ODD"]
        assert environment["HOME"] == "/tmp"
        assert environment["USER"] == environment["LOGNAME"] == "user"
        assert environment["E2B_SANDBOX"] == "true"
        assert environment["E2B_SANDBOX_ID"] == sandbox.sandbox_id
        again = await _json(sandbox, script)
        assert (again["BOTH"], again["HOME"]) == ("sandbox", "/home/user")


async def test_command__engine_environment_is_hidden(shared):
    request = pb.StartRequest(process=pb.ProcessConfig(cmd="/usr/bin/env"), stdin=False)
    said = b""
    async for answer in shared.commands._rpc.start(request):
        if answer.event.event.field == "data":
            said += answer.event.event.value.output.value
    names = {line.partition("=")[0] for line in said.decode().splitlines()}
    certificates = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
    ours = {"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"}
    assert names - certificates == {"PATH", "HOME", "USER", "LOGNAME", "LANG"} | ours


async def test_command__two_thousand_variables_are_supported(shared):
    envs = {f"NUMBER_{number}": "x" * 100 for number in range(2000)}
    result = await shared.commands.run("env | grep -c ^NUMBER_", envs=envs)
    assert int(result.stdout) == 2000


# Directory


@pytest.mark.parametrize(
    ("cwd", "user", "expected"),
    [
        (None, None, "/home/user"),
        (None, "root", "/root"),
        ("/usr/lib", None, "/usr/lib"),
        ("projects/one", None, "/home/user/projects/one"),
        ("./projects/../projects", None, "/home/user/projects"),
        ("~/projects", None, "/home/user/projects"),
        ("~", "root", "/root"),
        ("/tmp/a\nb é", None, "/tmp/a\nb é"),
    ],
)
async def test_command__starts_in_its_directory(shared, cwd, user, expected):
    await shared.commands.run("mkdir -p projects/one $'/tmp/a\\nb é'")
    result = await shared.commands.run('pwd; echo "$PWD"', cwd=cwd, user=user)
    assert result.stdout == f"{expected}\n" * 2


@pytest.mark.parametrize(
    ("cwd", "error"),
    [
        ("/no/such/place", "cwd '/no/such/place' does not exist"),
        ("missing", "cwd '/home/user/missing' does not exist"),
        ("/etc/passwd", "not a directory"),
        ("/etc/passwd/x", "error checking cwd"),
        ("/tmp\0", "NUL"),
        ("/" + "x" * 5000, "too long"),
        ("~nobody-here/x", "nobody-here"),
    ],
)
async def test_command__inaccessible_directory_is_an_error(shared, cwd, error):
    with pytest.raises(InvalidArgumentException, match=f"(?i){error}"):
        await shared.commands.run("true", cwd=cwd)


# Users


async def test_command__runs_as_any_account_with_its_groups(sandbox):
    assert (await sandbox.commands.run("id")).stdout == (
        "uid=1000(user) gid=1000(user) groups=1000(user),27(sudo)\n"
    )
    assert (await sandbox.commands.run("id", user="root")).stdout == (
        "uid=0(root) gid=0(root) groups=0(root)\n"
    )
    await sandbox.commands.run(
        "groupadd -g 3000 crew && useradd -m -u 2000 -g 100 -G crew,sudo,video -s /bin/sh ann",
        user="root",
    )
    result = await sandbox.commands.run("id; pwd; echo $HOME $USER; touch mine", user="ann")
    assert result.stdout == (
        "uid=2000(ann) gid=100(users) groups=100(users),27(sudo),44(video),3000(crew)\n"
        "/home/ann\n/home/ann ann\n"
    )
    owner = await sandbox.commands.run("stat -c %U:%G /home/ann/mine", user="root")
    assert owner.stdout == "ann:users\n"


@pytest.mark.parametrize("name", ["nobody-we-know", "1000", "root\0", "root\nuser", "ro ot", "é"])
async def test_command__an_unknown_user_is_an_error(shared, name):
    with pytest.raises(AuthenticationException, match="invalid username"):
        await shared.commands.run("true", user=name)


async def test_command__deleted_account_is_unknown(sandbox):
    await sandbox.commands.run("useradd -m ben", user="root")
    assert (await sandbox.commands.run("id -un", user="ben")).stdout == "ben\n"
    await sandbox.commands.run("userdel ben", user="root")
    with pytest.raises(AuthenticationException, match="invalid username: 'ben'"):
        await sandbox.commands.run("id -un", user="ben")


async def test_command__sudo_works_in_both_directions(shared):
    assert (await shared.commands.run("sudo id -un; sudo -u nobody id -un")).stdout == (
        "root\nnobody\n"
    )
    assert (await shared.commands.run("su user -c 'id -un'", user="root")).stdout == "user\n"
    with pytest.raises(CommandExitException, match="Permission denied"):
        await shared.commands.run("cat /etc/shadow")


# Bad input


async def test_command__command_line_of_100_kb_works(shared):
    word = "x" * (100 << 10)
    assert (await shared.commands.run(f"echo {word}")).stdout == f"{word}\n"


async def test_command__too_long_command_line_is_an_error(shared):
    with pytest.raises(CommandExitException, match="argument list too long"):
        await shared.commands.run(": " + "x" * LONGEST_ARGUMENT)
    assert (await shared.commands.run("echo fine")).stdout == "fine\n"


async def test_command__nul_is_rejected_everywhere(shared):
    for wrong in ({"cmd": "echo a\0b"}, {"cmd": "true", "envs": {"A": "\0"}}):
        with pytest.raises(InvalidArgumentException, match="NUL"):
            await shared.commands.run(**wrong)


@pytest.mark.parametrize("name", ["", "A=B"])
async def test_command__invalid_variable_name_is_rejected(shared, name):
    with pytest.raises(InvalidArgumentException, match="invalid environment variable name"):
        await shared.commands.run("true", envs={name: "value"})


# The synchronous SDK


def test_command__sync_sdk_works_too(shared_sync):
    sandbox = shared_sync
    heard: list[str] = []
    result = sandbox.commands.run("echo out; echo err >&2", on_stdout=heard.append)
    assert (result.stdout, result.stderr, heard) == ("out\n", "err\n", ["out\n"])
    with pytest.raises(CommandExitException):
        sandbox.commands.run("exit 3")

    command = sandbox.commands.run("echo ready; cat", background=True, stdin=True)
    for stdout, _, _ in command:
        if stdout == "ready\n":
            assert command.pid in [one.pid for one in sandbox.commands.list()]
            command.send_stdin("last words\n")
            command.close_stdin()
    assert command.wait().stdout == "ready\nlast words\n"

    endless = sandbox.commands.run("sleep 600", background=True)
    assert endless.kill()
    with pytest.raises(CommandExitException) as caught:
        endless.wait()
    assert caught.value.error == "signal: killed"
    assert not sandbox.commands.kill(endless.pid)


async def _json(sandbox, script, **options):
    return json.loads((await sandbox.commands.run(script, **options)).stdout)
