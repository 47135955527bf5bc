"""Runs in a sandbox: exchanges two names as fast as it can."""

import ctypes
import sys

AT_FDCWD, RENAME_EXCHANGE = -100, 2

one, other = (name.encode() for name in sys.argv[1:])
rename = ctypes.CDLL(None).renameat2
while True:
    rename(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)
