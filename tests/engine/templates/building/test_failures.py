import traceback

import pytest

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]  # a build is many starts of containers


def test_a_failing_step_is_told_with_its_command_status_and_output(builds, begin):
    template = begin().run_cmd("true").run_cmd("echo out; echo why >&2; exit 7").run_cmd("true")
    failure = builds.fail(template)
    assert "failed to run command 'echo out; echo why >&2; exit 7': exit status 7" in str(failure)
    assert "why" in str(failure)
    assert "[builder 3/4] [stdout]: out" in builds.said
    assert "[builder 3/4] [stderr]: why" in builds.said
    assert not any(line.startswith("[builder 4/4]") for line in builds.said)


def test_a_failure_points_at_the_line_of_the_step(builds, begin):
    template = begin().run_cmd("true")
    template = template.run_cmd("exit 1")  # this line
    template = template.run_cmd("true")
    lines = traceback.format_exception(builds.fail(template))
    assert any("# this line" in line for line in lines)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda one: one.run_cmd("true", user="nobody-here"), "no user 'nobody-here'"),
        (lambda one: one.set_user("not/a name"), "failed to create user"),
        (lambda one: one.set_workdir("/etc/passwd/below"), "failed to create workdir"),
        (lambda one: one.set_envs({"A=B": "x"}), "invalid environment variable name: 'A=B'"),
        (lambda one: one.run_cmd("kill -9 $$"), "signal: killed"),
        (lambda one: one.set_start_cmd("echo broken; exit 3", "false"), "exit status 3: broken"),
        (lambda one: one.set_start_cmd("/no/such/command", "false"), "exit status 127"),
    ],
)
def test_what_cannot_be_done_is_said(builds, begin, spoil, message):
    assert message in str(builds.fail(spoil(begin())))


def test_a_failed_build_keeps_the_layers_of_what_went_well(builds, begin):
    builds.fail(begin().run_cmd("echo 1 > ~/1").run_cmd("false"))
    builds.build(begin().run_cmd("echo 1 > ~/1").run_cmd("true"))
    assert builds.cached_steps == 1


def test_a_start_commands_output_is_in_the_log(builds, begin):
    failure = builds.fail(begin().set_start_cmd("echo said; echo worse >&2; exit 3", "false"))
    assert "start command" in str(failure)
    assert {"[start] [stdout]: said", "[start] [stderr]: worse"} <= set(builds.said)


def test_of_a_flood_the_log_keeps_the_beginning_and_the_failure_the_end(builds, begin):
    failure = builds.fail(begin().run_cmd("seq 1000000; yes '' | head -c 10M; echo last; exit 1"))
    assert str(failure).endswith("last")
    lines = [line for line in builds.said if "[stdout]: " in line]
    assert lines[0].endswith("[stdout]: 1")
    assert 1_000 < len(lines) < 10_000
    assert any("further output is not logged" in line for line in builds.said)
