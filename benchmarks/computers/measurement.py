"""Code interpreters, desktops and browsers: creates from the warm pool, and what one call costs.

The templates are built on the benchmark's engine: minutes at the first run, less with the layers that `.cache/images` keeps.
`COMPUTERS=code,browser` restricts the run to kinds.
"""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from e2b import AsyncTemplate

from benchmarks.computers.browsers import browsers
from benchmarks.computers.desktops import desktops
from benchmarks.computers.interpreters import interpreters
from benchmarks.engine import Engine, started_engine
from benchmarks.report import Figure, print_not_measured
from benchmarks.server import Server, started_server
from sandbox_server.templates.bundled import BundledTemplate, read_bundled_templates

Part = Callable[[Engine, Server], AsyncIterator[Figure]]

_REPOSITORY = Path(__file__).parents[2]
_PARTS: dict[str, Part] = {
    "code-interpreter-v1": interpreters,
    "desktop": desktops,
    "browser": browsers,
}
_KINDS = {"code": "code-interpreter-v1", "desktop": "desktop", "browser": "browser"}
_READY = "2"
_SLOTS = "8"


async def computers() -> AsyncIterator[Figure]:
    """Measure each kind of computer whose template can be built."""
    wanted = [_KINDS[kind] for kind in os.environ.get("COMPUTERS", ",".join(_KINDS)).split(",")]
    bundled = read_bundled_templates().templates
    for name in set(wanted) - bundled.keys():
        print_not_measured(name, "this version has no such template")
    names = [name for name in wanted if name in bundled]
    flags = ("--ready-sandboxes", _READY, "--ready-templates", ",".join(names))
    async with started_engine(*flags) as engine:
        built = [name for name in names if await _is_built(engine, bundled[name])]
        if not built:
            return
        await engine.wait_ready()
        async with started_server(engine, "--capacity", _SLOTS) as server:
            for name in built:
                async for figure in _PARTS[name](engine, server):
                    yield figure


async def _is_built(engine: Engine, template: BundledTemplate) -> bool:
    """Build a template as this version has it; a failure is printed."""
    definition = template.definition
    assert definition.dockerfile is not None
    assert definition.start_command is not None
    assert definition.ready_command is not None
    builder = AsyncTemplate(file_context_path=_REPOSITORY).from_dockerfile(definition.dockerfile)
    try:
        await AsyncTemplate.build(
            builder.set_start_cmd(definition.start_command, definition.ready_command),
            template.name,
            cpu_count=definition.cpu_count or 2,
            memory_mb=definition.memory_mb or 1024,
            api_key=engine.api_key,
            api_url=engine.url,
        )
    except Exception as error:  # noqa: BLE001 - the others are measured nevertheless
        print_not_measured(template.name, f"its build failed: {error}")
        return False
    return True
