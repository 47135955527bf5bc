"""An engine's network that holds links until somebody kills it.

    python -m tests.engine.crashing_network INSTANCE DIRECTORY

Prints three links: two with internet, one without.
"""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from sandbox_engine.network.firewall.policy import CLOSED, OPEN
from tests.engine.host_networks import Workplace


async def hold(place: Workplace) -> None:
    async with place.network(pool_size=3) as network:
        links = [await network.acquire(policy) for policy in (OPEN, OPEN, CLOSED)]
        print(json.dumps([asdict(link) for link in links]), flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold(Workplace(sys.argv[1], Path(sys.argv[2]))))
