from sandbox_engine.records import journal
from sandbox_engine.records.journal import Journal, Level


def messages(directory):
    return [entry.message for entry in Journal(directory).entries()]


def test_journal__full_journal_drops_its_older_half(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_LARGEST", 4096)
    for number in range(200):
        Journal(tmp_path).note(str(number))
    kept = messages(tmp_path)
    assert kept[-1] == "199"
    assert kept == [str(number) for number in range(200 - len(kept), 200)]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 4096


def test_journal__truncated_entry_is_skipped(tmp_path):
    Journal(tmp_path).note("whole")
    with (tmp_path / "journal").open("a") as file:
        file.write('{"at": "2026-\n')
    Journal(tmp_path).note("whole too")
    assert messages(tmp_path) == ["whole", "whole too"]


def test_journal__long_texts_are_cut(tmp_path):
    Journal(tmp_path).note("x" * 10_000, {"command": "y" * 10_000}, level=Level.ERROR)
    (entry,) = Journal(tmp_path).entries()
    assert len(entry.message) == len(entry.fields["command"]) == 2000
    assert entry.message.endswith("…")


def test_journal__missing_directory_is_ignored(tmp_path):
    Journal(tmp_path / "gone").note("nobody hears")
    assert messages(tmp_path / "gone") == []
