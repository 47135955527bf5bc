from sandbox_engine.metrics import history
from sandbox_engine.metrics.history import History
from sandbox_engine.sandboxes.sandbox import Usage


def usage(at):
    return Usage(float(at), 2, 12.5, 1 << 30, 1 << 20, 1 << 10, 1 << 33, 1 << 25)


def test_metrics__one_measurement_per_minute_survives(tmp_path):
    first = History(tmp_path)
    for at in range(0, 600, 5):
        first.add(usage(at))
    assert first.all() == [usage(at) for at in range(0, 600, 5)]
    second = History(tmp_path)
    second.add(usage(700))
    assert second.all() == [*(usage(at) for at in range(0, 600, 60)), usage(700)]


def test_metrics__old_measurements_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "_LARGEST_COUNT", 10)
    kept = History(tmp_path)
    for minute in range(100):
        kept.add(usage(60 * minute))
    assert History(tmp_path).all() == [usage(60 * minute) for minute in range(90, 100)]
    assert (tmp_path / "metrics").stat().st_size <= 22 * history._POINT.size


def test_metrics__truncated_measurement_is_overwritten(tmp_path):
    History(tmp_path).add(usage(0))
    with (tmp_path / "metrics").open("ab") as file:
        file.write(b"half of one")
    History(tmp_path).add(usage(60))
    assert History(tmp_path).all() == [usage(0), usage(60)]
