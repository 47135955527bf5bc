from collections.abc import Awaitable, Callable

AT_ONCE = 256

# Enqueues so many jobs that do nothing, and gives the milliseconds it takes to carry them out.
Drain = Callable[[int], Awaitable[float]]
