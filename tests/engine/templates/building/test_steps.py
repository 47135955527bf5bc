import pytest
from e2b import Template

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]  # a build is many starts of containers

_TREE = """
set -e
cd /srv
mkdir lower && cd lower && echo kept > kept && echo gone > gone
mkdir -p replaced/old renamed/deep && echo old > replaced/old/file && echo moved > renamed/deep/file
"""
_CHANGES = """
set -e
cd /srv/lower
rm gone
rm -r replaced && mkdir replaced && echo new > replaced/new
mv renamed moved
echo once > first && ln first second
truncate -s 1G sparse && printf end >> sparse
printf x > capable && setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 capable
setfattr -n user.note -v said kept
mkfifo -m 0640 pipe
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('/srv/lower/socket')"
printf x > odd && chown 1234:2345 odd && chmod 4711 odd && touch -d 2001-02-03T04:05:06Z odd
printf x > "$(printf 'bytes\\377')"
echo nameserver 192.0.2.1 > /etc/resolv.conf; rm /etc/hosts; echo x > /run/e2b/.E2B_SANDBOX_ID
"""


@pytest.fixture(scope="module")
def made(builds, first_sandbox):
    template = (
        Template()
        .from_base_image()
        .run_cmd(_TREE, user="root")
        .run_cmd(_CHANGES, user="root")
        .set_envs({"NAME": "value", "PATH": "/opt/tools:$PATH"})
        .set_envs({"TWICE": "$NAME-${NAME}", "NOT": "$(id) `id` ${MISSING:-none}"})
        .run_cmd("env > ~/seen; sleep 1000 & echo $! > ~/left-running")
        .run_cmd("sleep 1000 >/dev/null 2>&1 &")
        .run_cmd("pgrep -cx sleep > ~/sleeping; true")
        .set_workdir("/work/place")
        .set_workdir("deeper")
        .run_cmd("pwd > where; id -un > who")
        .run_cmd("id -un > /root/who", user="root")
        .set_user("builder")
        .run_cmd("id -un > ~/me; pwd > ~/here")
    )
    return first_sandbox(builds.build(template))


@pytest.fixture(scope="module")
def shell(made):
    def run(script):
        return made.commands.run(script, user="root").stdout.strip()

    return run


def test_build_step__files_change_across_steps(shell):
    assert shell("cd /srv/lower; cat kept replaced/new moved/deep/file") == "kept\nnew\nmoved"
    assert shell("cd /srv/lower; ls replaced; ls -d gone renamed 2>&1 | wc -l") == "new\n2"


def test_build_step__file_attributes_are_kept(shell):
    assert shell("cd /srv/lower; stat -c %h first; cat second; [ first -ef second ]") == "2\nonce"
    assert shell("cd /srv/lower; stat -c %s sparse; tail -c 3 sparse") == f"{2**30 + 3}\nend"
    assert int(shell("stat -c %b /srv/lower/sparse")) < 1000
    attributes = shell("getfattr -e hex -m security -d /srv/lower/capable 2>&1")
    assert "security.capability=0x0100000200040000000000000000000000000000" in attributes
    assert shell("getfattr --only-values -n user.note /srv/lower/kept") == "said"
    assert shell("stat -c '%F %a' /srv/lower/pipe") == "fifo 640"
    assert shell("stat -c '%u:%g %a %Y' /srv/lower/odd") == "1234:2345 4711 981173106"
    assert shell(r"cat /srv/lower/$'bytes\377'") == "x"


def test_build_step__sockets_are_dropped(shell):
    assert shell("ls /srv/lower/socket 2>/dev/null; true") == ""


def test_build_step__engine_files_are_excluded(made, shell):
    assert shell("cat /run/e2b/.E2B_SANDBOX_ID") == made.sandbox_id
    assert "192.0.2.1" not in shell("cat /etc/resolv.conf")
    assert "localhost" in shell("cat /etc/hosts")


def test_build_step__variables_reach_later_steps_without_execution(made, shell):
    for seen in (shell("cat /home/user/seen"), made.commands.run("env").stdout):
        assert "TWICE=value-value" in seen
        assert "NOT=$(id) `id` none" in seen
        assert "\nPATH=/opt/tools:/usr/local/sbin:" in seen


def test_build_step__processes_end_with_their_step(shell):
    pid = shell("cat /home/user/left-running")
    assert shell(f"grep -c sleep /proc/{pid}/comm 2>/dev/null; true") in {"", "0"}
    assert shell("cat /home/user/sleeping") == "0"


def test_build_step__runs_in_the_workdir_as_the_user(shell):
    assert shell("cd /work/place/deeper; cat where who") == "/work/place/deeper\nuser"
    assert shell("stat -c %U /work /work/place/deeper") == "user\nuser"
    assert shell("cat /root/who") == "root"


def test_build_step__missing_user_is_created(made, shell):
    assert shell("cat /home/builder/me /home/builder/here") == "builder\n/work/place/deeper"
    assert made.commands.run("id -un; pwd").stdout == "builder\n/work/place/deeper\n"


def test_build_step__empty_and_relative_paths_are_resolved(made):
    for user in (None, "root"):
        assert made.files.get_info("", user=user).path == "/work/place/deeper"
    assert [entry.name for entry in made.files.list("")] == ["where", "who"]
    assert made.files.get_info("me").path == "/home/builder/me"
