import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close the file descriptor on exit."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
