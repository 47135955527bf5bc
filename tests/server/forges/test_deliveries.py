"""Webhook deliveries: signatures over the raw body, and what is read of them."""

import hashlib
import hmac
import json
from collections import Counter

import pytest

from sandbox_server.domain.errors import InvalidRequest, SignatureRefused
from sandbox_server.domain.tasks.forges import DeliveryKind
from sandbox_server.forges.forgejo.deliveries import read_delivery as read_forgejo
from sandbox_server.forges.github.deliveries import read_delivery as read_github
from sandbox_server.forges.gitlab.deliveries import read_delivery as read_gitlab
from tests.server.forges.support.github_emulator import PROGRAMS

SECRET = b"the secret of the webhook"
EXAMPLES = PROGRAMS / "@octokit" / "webhooks-examples" / "api.github.com"


def _hmac(body, secret=SECRET):
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def _github(event, body, **headers):
    signed = {"X-Hub-Signature-256": f"sha256={_hmac(body)}", "X-GitHub-Event": event}
    return signed | {"X-GitHub-Delivery": "d-1"} | headers


def _examples():
    index = json.loads((EXAMPLES / "index.json").read_text())
    return [(event["name"], document) for event in index for document in event["examples"]]


@pytest.mark.skipif(not EXAMPLES.exists(), reason="run scripts/test-programs")
def test_deliveries__every_example_of_github_can_be_read():
    examples = _examples()
    assert len(examples) == 329
    kinds: Counter[DeliveryKind] = Counter()
    for event, document in examples:
        body = json.dumps(document).encode()
        delivery = read_github(_github(event, body), body, SECRET)
        assert delivery.body == document
        assert delivery.action
        if "repository" in document:
            assert delivery.repository_id == str(document["repository"]["id"])
        if "sender" in document:
            assert delivery.actor == document["sender"]["login"]
        if delivery.kind is not DeliveryKind.OTHER:
            assert delivery.subject, event
        kinds[delivery.kind] += 1
    assert set(DeliveryKind) == set(kinds)


@pytest.mark.parametrize(
    ("event", "document", "kind", "subject"),
    [
        ("issues", {"issue": {"number": 7}}, DeliveryKind.ISSUE, "7"),
        ("issue_comment", {"issue": {"number": 7}}, DeliveryKind.COMMENT, "7"),
        ("pull_request", {"pull_request": {"number": 8}}, DeliveryKind.PULL, "8"),
        ("pull_request_review", {"pull_request": {"number": 8}}, DeliveryKind.REVIEW, "8"),
        ("check_run", {"check_run": {"head_sha": "abc"}}, DeliveryKind.CHECK, "abc"),
        ("workflow_run", {"workflow_run": {"head_sha": "abc"}}, DeliveryKind.CHECK, "abc"),
        ("status", {"sha": "abc"}, DeliveryKind.CHECK, "abc"),
        ("push", {"ref": "refs/heads/main"}, DeliveryKind.PUSH, "refs/heads/main"),
        ("star", {}, DeliveryKind.OTHER, None),
        ("issues", {"issue": None, "repository": [], "sender": 7}, DeliveryKind.ISSUE, None),
    ],
)
def test_deliveries__github_tells_kind_and_subject(event, document, kind, subject):
    body = json.dumps({"action": "a"} | document).encode()
    delivery = read_github(_github(event, body), body, SECRET)
    assert (delivery.id, delivery.kind, delivery.action, delivery.subject) == (
        "d-1",
        kind,
        "a",
        subject,
    )


def test_deliveries__bots_of_github_are_known_as_such():
    for sender, is_bot in (
        ({"login": "x[bot]", "type": "User"}, True),
        ({"login": "x", "type": "Bot"}, True),
        ({"login": "x", "type": "User"}, False),
    ):
        body = json.dumps({"sender": sender}).encode()
        assert read_github(_github("ping", body), body, SECRET).actor_is_bot is is_bot


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "sha256=",
        "sha256=" + "0" * 64,
        "sha1=" + _hmac(b"{}"),
        "sha256=" + _hmac(b"{} "),
        "sha256=" + _hmac(b"{}", b""),
        "sha256=é",
    ],
)
def test_deliveries__github_is_refused_without_its_signature_of_these_bytes(signature):
    headers = {"X-GitHub-Event": "push", "X-GitHub-Delivery": "1"}
    if signature is not None:
        headers["X-Hub-Signature-256"] = signature
    with pytest.raises(SignatureRefused):
        read_github(headers, b"{}", SECRET)


def test_deliveries__an_empty_secret_accepts_nothing():
    headers = _github("push", b"{}") | {"X-Hub-Signature-256": f"sha256={_hmac(b'{}', b'')}"}
    with pytest.raises(SignatureRefused):
        read_github(headers, b"{}", b"")
    with pytest.raises(SignatureRefused):
        read_gitlab({"X-Gitlab-Token": "", "X-Gitlab-Event-UUID": "1"}, b"{}", b"")


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000])
def test_deliveries__a_signed_body_that_is_no_object_is_refused(body):
    with pytest.raises(InvalidRequest, match="not a JSON object"):
        read_github(_github("push", body), body, SECRET)


