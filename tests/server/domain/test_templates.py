import json

import pytest

from sandbox_server.domain.templates import Definition, Size, Step, StepKind, TemplateReference


def test_definition__is_read_as_it_was_written():
    made_of = Definition(
        from_image="debian:12",
        steps=[Step(StepKind.RUN, "true"), Step(StepKind.USER, "root")],
        envs={"A": "1"},
        memory_mb=512,
    )
    assert Definition.read(json.loads(json.dumps(made_of.document()))) == made_of


def test_definition__variables_are_not_in_its_representation():
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
def test_resources__more_than_available_are_missing(has, asked, lacks):
    assert has.lacks(asked) is lacks


ID = "0mb2k8w1x4q7zk20fq3a"


UUID = "5b1c2f3e-6d0a-4d3c-9c0e-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("base", ("base", None, None)),
        ("Base:V2", ("base", None, "v2")),
        ("Team/base:v2.1", ("base", "team", "v2.1")),
        (ID.upper(), (ID, None, None)),
    ],
)
def test_template_reference__is_read_in_lower_case(text, read):
    reference = TemplateReference.parse(text)
    assert reference is not None
    assert (reference.name, reference.namespace, reference.tag) == read
    assert str(reference) == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        *("", " base", "base\n", "base:", ":v2", "/base", "a/b/c", "base:a:b", "ba%73e", "./base"),
        *(
            "base\u200b",
            "base\uff1av2",
            "\uff42ase",
            "\u212aubernetes",
            "stra\u00dfe",
            "ba se",
            "base\0",
        ),
    ],
)
def test_template_reference__an_ambiguous_one_is_refused(text):
    assert TemplateReference.parse(text) is None


@pytest.mark.parametrize(
    "name",
    [
        *(ID, ID.upper(), f"{ID}:v2", f"team/{ID}", f"sandbox-server-{ID}", "sandbox-server-x"),
        *(f"{ID}_x", f"x-{ID}", UUID, UUID.replace("-", ""), f"snapshot-{UUID}"),
    ],
)
def test_generated_name__is_recognized(name):
    reference = TemplateReference.parse(name)
    assert reference is not None
    assert reference.is_generated


@pytest.mark.parametrize("name", ["base", ID + "0", "a" + ID, ID[:-1], f"{ID}/base", "agent-full"])
def test_generated_name__a_chosen_name_is_not_mistaken_for_one(name):
    reference = TemplateReference.parse(name)
    assert reference is not None
    assert not reference.is_generated
