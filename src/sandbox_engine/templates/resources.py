import os

from sandbox_engine.system.errors import InvalidRequest
from sandbox_engine.system.settings import Resources

_LEAST_MEMORY_MB = 128


def check_resources(
    defaults: Resources, *, cpu_count: int | None, memory_mb: int | None
) -> tuple[int, int]:
    """Settle the CPUs and the memory of a template, by E2B's rules and what this machine has."""
    if cpu_count is not None:
        _check_cpus(cpu_count)
    if memory_mb is not None:
        _check_memory(memory_mb)
    return cpu_count or defaults.cpu_count, memory_mb or defaults.memory_mb


def _check_cpus(count: int) -> None:
    if count < 1:
        raise InvalidRequest("CPU count must be at least 1")
    if count != 1 and count % 2:
        raise InvalidRequest("CPU count must be 1 or an even number")
    there_are = os.cpu_count() or 1
    if count > there_are:
        raise InvalidRequest(f"CPU count can't be higher than {there_are}: the engine has no more")


def _check_memory(size_mb: int) -> None:
    if size_mb < _LEAST_MEMORY_MB:
        raise InvalidRequest(f"Memory must be at least {_LEAST_MEMORY_MB} MiB")
    if size_mb % 2:
        raise InvalidRequest("Memory must be divisible by 2")
    there_is = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    if size_mb > there_is:
        raise InvalidRequest(
            f"Memory can't be higher than {there_is} MiB: the engine's machine has no more"
        )
