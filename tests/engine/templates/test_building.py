"""What the SDK's builder can say, each as a build and a sandbox of what was built."""

import asyncio
import traceback

import pytest
from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    BuildException,
    LogEntry,
    SandboxException,
    Template,
    wait_for_process,
)

from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def context(tmp_path):
    """Lay out files as they lie beside somebody's template."""
    (tmp_path / "src/nested").mkdir(parents=True)
    for path, text in {
        "app.py": "print('app')",
        "notes.txt": "notes",
        "src/one.py": "1",
        "src/two.py": "2",
        "src/nested/deep.py": "3",
        "src/skipped.log": "no",
        ".dockerignore": "**/*.log\n",
    }.items():
        (tmp_path / path).write_text(text)
    (tmp_path / "link").symlink_to("notes.txt")
    (tmp_path / "app.py").chmod(0o755)
    return tmp_path


async def run_in(template, options, command, **how):
    async with await AsyncSandbox.create(template, timeout=120, **options) as sandbox:
        return (await sandbox.commands.run(command, **how)).stdout.strip()


async def test_template_build__steps_build_on_each_other(options, name):
    template = (
        AsyncTemplate()
        .from_base_image()
        .set_envs({"GREETING": "hello"})
        .run_cmd('echo "$GREETING $(id -un)" > /home/user/said')
        .set_workdir("/srv/app")
        .set_user("root")
        .run_cmd(["pwd > where", "id -un > who"])
        .run_cmd("rm /home/user/.bashrc", user="user")
        .set_user("user")
    )
    await AsyncTemplate.build(template, name, **options)
    said = await run_in(
        name,
        options,
        "pwd; id -un; echo $GREETING; cat /home/user/said where who; ls -a /home/user",
    )
    lines = said.splitlines()
    assert lines[:6] == ["/srv/app", "user", "hello", "hello user", "/srv/app", "root"]
    assert ".bashrc" not in lines[6:]
    assert ".profile" in lines[6:]


async def test_template_build__copied_files_follow_the_options(context, options, name):
    template = (
        AsyncTemplate(file_context_path=context)
        .from_base_image()
        .copy("app.py", "/home/user/")
        .copy("notes.txt", "/opt/renamed.txt", user="root", mode=0o600)
        .copy("src", "/opt/src")
        .copy("src/*.py", "/opt/globbed/")
        .copy(["app.py", "notes.txt"], "/opt/many/")
        .copy("link", "/opt/kept/")
        .copy("link", "/opt/followed/", resolve_symlinks=True)
    )
    await AsyncTemplate.build(template, name, **options)
    listing = await run_in(
        name,
        options,
        "cd /opt && find renamed.txt src globbed many kept followed ! -type d "
        "-printf '%p %y %M %u:%g\\n' | sort; stat -c '%n %A %U' /home/user/app.py; "
        "readlink kept/link; cat renamed.txt followed/link",
        user="root",
    )
    assert listing.splitlines() == [
        "followed/link f -rw-r--r-- user:user",
        "globbed/one.py f -rw-r--r-- user:user",
        "globbed/two.py f -rw-r--r-- user:user",
        "kept/link l lrwxrwxrwx user:user",
        "many/app.py f -rwxr-xr-x user:user",
        "many/notes.txt f -rw-r--r-- user:user",
        "renamed.txt f -rw------- root:root",
        "src/nested/deep.py f -rw-r--r-- user:user",
        "src/one.py f -rw-r--r-- user:user",
        "src/two.py f -rw-r--r-- user:user",
        "/home/user/app.py -rwxr-xr-x user",
        "notes.txt",
        "notesnotes",
    ]


def test_template_build__dockerfile_is_built(context, engine, name):
    (context / "Dockerfile").write_text(
        "FROM e2bdev/base\n"
        "ARG VERSION=3\n"
        "ENV FULL=v$VERSION\n"
        "WORKDIR /srv\n"
        "COPY --chmod=0640 app.py notes.txt ./\n"
        "RUN echo $FULL > version \\\n && ls > listing\n"
        "USER user\n"
        "CMD sleep infinity\n"
    )
    template = Template(file_context_path=context).from_dockerfile(str(context / "Dockerfile"))
    # Without one the SDK has every sandbox wait for 20 seconds.
    Template.build(template.set_ready_cmd(wait_for_process("sleep")), name, **engine.options)
    found = asyncio.run(
        run_in(
            name,
            engine.options,
            "pwd; id -un; echo $FULL; cat version listing; stat -c %a app.py; pgrep -a sleep",
        )
    )
    lines = found.splitlines()
    assert lines[:4] == ["/srv", "user", "v3", "v3"]
    assert lines[4:7] == ["app.py", "listing", "notes.txt"]
    assert lines[8] == "640"
    assert lines[9].endswith("sleep infinity")


