import json

import pytest

pytestmark = pytest.mark.needs_engine


def test_logs__prints_escaped_lines(sbx, web):
    done = sbx("--json", "exec", web, "printf 'one\\ntwo \\033[2J'")
    lines = sbx("logs", web, "--source", "command").stdout.splitlines()
    label = f"command {json.loads(done.stdout)['id'][-6:]}"
    shown = [line.partition(label)[2].strip() for line in lines if label in line]
    assert shown == ["[started]", "one", "two \\x1b[2J", "[exited with 0]"]
    assert sbx("logs", web, "--source", "command", "-n", "2").stdout.splitlines() == lines[-2:]
    listed = json.loads(sbx("--json", "logs", web, "-n", "2").stdout)
    assert len(listed) == 2


def test_logs__follow_ends_when_stdout_is_closed(start, web):
    with start("--json", "logs", "-f", "-n", "1", web) as process:
        assert json.loads(process.stdout.readline())["sandbox_id"] == web
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_logs__follow_starts_with_the_last_lines(start, sbx, web):
    sbx("exec", web, "--", "seq 1000")
    with start("logs", "-f", "-n", "2", "--source", "command", web) as process:
        assert process.stdout.readline().endswith(b"  1000\n")
        assert process.stdout.readline().endswith(b"[exited with 0]\n")
        sbx("exec", web, "--", "echo more")
        assert process.stdout.readline().endswith(b"[started]\n")
        assert process.stdout.readline().endswith(b"  more\n")
        process.terminate()
        process.stdout.read()


def test_events__of_one_sandbox_or_all(sbx, web):
    of_one = sbx("events", web, "--type", "sandbox.running").stdout
    assert {line.split()[3] for line in of_one.splitlines()} == {"sandbox.running"}
    assert web in of_one
    assert len(json.loads(sbx("--json", "events", "-n", "2").stdout)) == 2
    assert "Traceback" not in sbx("events", web, "--type", "nonsense").stderr


def test_port__prints_a_url_or_a_link(sbx, web, tmp_path):
    assert f"8000-{web}" in sbx("port", web, "8000").stdout
    link = json.loads(sbx("--json", "port", web, "8000", "--link", "90s").stdout)
    assert "ticket=" in link["url"]
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" >opened\n')
    browser.chmod(0o755)
    opened = sbx("open", web, "8000", "--path", "/docs", env={"BROWSER": str(browser)})
    assert (opened.stdout, opened.returncode) == ("", 0)
    assert "/docs?ticket=" in (tmp_path / "opened").read_text()
