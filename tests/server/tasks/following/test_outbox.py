from datetime import timedelta

from sqlalchemy import select

from sandbox_server.db.models import ForgeWrite
from sandbox_server.domain.errors import ForgeLimited, ForgePermissionMissing
from sandbox_server.tasks.outbox_repository import Outbox, WriteOwner

MINUTE = timedelta(minutes=1)


def owner_of(followed, **fields):
    plain = {
        "forge_id": followed.forge_id,
        "repository_id": followed.repository_id,
        "task_id": followed.task_id,
    }
    return WriteOwner(**plain | fields)


async def put(followed, body):
    async with followed.sessions.begin() as session:
        await Outbox(session).put_comment(owner_of(followed), key="status", number=5, body=body)


async def reply(followed, thread_id="t1"):
    async with followed.sessions.begin() as session:
        await Outbox(session).add(
            owner_of(followed),
            kind="reply",
            key=thread_id,
            payload={"number": 5, "thread_id": thread_id, "body": "Done."},
        )


async def row(followed):
    async with followed.sessions() as session:
        return (await session.scalars(select(ForgeWrite))).one()


async def test_a_comment_is_edited_in_place(followed):
    for body in ("first", "second", "second"):
        await put(followed, body)
        await followed.write()
    [comment] = followed.forge.comments[5]
    assert comment.body.startswith("second")
    assert [kind for kind, _ in followed.forge.written] == ["comment", "edit"]


async def test_a_comment_whose_answer_was_lost_is_not_written_twice(followed):
    await put(followed, "first")
    followed.forge.answer_lost = True
    assert await followed.write() is not None
    assert await followed.write() is None
    assert len(followed.forge.comments[5]) == 1
    assert (await row(followed)).result["comment_id"] == followed.forge.comments[5][0].id


async def test_a_reply_whose_answer_was_lost_is_not_written_twice(followed):
    await reply(followed)
    followed.forge.answer_lost = True
    assert await followed.write() is not None
    await followed.write()
    assert len(followed.forge.reviews[5]) == 1
    assert (await row(followed)).done_at is not None


async def test_a_marker_that_a_stranger_copied_is_not_taken_for_ours(followed):
    await put(followed, "first")
    followed.forge.answer_lost = True
    await followed.write()
    [ours] = followed.forge.comments[5]
    followed.forge.comments[5].clear()
    followed.forge.add_comment(5, "mallory", ours.body, age=MINUTE)
    await followed.write()
    assert len(followed.forge.comments[5]) == 2
    assert (await row(followed)).result["comment_id"] == followed.forge.comments[5][1].id


async def test_a_refusal_for_good_does_not_block_the_next_write(followed):
    await put(followed, "first")
    followed.forge.refusal = ForgePermissionMissing("github", "issues: write is missing")
    assert await followed.write() is None
    assert "issues: write" in (await row(followed)).error
    followed.forge.refusal = None
    await reply(followed)
    await followed.write()
    assert len(followed.forge.reviews[5]) == 1


async def test_a_limit_postpones_the_write(followed):
    await put(followed, "first")
    followed.forge.refusal = ForgeLimited("github", "Slow down.", retry_after=5 * MINUTE)
    due = await followed.write()
    assert due > (await row(followed)).created_at + 4 * MINUTE
    assert (await row(followed)).done_at is None


async def test_a_comment_that_changes_while_it_is_written_is_written_again(followed):
    await put(followed, "first")
    async with followed.sessions() as session:
        pending = await Outbox(session).find_next(followed.forge_id)
    assert pending is not None
    await put(followed, "second")
    async with followed.sessions.begin() as session:
        await Outbox(session).finish(pending.row, {"comment_id": "c"})
    assert (await row(followed)).done_at is None


async def test_a_comment_of_a_repository_is_edited_in_place_too(followed):
    for body in ("first", "second"):
        async with followed.sessions.begin() as session:
            owner = owner_of(followed, task_id=None)
            await Outbox(session).put_comment(owner, key="status", number=5, body=body)
        await followed.write()
    [comment] = followed.forge.comments[5]
    assert comment.body.startswith("second")