async def test_template_build__failing_command_fails_with_its_output(options, name):
    lines: list[LogEntry] = []
    template = AsyncTemplate().from_base_image().run_cmd("echo fine")
    template = template.run_cmd("echo nothing works >&2; exit 7")
    with pytest.raises(BuildException, match="exit status 7") as caught:
        await AsyncTemplate.build(template, name, on_build_logs=lines.append, **options)
    assert "nothing works" in str(caught.value)
    # The SDK's traceback leads to the line here that asked for the failing step.
    said = traceback.extract_tb(caught.value.__traceback__)
    assert any(frame.line and "nothing works" in frame.line for frame in said)
    assert any("[stderr]: nothing works" in line.message for line in lines)
    with pytest.raises(SandboxException, match="tag 'default' does not exist"):
        await AsyncSandbox.create(name, **options)


async def test_template_build__failed_build_keeps_the_template(client, options, name):
    works = AsyncTemplate().from_base_image().run_cmd("echo 1 > ~/version")
    await AsyncTemplate.build(works, name, **options)
    with pytest.raises(BuildException):
        await AsyncTemplate.build(
            AsyncTemplate().from_base_image().run_cmd("echo 2 > ~/version; false"), name, **options
        )
    assert await run_in(name, options, "cat version") == "1"
    detail = (await client.get(f"/templates/{name}")).json()
    assert [build["status"] for build in detail["builds"]] == ["error", "ready"]
    failed = detail["builds"][0]["buildID"]
    with pytest.raises(SandboxException, match=f"tag '{failed}' does not exist"):
        await AsyncSandbox.create(f"{name}:{failed}", **options)


async def test_template_build__template_extends_another(options, name):
    first = AsyncTemplate().from_base_image().set_envs({"A": "1"}).run_cmd("echo one > ~/one")
    await AsyncTemplate.build(first, f"{name}:v1", **options)
    second = AsyncTemplate().from_template(f"{name}:v1").run_cmd("echo two$A > ~/two")
    await AsyncTemplate.build(second, f"{name}-child", **options)
    assert await run_in(f"{name}-child", options, "cat one two; echo $A") == "one\ntwo1\n1"


async def test_template_build__unchanged_build_is_cached(options, name):
    template = AsyncTemplate().from_base_image().run_cmd("cat /proc/sys/kernel/random/uuid > ~/id")
    await AsyncTemplate.build(template, name, **options)
    first = await run_in(name, options, "cat id")
    lines: list[LogEntry] = []
    await AsyncTemplate.build(template, name, on_build_logs=lines.append, **options)
    assert await run_in(name, options, "cat id") == first
    assert any(line.message.startswith("CACHED") for line in lines)
    await AsyncTemplate.build(template, name, skip_cache=True, **options)
    assert await run_in(name, options, "cat id") != first


async def test_template_build__logs_are_streamed(options, name, client):
    template = (
        AsyncTemplate()
        .from_base_image()
        .run_cmd("echo begun; until [ -e /tmp/go ]; do sleep 0.05; done")
    )
    built = await AsyncTemplate.build_in_background(template, name, **options)

    async def begun() -> bool:
        status = await AsyncTemplate.get_build_status(built, **options)
        assert status.status.value == "building"
        return any("[stdout]: begun" in entry.message for entry in status.log_entries)

    await until(begun, timeout=60)
    # Deleting the template ends the build.
    assert (await client.delete(f"/templates/{name}")).status_code == 204
    assert not await AsyncTemplate.exists(name, **options)


async def test_template_build__newer_build_replaces_one_in_progress(options, name):
    waiting = AsyncTemplate().from_base_image().run_cmd("sleep infinity")
    older = await AsyncTemplate.build_in_background(waiting, name, **options)
    await AsyncTemplate.build(
        AsyncTemplate().from_base_image().set_envs({"A": "new"}), name, **options
    )
    status = await AsyncTemplate.get_build_status(older, **options)
    assert status.status.value == "error"
    assert status.reason is not None
    assert "superseded" in status.reason.message
    assert await run_in(name, options, "echo $A") == "new"
