import argparse
import asyncio
import gc
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from sandbox_tools.interpreter.contexts import Contexts
from sandbox_tools.interpreter.idle import stop_idle
from sandbox_tools.interpreter.languages import Languages
from sandbox_tools.interpreter.process import SERVER_VARIABLE
from sandbox_tools.interpreter.routes import make_app
from sandbox_tools.toolkit.process_tree import kill_processes_with

_SHUTDOWN_SECONDS = 1
_KEEPALIVE_SECONDS = 600
_IDLE_MINUTES = 60.0
_DEFAULTS = ("python", "javascript")


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="sandbox-tools serve-code")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - the sandbox's ports are private
    parser.add_argument("--port", type=int, default=49999)
    parser.add_argument("--python", default="python3", help="Python with ipykernel, for contexts")
    parser.add_argument(
        "--home", type=Path, default=Path.home(), help="default directory of contexts"
    )
    parser.add_argument(
        "--directory", type=Path, default=None, help="directory for sockets of kernels"
    )
    parser.add_argument("--most-contexts", type=int, default=Contexts.most)
    parser.add_argument(
        "--idle-minutes",
        type=float,
        default=_IDLE_MINUTES,
        help="stop contexts of other languages than Python that were not used for so long; 0: never",
    )
    parser.add_argument("--envs-url", default=Contexts.envs_url)
    parser.add_argument("--title", help="text that process lists show besides the command")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    directory = options.directory or Path(tempfile.mkdtemp(prefix="jupyter-server-"))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    contexts = Contexts(
        Languages(options.python),
        directory,
        options.home,
        most=options.most_contexts,
        envs_url=options.envs_url,
    )
    uvicorn.run(
        _with_defaults(make_app(contexts), contexts, idle_minutes=options.idle_minutes),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEPALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    return 0


def _with_defaults(app: Starlette, contexts: Contexts, *, idle_minutes: float) -> Starlette:
    """Start the default contexts before the server listens: it is ready when they are."""

    @asynccontextmanager
    async def serving(_: Starlette) -> AsyncIterator[None]:
        # A server that was killed has left what its contexts had started.
        await kill_processes_with(SERVER_VARIABLE, str(contexts.directory))
        for left in contexts.directory.glob("kernel-*"):
            left.unlink(missing_ok=True)
        os.environ[SERVER_VARIABLE] = str(contexts.directory)
        known = contexts.languages.known()
        for language in _DEFAULTS:
            if language in known:
                context = await contexts.get_default(language)
                await context.warm_up()
        gc.collect()
        gc.freeze()
        async with _stopping_idle(contexts, idle_minutes):
            yield
        await contexts.close()

    app.router.lifespan_context = serving
    return app


@asynccontextmanager
async def _stopping_idle(contexts: Contexts, minutes: float) -> AsyncIterator[None]:
    if not minutes:
        yield
        return
    stopping = asyncio.create_task(stop_idle(contexts, minutes=minutes))
    try:
        yield
    finally:
        stopping.cancel()
