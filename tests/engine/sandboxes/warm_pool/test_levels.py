from datetime import timedelta

import pytest

from sandbox_engine.images.image import Image
from sandbox_engine.records.catalog import Template
from sandbox_engine.sandboxes.new_sandbox import NewSandbox, new_record
from sandbox_engine.sandboxes.warm_pool.attempts import StartAttempts
from sandbox_engine.sandboxes.warm_pool.inventory import Demand
from sandbox_engine.sandboxes.warm_pool.levels import PoolLevel, share_out
from sandbox_engine.system.settings import Settings


@pytest.fixture
def level():
    """Make an empty stock of a template whose sandboxes have this much memory."""

    def make(memory_mb):
        template = Template("t", "t", Image(()), memory_mb=memory_mb)
        request = NewSandbox("t", timeout=timedelta(0))
        model = new_record(request, template, settings=Settings())
        return PoolLevel(str(memory_mb), model, StartAttempts(), [])

    return make


def test_warm_pool__total_memory_is_limited(level):
    levels = [level(512), level(2048), level(256)]
    share_out(levels, each=2, memory_mb=3584)
    assert [one.wanted for one in levels] == [2, 1, 2]


def test_warm_pool__failing_kind_takes_no_memory(level):
    failing, other = level(1024), level(1024)
    failing.attempts.fail("no such file")
    share_out([failing, other], each=2, memory_mb=2048)
    assert (failing.wanted, other.wanted) == (0, 2)


def test_warm_pool__configured_templates_precede_recent_ones():
    demand = Demand(["agent", "base"])
    for reference in ("first", "second", "first"):
        demand.note(reference)
    assert list(demand) == ["agent", "base", "first", "second"]
    demand.forget("first")
    assert list(demand) == ["agent", "base", "second"]
    for number in range(100):
        demand.note(f"other-{number}")
    assert "second" not in set(demand)
    assert "base" in set(demand)
