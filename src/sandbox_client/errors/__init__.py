"""What can go wrong, as callers catch it.

SandboxError
  ConfigurationError   nobody says where the server is, or with which key to ask it
  Unreachable          it does not answer; `was_sent`: what was asked may have happened
  WaitTimeout          what was waited for has not come true in time; also a TimeoutError
  CommandFailed        a command that was to be checked did not exit with 0
  StreamBroken         what was sent to a terminal may not have arrived
  ApiError             the server has answered with a problem: `code`, `title`, `detail`, `remediation`, …
    UnexpectedAnswer   it was no answer of a sandbox server
    one for each `code` that the server knows, in its families:
    InvalidRequest  NotFound  Conflict  AccessDenied  LimitReached  BackendError  RequestFault

A code that this client does not know is an ApiError with that code.
"""

from sandbox_client.errors.base import *  # noqa: F403 - all of both is public
from sandbox_client.errors.by_code import *  # noqa: F403
