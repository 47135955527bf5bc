import contextlib
import os
from ipaddress import IPv4Network

import pytest

from sandbox_engine.network.kernel.interfaces import LOOPBACK, Route
from sandbox_engine.network.subnets import claim
from sandbox_engine.system.errors import CannotRun

ETHERNET = 2


@pytest.fixture
def pool():
    """Four ranges that no other test takes."""
    return IPv4Network((f"10.{os.getpid() % 120}.0.0", 16))


@pytest.fixture
def taken(pool, tmp_path):
    """Give what takes a range for an engine of some name; all are given back in the end."""
    with contextlib.ExitStack() as stack:

        def take(engine, *, routes=(), in_use=False):
            memory = tmp_path / engine
            subnet = claim(pool, memory=memory, routes=routes, in_use=in_use)
            release = stack.enter_context(contextlib.ExitStack())
            release.callback(subnet.release)
            return subnet, release.close

        yield take


def to(network, device=ETHERNET):
    return Route(to=IPv4Network(network), device=device, metric=0)


def test_subnet__engines_have_different_ranges(taken, pool):
    networks = {taken(name)[0].network for name in "abcd"}
    assert networks == set(pool.subnets(new_prefix=18))
    with pytest.raises(CannotRun, match="Choose another subnet pool"):
        taken("e")


def test_subnet__engine_keeps_its_range(taken):
    taken("other")
    subnet, release = taken("engine")
    release()
    assert taken("engine")[0].network == subnet.network


def test_subnet__routed_range_is_avoided(taken, pool):
    first, second, *_ = pool.subnets(new_prefix=18)
    assert taken("engine", routes=[to(f"{first[77]}/32")])[0].network == second


def test_subnet__broad_private_route_is_accepted(taken, pool):
    first, second, *_ = pool.subnets(new_prefix=18)
    routes = [to("0.0.0.0/0"), to("10.0.0.0/8"), to(first)]
    assert taken("engine", routes=routes)[0].network == second


def test_subnet__later_route_moves_only_an_idle_engine(taken):
    subnet, release = taken("engine")
    release()
    routes = [to(subnet.network)]
    kept, release = taken("engine", routes=routes, in_use=True)
    assert kept.network == subnet.network
    release()
    assert taken("engine", routes=routes)[0].network != subnet.network


def test_subnet__gateway_left_by_a_crash_blocks_only_others(taken):
    subnet, release = taken("engine")
    release()
    routes = [to(f"{subnet.gateway}/32", LOOPBACK)]
    assert taken("other", routes=routes)[0].network != subnet.network
    assert taken("engine", routes=routes)[0].network == subnet.network


def test_subnet__forgotten_range_starts_over(taken, pool):
    other, release_other = taken("other")
    _, release = taken("engine")
    release_other()
    release()
    subnet, release = taken("engine")
    release()
    subnet.forget()
    assert taken("engine")[0].network == other.network
