from sandbox_client.workspace.endpoint.entries import Entry
from sandbox_client.workspace.plan import Direction, make_plan

ONE, TWO, THREE = (Entry("file", content) for content in ("1", "2", "3"))
DIRECTORY = Entry("directory")
BOTH = Direction.BOTH


def paths(changes):
    return [change.path for change in changes]


def test_sync_plan__change_on_one_side_is_copied():
    base = {"ours": ONE, "theirs": ONE, "quiet": ONE}
    plan = make_plan(base, base | {"ours": TWO}, base | {"theirs": TWO, "new": ONE}, BOTH)
    assert paths(plan.push) == ["ours"]
    assert paths(plan.pull) == ["new", "theirs"]
    assert plan.same == ["quiet"]


def test_sync_plan__deletion_on_one_side_is_copied():
    plan = make_plan({"a": ONE, "b": ONE}, {"a": ONE}, {"b": ONE}, BOTH)
    assert [(one.path, one.after) for one in (*plan.push, *plan.pull)] == [("b", None), ("a", None)]


def test_sync_plan__conflict_keeps_both_versions():
    plan = make_plan({"d/a.py": ONE}, {"d/a.py": TWO}, {"d/a.py": THREE}, BOTH)
    assert plan.conflicts == {"d/a.py": "d/a.from-sandbox.py"}
    assert [(one.path, one.source, one.after) for one in plan.pull] == [
        ("d/a.from-sandbox.py", "d/a.py", THREE)
    ]
    assert [(one.path, one.before, one.after) for one in plan.push] == [("d/a.py", THREE, TWO)]


def test_sync_plan__conflict_copy_gets_a_free_name():
    near = {"a": TWO, "a.from-sandbox": ONE}
    far = {"a": THREE, "a.from-sandbox": ONE, "a.from-sandbox-2": ONE}
    plan = make_plan({"a": ONE, "a.from-sandbox": ONE, "a.from-sandbox-2": ONE}, near, far, BOTH)
    assert plan.conflicts == {"a": "a.from-sandbox-3"}


def test_sync_plan__conflict_copy_is_reused_after_a_crash():
    plan = make_plan({"a": ONE}, {"a": TWO, "a.from-sandbox": THREE}, {"a": THREE}, BOTH)
    assert plan.conflicts == {"a": "a.from-sandbox"}
    assert plan.pull == []


def test_sync_plan__changed_file_wins_over_a_deletion():
    base = {"a": ONE, "b": ONE}
    plan = make_plan(base, {"b": TWO}, {"a": TWO}, BOTH)
    assert plan.restored == ["a", "b"]
    assert [(one.path, one.after) for one in plan.pull] == [("a", TWO)]
    assert [(one.path, one.after) for one in plan.push] == [("b", TWO)]


def test_sync_plan__non_empty_directory_is_kept():
    base = {"d": DIRECTORY, "d/a": ONE}
    plan = make_plan(base, {}, {"d": DIRECTORY, "d/a": ONE, "d/new": ONE}, BOTH)
    assert paths(plan.push) == ["d/a"]
    assert paths(plan.pull) == ["d", "d/new"]


def test_sync_plan__other_direction_is_reported_as_pending():
    base = {"a": ONE, "b": ONE}
    near, far = base | {"a": TWO}, base | {"b": TWO}
    pull = make_plan(base, near, far, Direction.PULL)
    assert (paths(pull.pull), pull.push) == (["b"], [])
    assert pull.waiting[Direction.PUSH] == ["a"]
    push = make_plan(base, near, far, Direction.PUSH)
    assert (paths(push.push), push.pull) == (["a"], [])
    assert push.waiting[Direction.PULL] == ["b"]


def test_sync_plan__push_saves_the_version_it_replaces():
    plan = make_plan({"a": ONE}, {"a": TWO}, {"a": THREE}, Direction.PUSH)
    assert paths(plan.pull) == ["a.from-sandbox"]
    assert paths(plan.push) == ["a"]


def test_sync_plan__file_and_directory_conflict_changes_nothing():
    plan = make_plan({}, {"a": ONE}, {"a": DIRECTORY}, BOTH)
    assert plan.type_conflicts == ["a"]
    assert plan.push == plan.pull == []
