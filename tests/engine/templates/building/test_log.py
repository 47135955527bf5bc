from sandbox_engine.templates.building.log import BuildLog, Level


def test_build_log__survives_a_restart(tmp_path):
    BuildLog(tmp_path / "log").append(Level.INFO, "first\nand its second line", step="1")
    again = BuildLog(tmp_path / "log")
    again.append(Level.ERROR, "second")
    entries = BuildLog(tmp_path / "log").read()
    assert [(one.level, one.message, one.step) for one in entries] == [
        (Level.INFO, "first\nand its second line", "1"),
        (Level.ERROR, "second", None),
    ]
    assert all(one.timestamp.tzinfo is not None for one in entries)


def test_build_log__truncated_entry_is_skipped(tmp_path):
    BuildLog(tmp_path / "log").append(Level.INFO, "whole")
    with (tmp_path / "log").open("ab") as file:
        file.write(b'\n{"timestamp":"2026-')
    log = BuildLog(tmp_path / "log")
    log.append(Level.INFO, "later")
    assert [one.message for one in BuildLog(tmp_path / "log").read()] == ["whole", "later"]


def test_build_log__offset_counts_entries_of_the_level(tmp_path):
    log = BuildLog(tmp_path / "log")
    for level in (Level.DEBUG, Level.INFO, Level.DEBUG, Level.WARN, Level.ERROR):
        log.append(level, level)
    assert [one.level for one in log.read(offset=1, limit=1, level=Level.INFO)] == [Level.WARN]
    assert [one.level for one in log.read(offset=3)] == [Level.WARN, Level.ERROR]


def test_build_log__full_log_accepts_errors_only(tmp_path):
    log = BuildLog(tmp_path / "log", most_entries=3)
    for number in range(10):
        log.append(Level.INFO, f"line {number}")
    log.append(Level.ERROR, "what went wrong")
    reopened = BuildLog(tmp_path / "log", most_entries=3)
    reopened.append(Level.INFO, "line 11")
    for entries in (log.read(), reopened.read()):
        assert [one.message for one in entries][:3] == ["line 0", "line 1", "line 2"]
        assert "full" in entries[3].message
        assert [one.message for one in entries][4:] == ["what went wrong"]


def test_build_log__long_line_is_cut(tmp_path):
    log = BuildLog(tmp_path / "log")
    log.append(Level.INFO, "x" * 1_000_000)
    assert len(log.read()[0].message) < 10_000
    assert (tmp_path / "log").stat().st_size < 10_000


def test_build_log__entries_of_one_step_are_found(tmp_path):
    log = BuildLog(tmp_path / "log")
    log.append(Level.INFO, "a", step="1")
    log.append(Level.INFO, "b", step="10")
    assert [one.message for one in log.of_step("1")] == ["a"]
