"""Exceptions of the client.

SandboxError
  ConfigurationError   no API key or no valid URL is configured
  Unreachable          the server cannot be reached; `was_sent`: the request may have been carried out
  WaitTimeout          the wait timed out; also a TimeoutError
  CommandFailed        a command run with `check` did not exit with 0
  StreamBroken         the connection to a terminal broke; input may be lost
  ApiError             the server answered with an error: `code`, `title`, `detail`, `remediation`, …
    UnexpectedAnswer   the answer is not from a sandbox server
    one class for each `code` of the server, in families:
    InvalidRequest  NotFound  Conflict  AccessDenied  LimitReached  BackendError  ForgeError
    RequestFault

An unknown code of a newer server is an ApiError with that code.
"""

from sandbox_client.errors.base import *  # noqa: F403 - all of both is public
from sandbox_client.errors.by_code import *  # noqa: F403
