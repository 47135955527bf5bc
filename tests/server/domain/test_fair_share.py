from collections import Counter
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.domain.fair_share import Allocation, QueuedSandbox, TenantShare, allocate
from tests.server.domain.lives import NOON, SECOND

TENANTS = ("a", "b", "c")
BACKENDS = ("x", "y")


def waiting(id_, tenant_id="a", *, priority=0, after=timedelta(), at=("x",), keeps_slot=False):
    return QueuedSandbox(
        id=id_,
        tenant_id=tenant_id,
        priority=priority,
        queued_at=NOON + after,
        backends=at,
        keeps_slot=keeps_slot,
    )


def order(*line, free=None, slots=None, left=None):
    """Give the ids of who gets a place, in order."""
    shares = {
        tenant: TenantShare(slots=(slots or {}).get(tenant, 0), left=(left or {}).get(tenant, 100))
        for tenant in TENANTS
    }
    turns = allocate(line, free={"x": 0, "y": 0} | (free or {"x": 100}), shares=shares)
    return [turn.id for turn in turns]


def test_fair_share__the_oldest_is_next():
    assert order(waiting("1", after=SECOND), waiting("2")) == ["2", "1"]


def test_fair_share__priority_comes_before_age_and_share():
    line = [waiting("1", "a"), waiting("2", "b", priority=1, after=SECOND)]
    assert order(*line, slots={"b": 9}) == ["2", "1"]


def test_fair_share__of_equal_priority_the_tenant_with_the_fewest_slots_is_next():
    line = [waiting("1", "a"), waiting("2", "b", after=SECOND)]
    assert order(*line, slots={"a": 1}) == ["2", "1"]


def test_fair_share__an_admission_counts_for_the_next():
    crowd = [waiting(str(number), "a", after=number * SECOND) for number in range(4)]
    late = [waiting("late", "b", after=10 * SECOND), waiting("later", "b", after=11 * SECOND)]
    assert order(*crowd, *late) == ["0", "late", "1", "later", "2", "3"]


def test_fair_share__admits_no_more_than_free_slots():
    assert order(*(waiting(str(number)) for number in range(5)), free={"x": 2}) == ["0", "1"]


def test_fair_share__a_tenant_at_its_quota_does_not_block_others():
    line = [waiting("1", "a"), waiting("2", "a"), waiting("3", "b", after=SECOND)]
    assert order(*line, left={"a": 1}) == ["1", "3"]


def test_fair_share__a_full_backend_does_not_block_others():
    line = [waiting("1", at=("x",)), waiting("2", at=("y",), after=SECOND)]
    assert order(*line, free={"y": 1}) == ["2"]


def test_fair_share__a_later_candidate_is_used_when_the_first_is_full():
    line = [waiting("1", at=("x", "y")), waiting("2", at=("x", "y"), after=SECOND)]
    shares = {"a": TenantShare(slots=0, left=9)}
    assert allocate(line, free={"x": 1, "y": 5}, shares=shares) == [
        Allocation("1", "x"),
        Allocation("2", "y"),
    ]


def test_fair_share__a_resume_in_a_kept_slot_needs_none():
    line = [waiting("1"), waiting("2", keeps_slot=True, after=SECOND)]
    assert order(*line, free={"x": 0}) == ["2"]
    assert order(*line, free={"x": 0}, left={"a": 0}) == []


@st.composite
def lines(draw):
    line = []
    for number in range(draw(st.integers(0, 12))):
        keeps_slot = draw(st.booleans())
        at = draw(st.permutations(BACKENDS))[: 1 if keeps_slot else draw(st.integers(1, 2))]
        line.append(
            waiting(
                f"{number:02}",
                draw(st.sampled_from(TENANTS)),
                priority=draw(st.integers(0, 2)),
                after=draw(st.integers(0, 3)) * SECOND,
                at=tuple(at),
                keeps_slot=keeps_slot,
            )
        )
    return line


def few(keys):
    return st.fixed_dictionaries({key: st.integers(-1, 5) for key in keys})


@given(lines(), few(BACKENDS), few(TENANTS), few(TENANTS))
def test_fair_share__each_admission_is_the_best_possible_in_any_queue(line, free, slots, left):
    shares = {tenant: TenantShare(slots=slots[tenant], left=left[tenant]) for tenant in TENANTS}

    turns = allocate(line, free=free, shares=shares)

    assert turns == list(one_by_one(line, Counter(free), Counter(slots), Counter(left)))


def one_by_one(line, free, slots, left):
    def place(one):
        return next((at for at in one.backends if one.keeps_slot or free[at] > 0), None)

    while able := [one for one in line if left[one.tenant_id] > 0 and place(one)]:
        one = min(able, key=lambda x: (-x.priority, slots[x.tenant_id], x.queued_at, x.id))
        yield Allocation(one.id, place(one))
        free[place(one)] -= not one.keeps_slot
        slots[one.tenant_id] += not one.keeps_slot
        left[one.tenant_id] -= 1
        line = [other for other in line if other is not one]
