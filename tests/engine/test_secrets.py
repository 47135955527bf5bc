"""Secrets through the unmodified SDK, and what may never be found anywhere: their values."""

import asyncio
import secrets

import httpx
import pytest
from e2b import AsyncSecret, Secret, SecretException, SecretNotFoundException

from tests.engine.process import running_engine

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def name():
    """Name a secret that no other test has."""
    return f"key-{secrets.token_hex(6)}"


async def test_a_secret_is_created_found_updated_and_destroyed(options, name):
    made = await AsyncSecret.create(name, "first", metadata={"for": "tests"}, **options)
    assert (made.name, made.version, made.metadata) == (name, 1, {"for": "tests"})
    assert made.secret_id.startswith("sec_")
    assert await AsyncSecret.get_info(made.secret_id, **options) == made
    updated = await AsyncSecret.update(name, "second", **options)
    assert (updated.secret_id, updated.version) == (made.secret_id, 2)
    assert updated.metadata == {"for": "tests"}
    assert updated.updated_at > made.updated_at
    assert (await AsyncSecret.update(name, "third", metadata={}, **options)).metadata == {}
    assert await AsyncSecret.destroy(made.secret_id, **options)
    assert not await AsyncSecret.exists(name, **options)
    assert not await AsyncSecret.destroy(name, **options)
    with pytest.raises(SecretNotFoundException):
        await AsyncSecret.update(name, "fourth", **options)


async def test_updates_at_once_each_make_a_version_of_their_own(options, name):
    await AsyncSecret.create(name, "value", **options)
    updates = (AsyncSecret.update(name, str(number), **options) for number in range(8))
    assert sorted(one.version for one in await asyncio.gather(*updates)) == list(range(2, 10))


def test_names_are_unique_whatever_their_case(options, name):
    assert Secret.create(name.upper(), "value", **options).name == name
    with pytest.raises(SecretException, match="already exists"):
        Secret.create(name, "value", **options)
    assert Secret.get_info(name.upper(), **options).name == name


@pytest.mark.parametrize("wrong", ["", "a b", "a/b", "é", "sec_mine", "SEC_mine", "x" * 129])
def test_a_name_that_cannot_stand_in_a_placeholder_is_refused(options, wrong):
    with pytest.raises(SecretException, match="400"):
        Secret.create(wrong, "value", **options)


@pytest.mark.parametrize("wrong", ["", "x" * 8193, "é" * 4097])
def test_a_value_of_no_or_too_many_bytes_is_refused(options, name, wrong):
    with pytest.raises(SecretException, match="400"):
        Secret.create(name, wrong, **options)
    assert not Secret.exists(name, **options)


@pytest.mark.parametrize(
    "wrong",
    [
        {str(number): "" for number in range(33)},
        {"k" * 129: ""},
        {"k": "v" * 1025},
        {str(number): "v" * 1024 for number in range(8)},
    ],
)
def test_metadata_is_held_to_its_limits(options, name, wrong):
    with pytest.raises(SecretException, match="400"):
        Secret.create(name, "value", metadata=wrong, **options)


def test_a_list_is_read_page_by_page(options, name):
    made = [Secret.create(f"{name}-{number}", "value", **options).name for number in range(5)]
    pages, found = Secret.list(limit=2, **options), []
    while pages.has_next:
        page = pages.next_items()
        assert len(page) <= 2
        found += [one.name for one in page if one.name.startswith(name)]
    assert found == made
    with pytest.raises(SecretException, match="400: Invalid next token"):
        Secret.list(next_token="!", **options).next_items()


@pytest.fixture(scope="module")
def mortal_engine():
    """Run an engine that tests may kill, with a state directory that is soon searched."""
    with running_engine("--pool-size", "0", "--disk-mb", "64") as engine:
        yield engine


async def test_secrets_are_there_after_the_engine_was_killed(mortal_engine, name):
    made = Secret.create(name, "value", **mortal_engine.options)
    await mortal_engine.restart()
    assert Secret.get_info(name, **mortal_engine.options) == made
    assert Secret.update(name, "other", **mortal_engine.options).version == 2


async def test_a_value_is_in_no_answer_no_log_and_no_file(mortal_engine, name):
    value = f"value-{secrets.token_hex(20)}"
    answers = await _answers_to_all_that_carries(value, name, mortal_engine)
    assert {201, 200, 204, 400, 404, 409} <= {answer.status_code for answer in answers}
    assert not [answer.text for answer in answers if value in answer.text]
    kept = await asyncio.to_thread(_files_with, value.encode(), mortal_engine.state_dir)
    assert kept == []


async def _answers_to_all_that_carries(value, name, engine):
    headers = {"X-API-Key": engine.api_key}
    body = {"name": name, "value": value}
    async with httpx.AsyncClient(base_url=engine.url, headers=headers, timeout=60) as api:
        return [
            await api.post("/secrets", json=body),
            await api.post("/secrets", json=body),
            await api.post("/secrets", json=body | {"name": "not a name"}),
            await api.post("/secrets", json=body | {"metadata": value}),
            await api.post("/secrets", json=body | {"value": value * 200}),
            await api.post("/secrets", json=body | {"value": [value]}),
            await api.post("/secrets", content=f'{{"value": "{value}'),
            await api.post(f"/secrets/{name}", json={"value": value}),
            await api.post("/secrets/missing", json={"value": value}),
            await api.get("/secrets"),
            await api.get(f"/secrets/{name}"),
            await api.delete(f"/secrets/{name}"),
            await api.post("/secrets", json=body),
        ]


def _files_with(content, directory):
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path for path in files if content in path.read_bytes()]
