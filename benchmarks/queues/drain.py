from collections.abc import Awaitable, Callable

AT_ONCE = 256

# Enqueues this many jobs that do nothing, and returns the milliseconds until all are done.
Drain = Callable[[int], Awaitable[float]]
