"""Fetches by the real git client."""

import asyncio

import pytest

from tests.server.git.work_trees import git


async def run(client, *args, **options):
    """Run git beside the event loop, in which the server works."""
    return await asyncio.to_thread(client.git, *args, **options)


@pytest.mark.parametrize("version", ["0", "1", "2"])
async def test_clone__every_protocol_version(place, seeded, git_in, version):
    sandbox = await place.plain_sandbox()
    client = git_in()
    await run(client, "-c", f"protocol.version={version}", "clone", place.remote(sandbox), ".")
    assert client.git("rev-parse", "origin/main") == seeded.git("rev-parse", "main")
    assert client.git("tag") == "v1"
    assert client.git("branch", "-r").split() == (
        ["origin/HEAD", "->", "origin/main", "origin/main", "origin/other"]
    )


async def test_clone__suffix_and_case_do_not_matter(place, git_in):
    sandbox = await place.plain_sandbox()
    for number, address in enumerate(
        ("git.example.org/acme/widgets.git", "git.example.org/Acme/Widgets")
    ):
        await run(git_in(str(number)), "clone", place.remote(sandbox, address=address), ".")


async def test_clone__shallow_then_deepened_and_partial(place, seeded, git_in):
    sandbox = await place.plain_sandbox()
    shallow = git_in("shallow")
    await run(shallow, "clone", "--depth=1", place.remote(sandbox), ".")
    assert shallow.git("rev-list", "--count", "HEAD") == "1"
    await run(shallow, "fetch", "--unshallow")
    assert shallow.git("rev-list", "--count", "HEAD") == "3"
    partial = git_in("partial")
    await run(partial, "clone", "--filter=blob:none", "--no-checkout", place.remote(sandbox), ".")
    missing = partial.git("rev-list", "--objects", "--missing=print", "HEAD")
    assert "?" in missing
    await run(partial, "checkout", "main")
    assert (partial.directory / "README.md").read_text().startswith("# Widgets")


async def test_fetch__what_was_pushed_to_the_forge_meanwhile(place, forge, seeded, git_in):
    sandbox = await place.plain_sandbox()
    client = git_in()
    await run(client, "clone", place.remote(sandbox), ".")
    latest = seeded.commit("feat: later", later__txt="1")
    seeded.push(forge.path("acme/widgets"), "main")
    place.age_mirror()
    await run(client, "fetch")
    assert client.git("rev-parse", "origin/main") == latest


async def test_fetch__a_large_negotiation_is_compressed(place, forge, seeded, git_in):
    """Git compresses requests of more than 1 KiB."""
    sandbox = await place.plain_sandbox()
    client = git_in()
    await run(client, "clone", place.remote(sandbox), ".")
    # Younger than the common commit, which would else be among the first ones that git names.
    client.environment = {"GIT_COMMITTER_DATE": "2040-01-01T00:00:00Z"}
    for number in range(60):
        client.commit(f"feat: {number}", **{f"n{number}": str(number)})
    seeded.commit("feat: later", later__txt="1")
    seeded.push(forge.path("acme/widgets"), "main")
    place.age_mirror()
    client.environment = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1"}
    assert "content-encoding: gzip" in (await run(client, "fetch")).lower()


async def test_fetch__forge_away_serves_what_is_known(place, forge, seeded, git_in):
    sandbox = await place.plain_sandbox()
    await run(git_in("one"), "clone", place.remote(sandbox), ".")
    forge.answer = 503
    client = git_in("two")
    await run(client, "clone", place.remote(sandbox), ".")
    assert client.git("rev-parse", "origin/main") == seeded.git("rev-parse", "main")


async def test_fetch__what_was_overwritten_at_the_forge_is_not_offered(
    place, forge, seeded, git_in
):
    sandbox = await place.plain_sandbox()
    await run(git_in("one"), "clone", place.remote(sandbox), ".")
    seeded.git("checkout", "-q", "--orphan", "fresh")
    seeded.commit("feat: anew")
    seeded.git("branch", "-f", "main", "fresh")
    seeded.push(forge.path("acme/widgets"), "main")
    place.age_mirror()
    listed = await run(git_in("two"), "ls-remote", place.remote(sandbox))
    assert "refs/kept" not in listed
    assert git(forge.path("acme/widgets"), "rev-parse", "main") in listed
