"""The emulated GitHub and the git server of the tests agree."""


async def test_forge_world__a_push_is_seen_by_both_sides(forge_world):
    sha = forge_world.push({"a/b/c.txt": "text\n"}, branch="topic", message="Add c\n\nBecause.")
    with forge_world.github.owner as owner:
        ref = owner.get("/repos/acme/widgets/git/ref/heads/topic").raise_for_status().json()
        commit = owner.get(f"/repos/acme/widgets/git/commits/{sha}").raise_for_status().json()
    assert ref["object"]["sha"] == sha == forge_world.head("topic")
    assert commit["message"].startswith("Add c\n\nBecause.")
    assert forge_world.git.read("acme/widgets", "topic", "a/b/c.txt") == "text"
