import pytest

from sandbox_engine.doctor import missing
from sandbox_engine.system.settings import Settings

_LACKING = [finding.name for finding in missing(Settings())]
_NEEDS_ENGINE = "needs_engine"


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes, so it is run by `make proofs` alone")
    config.addinivalue_line("markers", "image: builds the templates, for `make image-proofs` alone")
    config.addinivalue_line("markers", "containers: builds our images, for `make image-test` alone")
    config.addinivalue_line("markers", f"{_NEEDS_ENGINE}: starts the engine, so needs root")


def pytest_collection_modifyitems(items):
    for item in items:
        if _LACKING and item.get_closest_marker(_NEEDS_ENGINE):
            item.add_marker(pytest.mark.skip(reason=f"the engine lacks: {', '.join(_LACKING)}"))


def pytest_terminal_summary(terminalreporter):
    if not _LACKING:
        return
    skipped = len(terminalreporter.stats.get("skipped", ()))
    terminalreporter.section("ENGINE TESTS SKIPPED", sep="!", red=True, bold=True)
    terminalreporter.line(f"{skipped} tests did not run. The engine lacks: {', '.join(_LACKING)}.")
    terminalreporter.line("`sandbox-engine doctor` says how to get it.")
