import json

import pytest

from sandbox_server.domain.templates import Definition, Size, Step, StepKind, ids_in


def test_what_a_template_is_made_of_is_read_as_it_was_written():
    made_of = Definition(
        from_image="debian:12",
        steps=[Step(StepKind.RUN, "true"), Step(StepKind.USER, "root")],
        envs={"A": "1"},
        memory_mb=512,
    )
    assert Definition.read(json.loads(json.dumps(made_of.document()))) == made_of


def test_its_variables_are_not_in_what_a_log_would_show():
    assert "hunter2" not in repr(Definition(from_image="x", envs={"PASSWORD": "hunter2"}))


@pytest.mark.parametrize(
    ("has", "asked", "lacks"),
    [
        (Size(cpu_count=2, memory_mb=512), {"cpu_count": 2, "memory_mb": 512}, False),
        (Size(cpu_count=2, memory_mb=512), {"cpu_count": 3}, True),
        (Size(cpu_count=2, memory_mb=512), {"memory_mb": 513, "cpu_count": None}, True),
        (Size(), {"cpu_count": 99}, False),
        (Size(cpu_count=2), {}, False),
    ],
)
def test_more_than_there_is_is_lacking(has, asked, lacks):
    assert has.lacks(asked) is lacks


ID = "0mb2k8w1x4q7zk20fq3a"


@pytest.mark.parametrize(
    "text", [ID, ID.upper(), f"{ID}:v2", f"team/{ID}", f"sandbox-server-{ID}", f"{ID}_x"]
)
def test_an_id_is_found_wherever_it_stands(text):
    assert ids_in(text) == [ID]


@pytest.mark.parametrize("text", ["base", ID + "0", "a" + ID, ID[:-1]])
def test_what_is_no_id_is_not_taken_for_one(text):
    assert ids_in(text) == []
