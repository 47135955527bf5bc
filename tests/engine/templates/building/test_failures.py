import traceback

import pytest

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.timeout(300),
]  # a build is many starts of containers


def test_build_failure__failing_step_reports_command_status_and_output(builds, begin):
    template = begin().run_cmd("true").run_cmd("echo out; echo why >&2; exit 7").run_cmd("true")
    failure = builds.fail(template)
    assert "failed to run command 'echo out; echo why >&2; exit 7': exit status 7" in str(failure)
    assert "why" in str(failure)
    assert "[builder 3/4] [stdout]: out" in builds.said
    assert "[builder 3/4] [stderr]: why" in builds.said
    assert not any(line.startswith("[builder 4/4]") for line in builds.said)


def test_build_failure__failure_points_at_the_source_line(builds, begin):
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
def test_build_failure__unsupported_instructions_are_reported(builds, begin, spoil, message):
    assert message in str(builds.fail(spoil(begin())))


def test_build_failure__layers_of_successful_steps_are_kept(builds, begin):
    builds.fail(begin().run_cmd("echo 1 > ~/1").run_cmd("false"))
    builds.build(begin().run_cmd("echo 1 > ~/1").run_cmd("true"))
    assert builds.cached_steps == 1


def test_build_failure__start_command_output_is_logged(builds, begin):
    failure = builds.fail(begin().set_start_cmd("echo said; echo worse >&2; exit 3", "false"))
    assert "start command" in str(failure)
    assert {"[start] [stdout]: said", "[start] [stderr]: worse"} <= set(builds.said)


@pytest.mark.slow  # a long build
def test_build_failure__flooded_log_keeps_the_start(builds, begin):
    failure = builds.fail(begin().run_cmd("seq 1000000; yes '' | head -c 10M; echo last; exit 1"))
    assert str(failure).endswith("last")
    lines = [line for line in builds.said if "[stdout]: " in line]
    assert lines[0].endswith("[stdout]: 1")
    assert 1_000 < len(lines) < 10_000
    assert any("further output is not logged" in line for line in builds.said)
