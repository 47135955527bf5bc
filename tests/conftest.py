import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests import run_services as services
from tests.collection import cannot_run, starts_processes

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")

_NEEDS_ENGINE = "needs_engine"
_EMULATED_GITHUB = "make_forge_world"
_FAILURES = "TEST_FAILURES_FILE"
_lacking: list[str] = []


@cache
def _tls_context(_certificates, *args, **options):
    return _create_tls_context(*args, **options)


def _cached_tls_context(*args, **options):
    """Load the machine's certificates once, not for each client: that takes 20 ms of a processor."""
    certificates = tuple(os.environ.get(name) for name in _CERTIFICATES)
    return _tls_context(certificates, *args, **options)


_create_tls_context = httpx.create_ssl_context
httpx._transports.default.create_ssl_context = _cached_tls_context  # type: ignore[attr-defined]


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes, so it is run by `make proofs` alone")
    config.addinivalue_line("markers", "image: builds the templates, for `make image-proofs` alone")
    config.addinivalue_line("markers", "containers: builds our images, for `make image-test` alone")
    config.addinivalue_line("markers", f"{_NEEDS_ENGINE}: starts the engine, so needs root")
    config.addinivalue_line(
        "markers", "process: starts servers or browsers, too slow for `make check`"
    )
    given = getattr(config, "workerinput", {}).get("run_services")
    services.current = services.Controller() if given is None else services.Run(Path(given))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    assert services.current is not None
    node.workerinput["run_services"] = str(services.current.directory)


def pytest_unconfigure():
    if isinstance(services.current, services.Controller):
        services.current.close()


@pytest.fixture(scope="session")
def run_services():
    """Find what the workers of this run share."""
    return services.current


def pytest_ignore_collect(collection_path, config):
    """Leave out, unread by Python, the files none of whose tests would run."""
    if collection_path.suffix == ".py" and cannot_run(collection_path, config.option.markexpr):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "engine" in item.fixturenames:
            item.add_marker(_NEEDS_ENGINE)
        if starts_processes(item.path) or _EMULATED_GITHUB in item.fixturenames:
            item.add_marker("process")
    needing = [item for item in items if item.get_closest_marker(_NEEDS_ENGINE)]
    if not needing:
        return
    # The others run first: the engine starts meanwhile, and may have to build its base image.
    paths = {item.path for item in needing}
    items.sort(key=lambda item: item.path in paths)
    _lacking.extend(_find_lacking())
    reason = f"the engine lacks: {', '.join(_lacking)}"
    if _lacking and os.environ.get("REQUIRE_ENGINE") == "1":
        raise pytest.UsageError(f"REQUIRE_ENGINE=1, and {reason}")
    for item in needing if _lacking else ():
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session):
    """Start the run's engine, in one of its workers, before a test asks for it."""
    if os.environ.get("PYTEST_XDIST_WORKER") != "gw0" or _lacking:
        return
    if any(item.get_closest_marker(_NEEDS_ENGINE) for item in session.items):
        Thread(target=_start_engine, daemon=True).start()


def _start_engine():
    assert services.current is not None
    with suppress(RuntimeError):  # the first test that asks for it fails with the reason
        services.current.service("engine")


def _find_lacking():
    if sys.platform != "linux":
        return ["Linux"]
    # Imported where it is needed: the tests that need no engine run on other systems too.
    from sandbox_engine.doctor import missing  # noqa: PLC0415
    from sandbox_engine.system.settings import Settings  # noqa: PLC0415

    return [finding.name for finding in missing(Settings())]


def pytest_runtest_logreport(report):
    """Note for scripts/test what has failed."""
    if report.failed and _FAILURES in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ[_FAILURES]).open("a") as file:
            file.write(f"{report.nodeid}\n")


def pytest_terminal_summary(terminalreporter):
    if not _lacking:
        return
    skipped = len(terminalreporter.stats.get("skipped", ()))
    terminalreporter.section("ENGINE TESTS SKIPPED", sep="!", red=True, bold=True)
    terminalreporter.line(f"{skipped} tests did not run. The engine lacks: {', '.join(_lacking)}.")
    terminalreporter.line("`sandbox-engine doctor` says how to get it.")
