import time

import pytest
from e2b.sandbox.signature import get_signature

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20
TOKEN = "the-token"


async def get(http, path, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.get("/files", params={"path": path}, headers=headers)


async def test_file_access__secure_sandbox_requires_a_token_or_signature(http, box):
    box.access_token = TOKEN
    box.write("/home/user/file", "text")
    for method, path in (
        ("GET", "/envs"),
        ("GET", "/metrics"),
        ("HEAD", "/files"),
        ("POST", "/files/compose"),
        ("GET", "/nowhere"),
        ("POST", "/filesystem.Filesystem/Stat"),
        ("POST", "/process.Process/List"),
    ):
        for headers in ({}, {"x-access-token": "wrong"}):
            answer = await http.request(method, path, headers=headers)
            assert answer.status_code == 401
            if method != "HEAD":
                assert answer.json()["message"].startswith("unauthorized access")
    assert (await http.get("/health")).status_code == 204
    assert (await http.get("/envs", headers={"x-access-token": TOKEN})).status_code == 200
    assert (await get(http, "file", x_access_token=TOKEN)).text == "text"


def signed(path, operation, user=None, *, token=TOKEN, seconds=None):
    signature = get_signature(path, operation, user, token, seconds)
    params = {"path": path, "signature": signature["signature"]}
    if user is not None:
        params["username"] = user
    if seconds is not None:
        params["signature_expiration"] = str(signature["expiration"])
    return params


@pytest.mark.parametrize("path", ["file", "/home/user/file", "~/file", "./a/../file"])
@pytest.mark.parametrize(("user", "seconds"), [(None, None), ("user", 60)])
async def test_file_access__signed_url_is_valid_for_what_it_signs(http, box, path, user, seconds):
    box.access_token = TOKEN
    box.write("/home/user/file", "text")
    params = signed(path, "read", user, seconds=seconds)
    assert (await http.get("/files", params=params)).text == "text"
    for changed in (
        {"path": "/etc/shadow"},
        {"username": "root"},
        {"signature_expiration": str(int(time.time()) + 600)},
    ):
        answer = await http.get("/files", params=params | changed)
        assert (answer.status_code, answer.json()["message"]) == (401, "invalid signature")
    answer = await http.post("/files", params=params, files={"file": b"x"})
    assert (answer.status_code, answer.json()["message"]) == (401, "invalid signature")


async def test_file_access__signed_upload_works(http, box, home):
    box.access_token = TOKEN
    answer = await http.post("/files", params=signed("new", "write"), files={"file": b"sent"})
    assert answer.status_code == 200
    assert (home / "new").read_bytes() == b"sent"


@pytest.mark.parametrize(
    ("params", "headers", "status", "text"),
    [
        ({}, {}, 401, "missing signature query parameter"),
        ({"signature": "v1_x"}, {}, 401, "invalid signature"),
        ({"signature": "v1_é"}, {}, 401, "invalid signature"),
        (signed("file", "read", token="other"), {}, 401, "invalid signature"),
        (signed("file", "read", seconds=-2), {}, 401, "signature is already expired"),
        (signed("file", "read"), {"x-access-token": "no"}, 401, "present in header but does not"),
        ({"signature": "v1_x", "signature_expiration": "soon"}, {}, 400, "signature_expiration"),
    ],
)
async def test_file_access__invalid_credentials_are_rejected(
    http, box, params, headers, status, text
):
    box.access_token = TOKEN
    box.write("/home/user/file", "text")
    answer = await http.get("/files", params={"path": "file"} | params, headers=headers)
    assert answer.status_code == status
    assert text in answer.json()["message"]


async def test_file_access__open_sandbox_ignores_signatures(http, box):
    box.write("/home/user/file", "text")
    answer = await http.get("/files", params={"path": "file", "signature": "v1_x"})
    assert answer.text == "text"


async def test_file_access__user_header_must_name_a_known_user(http):
    assert (await http.get("/envs", auth=("user", ""))).status_code == 200
    answer = await http.get("/envs", auth=("who", ""))
    assert (answer.status_code, answer.json()) == (
        401,
        {"code": "unauthenticated", "message": "invalid username: 'who'"},
    )
    assert (await http.get("/envs", headers={"authorization": "Bearer x"})).status_code == 200


# The rest of the port


async def test_file_access__other_routes_answer_like_e2b(http):
    assert (await http.get("/envs")).json() == {"E2B_SANDBOX": "true"}
    metrics = (await http.get("/metrics")).json()
    assert metrics["mem_total_mib"] == metrics["mem_total"] // MIB
    assert (await http.get("/nowhere")).status_code == 404
    assert (await http.put("/files")).status_code == 405
    for path in ("/init", "/freeze", "/upgrade"):
        answer = await http.post(path, json={})
        assert (answer.status_code, answer.json()["path"]) == (404, path)


async def test_file_access__cors_allows_any_origin(http, box):
    box.access_token = TOKEN
    answer = await http.options(
        "/filesystem.Filesystem/Stat",
        headers={
            "origin": "http://page.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "x-access-token",
        },
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-headers"] == "x-access-token"
    assert answer.headers["access-control-max-age"] == "7200"
