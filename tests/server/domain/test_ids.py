import re
import subprocess
import sys

from sandbox_server.domain.ids import PATTERN, IdSource, new_id

E2B_IDEMPOTENCY_KEY = re.compile(r"[a-z0-9-]+")
HOST_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def make_ids(count: int) -> list[str]:
    return [new_id() for _ in range(count)]


def test_id__has_20_characters_valid_in_host_names_and_at_e2b():
    for made in make_ids(1000):
        assert re.match(PATTERN, made)
        assert E2B_IDEMPOTENCY_KEY.fullmatch(made)
        assert HOST_LABEL.fullmatch(f"65535-{made}")


def test_id__sorts_by_time():
    made = make_ids(10_000)
    assert made == sorted(set(made))


def test_id__grows_when_the_clock_is_set_back():
    clock = iter([2_000_000_000_000_000_000, 1_000_000_000_000_000_000, 1_000_000_000_000_000_000])
    source = IdSource(clock_ns=lambda: next(clock))
    made = [source() for _ in range(3)]
    assert made == sorted(set(made))


def test_id__differs_between_processes_at_one_instant():
    made = [IdSource(clock_ns=lambda: 1_795_000_000_000_000_000)() for _ in range(10_000)]
    assert len(set(made)) == len(made)
    assert len({each[:11] for each in made}) == 1


def test_id__differs_between_concurrent_processes():
    program = (
        "from sandbox_server.domain.ids import new_id; print(*(new_id() for _ in range(2000)))"
    )
    command = [sys.executable, "-c", program]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    made = [each for process in processes for each in process.communicate()[0].split()]
    assert len(set(made)) == len(made) == 4000


def test_id__of_a_later_year_sorts_after_todays():
    in_a_century = IdSource(clock_ns=lambda: 4_950_000_000_000_000_000)
    assert new_id() < in_a_century()
    assert len(in_a_century()) == 20
