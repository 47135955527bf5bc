"""What can go wrong in the server.

SandboxError
  InvalidRequest              what was asked cannot be carried out as it stands
    ControlNotUnderstood      what a viewer of a terminal sends
  NotFound
    SandboxNotFound  TenantNotFound  KeyNotFound  TemplateNotFound  BackendNotFound  JobNotFound
    PathNotFound              no such file in the sandbox
    SnapshotNotFound  CommandNotFound  TerminalNotFound  AgentRunNotFound
  Conflict
    InvalidTransition         a stopped sandbox cannot be resumed
    SandboxPaused             using it does not wake it
    IdempotencyMismatch       the key stands for another request
    NameTaken
    TooManyTemplates
    KeyIssuedBefore           its secret was told then
    Superseded                another worker went on with the sandbox in the meantime
    PathRefused               there is something else at that path, or it may not be touched
    CommandNotRunning         it has ended, and takes neither input nor signals
    StdinClosed               it was started without, or its input has been ended
    FileBusy                  others have been replacing it all the time
    DirectoryNotEmpty
  AccessDenied
    Unauthenticated           no key, or none that is known
      MetricsRefused          not from this machine, or without the token
    ScopeMissing              the key may not do this
    TicketRefused             the ticket is not for this
    LoginRefused              who is signed in asks by another way than our own page
  LimitReached
    QueueFull
    RateLimited               a key asks too often
    TooManyAtOnce             a tenant does not wait for its answers
    TooManyCommands           a sandbox or a tenant runs as many as it may
    TooManyStreams            a tenant follows more than one server keeps open for it
    TooManyTickets            a tenant makes more than end
  FileChanged               it is not the version that the request is about
  RangeOutside              the file is shorter
  FileTooLarge              too large to be told in one answer
  TooManyEntries            the same of a directory
  TransferStalled           the caller sent nothing for too long
  ArchiveFailed             the sandbox could not pack or unpack it
  DiskFull                  the sandbox's own disk has no room for it
  CommandNotStarted         the sandbox would not start it
  CommandTimedOut           the command was killed when its time was up
  StartFailed                 the provider would not start it
    StartRefused              nor would it later: it cannot be as it was asked for
  ResumeFailed                it is still there, paused
  SandboxFailed               it is gone, and nobody asked for that
  SnapshotFailed              the provider would not copy the sandbox
  ToolsNotRunning             nothing listens where the sandbox's tool server belongs
  AgentsNotRunning            nor where its agent server does
  ToolsRefused                a service does not take the token that it was given, or the sandbox no settings
  PortNotOpen                 nothing in the sandbox listens there
  PortBroken                  what listens there answers no HTTP
  PortSilent                  it does not answer for very long
  NotPassedOn                 the request is one that cannot be passed on faithfully
  NoBackend                   there is none that could have a sandbox
  NotReady                    the caller's wait is over, the sandbox is still on its way
  BackendError
    BackendUnavailable        it does not answer
    BackendBusy               it has no room or wants fewer calls: backpressure
    BackendRefused            it answered, and said no
    and, for the lifecycle to act on, those of providers/protocol/errors.py

Each class has a stable `code`. Its HTTP status and title are in the table `sandbox_client/models/error_codes.py`.
"""

from sandbox_server.domain.errors.access import (
    LoginRefused,
    MetricsRefused,
    ScopeMissing,
    TicketRefused,
    Unauthenticated,
)
from sandbox_server.domain.errors.backends import (
    BackendBusy,
    BackendError,
    BackendRefused,
    BackendUnavailable,
    NoBackend,
)
from sandbox_server.domain.errors.commands import (
    AgentRunNotFound,
    CommandNotFound,
    CommandNotRunning,
    CommandNotStarted,
    ControlNotUnderstood,
    StdinClosed,
    TerminalNotFound,
)
from sandbox_server.domain.errors.conflicts import (
    IdempotencyMismatch,
    InvalidTransition,
    KeyIssuedBefore,
    NameTaken,
    SandboxPaused,
    Superseded,
    TooManyTemplates,
)
from sandbox_server.domain.errors.files import (
    ArchiveFailed,
    DirectoryNotEmpty,
    FileBusy,
    FileChanged,
    RangeOutside,
    TooManyEntries,
    TransferStalled,
)
from sandbox_server.domain.errors.inside import (
    CommandTimedOut,
    DiskFull,
    FileTooLarge,
    PathNotFound,
    PathRefused,
)
from sandbox_server.domain.errors.kinds import (
    AccessDenied,
    Conflict,
    InvalidRequest,
    LimitReached,
    NotFound,
    SandboxError,
)
from sandbox_server.domain.errors.limits import (
    QueueFull,
    RateLimited,
    TooManyAtOnce,
    TooManyCommands,
    TooManyStreams,
    TooManyTickets,
)
from sandbox_server.domain.errors.missing import (
    BackendNotFound,
    JobNotFound,
    KeyNotFound,
    SandboxNotFound,
    SnapshotNotFound,
    TemplateNotFound,
    TenantNotFound,
)
from sandbox_server.domain.errors.passing import (
    NotPassedOn,
    PortBroken,
    PortNotOpen,
    PortSilent,
)
from sandbox_server.domain.errors.sandboxes import (
    NotReady,
    ResumeFailed,
    SandboxFailed,
    SnapshotFailed,
    StartFailed,
    StartRefused,
)
from sandbox_server.domain.errors.tools import AgentsNotRunning, ToolsNotRunning, ToolsRefused

__all__ = [
    "AccessDenied",
    "AgentRunNotFound",
    "AgentsNotRunning",
    "ArchiveFailed",
    "BackendBusy",
    "BackendError",
    "BackendNotFound",
    "BackendRefused",
    "BackendUnavailable",
    "CommandNotFound",
    "CommandNotRunning",
    "CommandNotStarted",
    "CommandTimedOut",
    "Conflict",
    "ControlNotUnderstood",
    "DirectoryNotEmpty",
    "DiskFull",
    "FileBusy",
    "FileChanged",
    "FileTooLarge",
    "IdempotencyMismatch",
    "InvalidRequest",
    "InvalidTransition",
    "JobNotFound",
    "KeyIssuedBefore",
    "KeyNotFound",
    "LimitReached",
    "LoginRefused",
    "MetricsRefused",
    "NameTaken",
    "NoBackend",
    "NotFound",
    "NotPassedOn",
    "NotReady",
    "PathNotFound",
    "PathRefused",
    "PortBroken",
    "PortNotOpen",
    "PortSilent",
    "QueueFull",
    "RangeOutside",
    "RateLimited",
    "ResumeFailed",
    "SandboxError",
    "SandboxFailed",
    "SandboxNotFound",
    "SandboxPaused",
    "ScopeMissing",
    "SnapshotFailed",
    "SnapshotNotFound",
    "StartFailed",
    "StartRefused",
    "StdinClosed",
    "Superseded",
    "TemplateNotFound",
    "TenantNotFound",
    "TerminalNotFound",
    "TicketRefused",
    "TooManyAtOnce",
    "TooManyCommands",
    "TooManyEntries",
    "TooManyStreams",
    "TooManyTemplates",
    "TooManyTickets",
    "ToolsNotRunning",
    "ToolsRefused",
    "TransferStalled",
    "Unauthenticated",
]
