import os
import signal

import pytest

pytestmark = pytest.mark.needs_engine


def test_cp__copies_a_file_to_the_sandbox_and_back(sbx, web, tmp_path):
    content = os.urandom(300_000)
    (tmp_path / "run.sh").write_bytes(content)
    (tmp_path / "run.sh").chmod(0o755)
    assert sbx("cp", "run.sh", f"{web}:/tmp").returncode == 0
    assert sbx("exec", web, "--", "test -x /tmp/run.sh").returncode == 0
    (tmp_path / "back").mkdir()
    assert sbx("cp", f"{web}:/tmp/run.sh", "back").returncode == 0
    assert (tmp_path / "back" / "run.sh").read_bytes() == content


def test_cp__copies_a_directory_with_modes_and_links(sbx, web, tmp_path):
    (tmp_path / "made" / "sub").mkdir(parents=True)
    (tmp_path / "made" / "sub" / "run.sh").write_text("echo hi")
    (tmp_path / "made" / "sub" / "run.sh").chmod(0o755)
    (tmp_path / "made" / "link").symlink_to("sub/run.sh")
    refused = sbx("cp", "made", f"{web}:")
    assert (refused.returncode, "Use -r" in refused.stderr) == (1, True)
    assert sbx("cp", "-r", "made", f"{web}:").returncode == 0
    done = sbx("exec", web, "--", "made/link && ln -s /etc/passwd made/outside && mkfifo made/pipe")
    assert done.stdout == "hi\n"
    back = sbx("cp", "-r", f"{web}:made", "back")
    assert back.returncode == 0
    assert "outside" in back.stderr
    assert (tmp_path / "back" / "link").read_text() == "echo hi"
    assert os.access(tmp_path / "back" / "sub" / "run.sh", os.X_OK)
    assert sorted(each.name for each in (tmp_path / "back").iterdir()) == ["link", "sub"]


def test_cp__dash_means_stdin_or_stdout(sbx, web):
    content = os.urandom(100_000)
    assert sbx("cp", "-", f"{web}:piped", stdin=content).returncode == 0
    assert sbx("cp", f"{web}:piped", "-").stdout == content


@pytest.mark.parametrize(
    ("source", "target", "code", "said"),
    [
        ("{}:missing", "x", 1, "There is no file 'missing'"),
        ("missing", "{}:", 1, "missing: No such file"),
        ("{}:/etc/hostname", "no/where", 1, "no is not a directory"),
        ("{}:a", "{}:b", 2, "SANDBOX:PATH"),
        ("/etc/hostname", "{}:/proc/x", 1, "/proc/x"),
    ],
)
def test_cp__reports_what_cannot_be_copied(sbx, web, source, target, code, said, tmp_path):
    done = sbx("cp", source.format(web), target.format(web))
    assert done.returncode == code
    assert said in done.stderr
    assert not (tmp_path / "x").exists()


def test_cp__interrupted_download_keeps_the_old_file(start, sbx, web, tmp_path):
    sbx("exec", web, "truncate -s 8G /tmp/huge")
    (tmp_path / "huge").write_text("before")
    with start("cp", f"{web}:/tmp/huge", "huge") as process:
        while not [each for each in tmp_path.iterdir() if each.suffix == ".part"]:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "huge").read_text() == "before"
    assert [each.name for each in tmp_path.iterdir() if "part" in each.name] == []


def test_cp__shows_a_progress_bar_for_long_transfers(sit, sbx, web, tmp_path):
    sbx("exec", web, "truncate -s 8G /tmp/huge")
    with sit("cp", f"{web}:/tmp/huge", "huge") as person:
        person.see("% ")
        person.see("of 8.6 GB")
        person.type("\x03")
        assert person.end() == 130
