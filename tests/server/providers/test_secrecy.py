import pytest

from sandbox_server.domain.errors import BackendError, BackendRefused
from tests.server.support.fault_proxy import answer_with, cut

pytestmark = pytest.mark.needs_engine

KEY = "e2b_" + "5ec2e7" * 7


@pytest.mark.parametrize("fault", [cut, answer_with(500, f"no such key: {KEY}")])
async def test_secrets__errors_contain_no_api_key(backend_at, proxy, fault):
    backend = backend_at(proxy.url, api_key=KEY)
    proxy.on("GET", fault)
    with pytest.raises(BackendError) as caught:
        await backend.list_all()
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


async def test_secrets__a_wrong_key_is_refused_with_the_providers_message(backend_at):
    with pytest.raises(BackendRefused, match=r"answered 401: \w") as caught:
        await backend_at(api_key=KEY).list_all()
    assert KEY not in str(caught.value)


async def test_secrets__representations_contain_no_tokens_and_variables(backend, new_sandbox):
    wanted = new_sandbox(envs={"PASSWORD": "swordfish"})
    access = await backend.create(wanted)
    assert access.envd_token
    assert access.envd_token not in repr(access)
    assert "swordfish" not in repr(wanted)


async def test_secrets__the_sandboxs_address_never_gets_the_api_key(
    backend_at, engine, proxy, wanted
):
    heads = []

    async def look(exchange):
        heads.append(exchange.head)
        await exchange.relay()

    backend = backend_at(proxy.url)
    access = await backend.create(wanted)
    proxy.on("", look, times=10)
    assert await backend.is_answering(access)
    await backend.handle(access).commands.run("true")
    assert len(heads) >= 2
    assert not [head for head in heads if engine.api_key.encode() in head]
