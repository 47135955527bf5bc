import pytest

from sandbox_engine.keeper.client import Keeper
from tests.engine.bare_container import (
    Container,
    scratch_dir,
)


@pytest.fixture
async def container():
    with scratch_dir() as directory:
        container = Container(directory)
        container.make()
        keeper = await Keeper.connect(container.run_dir)
        await container.start(keeper)
        await keeper.close()
        yield container
        container.remove()


@pytest.fixture
async def keeper(container):
    keeper = await Keeper.connect(container.run_dir)
    yield keeper
    await keeper.close()


@pytest.fixture
async def table(container, keeper):
    table = container.table(keeper)
    yield table
    table.abandon("the test is over")
