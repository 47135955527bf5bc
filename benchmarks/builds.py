from secrets import token_hex

from e2b import AsyncTemplate

from benchmarks.engine import IMAGES, Engine
from benchmarks.report import Figure
from benchmarks.timing import timed

_STEPS = 10
_ROUNDS = 5


async def rebuild(engine: Engine) -> Figure:
    """Time a fully cached build with the SDK, and check that it creates no layer."""
    template = AsyncTemplate().from_base_image()
    for number in range(_STEPS):
        template = template.run_cmd(f"echo {token_hex(8)} > ~/{number}")
    await engine.client.AsyncTemplate.build(template, "bench")
    before = _layers()
    times = [
        (await timed(engine.client.AsyncTemplate.build(template, "bench")))[0]
        for _ in range(_ROUNDS)
    ]
    if _layers() != before:
        raise RuntimeError("a cached build touched the layers")
    return Figure(f"rebuild of {_STEPS} cached steps, worst", max(times), "ms", target=1000)


def _layers() -> dict[str, int]:
    return {layer.name: layer.stat().st_ctime_ns for layer in (IMAGES / "layers").iterdir()}