def test_deliveries__a_delivery_without_an_id_is_refused():
    headers = _github("push", b"{}")
    del headers["X-GitHub-Delivery"]
    with pytest.raises(InvalidRequest, match="x-github-delivery"):
        read_github(headers, b"{}", SECRET)


PROJECT = {"project": {"id": 5, "path_with_namespace": "acme/widgets"}, "user": {"username": "me"}}


@pytest.mark.parametrize(
    ("document", "kind", "action", "subject"),
    [
        (
            {"object_kind": "issue", "object_attributes": {"iid": 3, "action": "open"}},
            DeliveryKind.ISSUE,
            "open",
            "3",
        ),
        (
            {"object_kind": "merge_request", "object_attributes": {"iid": 4, "action": "merge"}},
            DeliveryKind.PULL,
            "merge",
            "4",
        ),
        (
            {
                "object_kind": "note",
                "object_attributes": {"noteable_type": "MergeRequest", "position": {"new_line": 1}},
                "merge_request": {"iid": 4},
            },
            DeliveryKind.REVIEW_COMMENT,
            "note",
            "4",
        ),
        (
            {
                "object_kind": "note",
                "object_attributes": {"noteable_type": "Issue"},
                "issue": {"iid": 3},
            },
            DeliveryKind.COMMENT,
            "note",
            "3",
        ),
        (
            {"object_kind": "pipeline", "object_attributes": {"sha": "abc", "status": "failed"}},
            DeliveryKind.CHECK,
            "failed",
            "abc",
        ),
        ({"object_kind": "push", "ref": "refs/heads/x"}, DeliveryKind.PUSH, "push", "refs/heads/x"),
        ({"object_kind": "wiki_page"}, DeliveryKind.OTHER, "wiki_page", None),
    ],
)
def test_deliveries__gitlab_tells_kind_and_subject(document, kind, action, subject):
    body = json.dumps(PROJECT | document).encode()
    headers = {
        "X-Gitlab-Token": SECRET.decode(),
        "X-Gitlab-Event-UUID": "event",
        "Idempotency-Key": "delivery",
    }
    delivery = read_gitlab(headers, body, SECRET)
    assert (delivery.kind, delivery.action, delivery.subject) == (kind, action, subject)
    assert (delivery.id, delivery.repository_id, delivery.actor) == ("delivery", "5", "me")


@pytest.mark.parametrize("token", [None, "", "wrong", SECRET.decode() + "x"])
def test_deliveries__gitlab_is_refused_without_the_secret(token):
    headers = {"X-Gitlab-Event-UUID": "1"} | ({} if token is None else {"X-Gitlab-Token": token})
    with pytest.raises(SignatureRefused):
        read_gitlab(headers, b"{}", SECRET)


@pytest.mark.parametrize("name", ["Forgejo", "Gitea"])
def test_deliveries__forgejo_and_gitea_are_verified_and_read(name):
    document = {
        "action": "created",
        "issue": {"number": 3},
        "pull_request": {"number": 3},
        "repository": {"id": 9, "full_name": "acme/widgets"},
        "sender": {"login": "me"},
    }
    body = json.dumps(document).encode()
    headers = {
        f"X-{name}-Signature": _hmac(body),
        f"X-{name}-Delivery": "u-1",
        f"X-{name}-Event": "issue_comment",
        f"X-{name}-Event-Type": "pull_request_comment",
    }
    delivery = read_forgejo(headers, body, SECRET)
    assert (delivery.id, delivery.kind, delivery.subject) == ("u-1", DeliveryKind.COMMENT, "3")
    with pytest.raises(SignatureRefused):
        read_forgejo(headers, body + b" ", SECRET)


async def test_deliveries__the_emulated_github_signs_what_the_server_reads(
    connect, forge_world, inbox
):
    connected = await connect(forge_world)
    forge_world.github.send_webhooks_to(inbox.url)
    number = forge_world.open_issue()
    forge_world.push({"x": "1"}, branch="task-1")
    forge_world.github.settle()
    read = [
        await connected.forges.read_delivery(connected.row.id, headers, body)
        for headers, body in inbox.requests
    ]
    assert len({delivery.id for delivery in read}) == len(read)
    assert (DeliveryKind.ISSUE, str(number)) in {(each.kind, each.subject) for each in read}
    assert (DeliveryKind.PUSH, "refs/heads/task-1") in {(each.kind, each.subject) for each in read}
    assert {each.repository_name for each in read} == {"acme/widgets"}
    headers, body = inbox.requests[0]
    with pytest.raises(SignatureRefused):
        await connected.forges.read_delivery(connected.row.id, headers, body + b" ")
