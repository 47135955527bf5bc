import secrets

import pytest
from e2b import Sandbox, Template

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]  # a build is many starts of containers


def _steps(template, *scripts):
    for script in scripts:
        template = template.run_cmd(script)
    return template


def test_build_cache__second_build_does_nothing(builds, begin):
    plan = (
        _steps(begin(), *(f"echo {number} > ~/{number}" for number in range(3)))
        .set_workdir("/made")
        .set_user("root")
        .run_cmd("true")
        .set_start_cmd("sleep infinity", "test -e /made")
    )
    builds.build(plan)
    assert builds.cached_steps == 0
    with builds.without_sandboxes():
        builds.build(plan)
    assert builds.cached_steps == 6


def test_build_cache__changed_step_keeps_earlier_layers(builds, begin, engine):
    scripts = [f"echo {number} > ~/{number}" for number in range(4)]
    builds.build(_steps(begin(), *scripts))
    scripts[2] = "echo changed > ~/2"
    name = builds.build(_steps(begin(), *scripts))
    assert builds.cached_steps == 2
    with Sandbox.create(name, **engine.options) as sandbox:
        assert sandbox.commands.run("cat ~/0 ~/1 ~/2 ~/3").stdout == "0\n1\nchanged\n3\n"


def test_build_cache__changed_variable_repeats_later_steps(builds, begin):
    builds.build(begin().run_cmd("echo 1 > ~/1").set_envs({"A": "1"}).run_cmd("echo $A > ~/a"))
    again = begin().run_cmd("echo 1 > ~/1").set_envs({"A": "2"}).run_cmd("echo $A > ~/a")
    builds.build(again)
    assert builds.cached_steps == 1


def test_build_cache__skip_cache_repeats_later_steps(builds, begin, engine):
    script = "date +%s%N > ~/when"
    first = builds.build(begin().run_cmd("true").run_cmd(script).run_cmd("true"))
    plan = begin().run_cmd("true").skip_cache().run_cmd(script).run_cmd("true")
    second = builds.build(plan)
    assert builds.cached_steps == 1
    third = builds.build(begin().run_cmd("true").run_cmd(script).run_cmd("true"))
    assert builds.cached_steps == 3
    written = [_read(name, "~/when", engine) for name in (first, second, third)]
    assert written[0] != written[1] == written[2]


def test_build_cache__changed_files_are_copied_again(builds, context, engine):
    mark = secrets.token_hex(8)
    for contents, cached in (("one", 0), ("two", 1)):
        (context / "file").write_text(contents)
        name = builds.build(
            Template(file_context_path=context)
            .from_base_image()
            .run_cmd(f"echo {mark}")
            .copy("file", "/srv/file")
        )
        assert builds.cached_steps == cached
        assert _read(name, "/srv/file", engine) == contents


def test_build_cache__rebuilt_template_invalidates_children(builds, begin):
    parent = builds.build(begin().run_cmd("date +%s%N > ~/when"))
    child = Template().from_template(parent).run_cmd("cat ~/when > ~/seen")
    builds.build(child)
    builds.build(Template().from_template(parent).run_cmd("cat ~/when > ~/seen"))
    assert builds.cached_steps == 1
    builds.build(begin().skip_cache().run_cmd("date +%s%N > ~/when"), parent)
    builds.build(Template().from_template(parent).run_cmd("cat ~/when > ~/seen"))
    assert builds.cached_steps == 0


def _read(name, path, engine):
    with Sandbox.create(name, **engine.options) as sandbox:
        return sandbox.commands.run(f"cat {path}").stdout.strip()


def test_build_cache__template_outlives_its_snapshot(builds, begin, engine):
    name = builds.build(begin().run_cmd("echo template > ~/a; echo template > ~/b"))
    with Sandbox.create(name, envs={"OF": "sandbox"}, **engine.options) as sandbox:
        sandbox.commands.run("echo sandbox > ~/a; rm ~/b; echo $OF > ~/c")
        snapshot = sandbox.create_snapshot()
    built = builds.build(Template().from_template(snapshot.snapshot_id).run_cmd("cat ~/a > ~/d"))
    Sandbox.delete_snapshot(snapshot.snapshot_id, **engine.options)
    with Sandbox.create(built, **engine.options) as sandbox:
        read = sandbox.commands.run("cd; cat a c d; ls; cat /run/e2b/.E2B_SANDBOX_ID")
        assert read.stdout.split() == ["sandbox"] * 3 + ["a", "c", "d", sandbox.sandbox_id]
