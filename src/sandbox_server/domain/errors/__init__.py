"""The errors of the server.

SandboxError
  InvalidRequest              the request cannot be carried out as it is
    ControlNotUnderstood      an invalid control message on a terminal's WebSocket
    CodeRefused               the code interpreter does not know the language, for example
    DesktopRefused            the desktop rejects it, as a resolution
    ForgeHostNotAllowed       the operator did not allow requests to this host
  NotFound
    SandboxNotFound  TenantNotFound  KeyNotFound  TemplateNotFound  BackendNotFound  JobNotFound
    PathNotFound              no such file in the sandbox
    SnapshotNotFound  CommandNotFound  TerminalNotFound  AgentRunNotFound  RepositoryNotFound
    CodeExecutionNotFound  CodeResultNotFound  CodeContextNotFound
    ForgeNotFound  CommitNotFound  DeliveryNotFound  TaskNotFound  AttemptNotFound  SaveNotFound
    PullNotFound  BrowserSessionNotFound  BrowserPathNotFound  BrowserProjectNotFound  BrowserbasePathNotFound
    BrowserContextNotFound  BrowserExtensionNotFound  BrowserRecordingNotFound
    DesktopLinkNotFound  DesktopRecordingNotFound
  Conflict
    InvalidTransition         for example: resume a deleted sandbox
    BrowserSessionEnded       nobody can connect to it any more
    BrowserContextInUse       another session writes to it
    SandboxPaused             requests do not resume it
    IdempotencyMismatch       the key was used for another request
    NameTaken
    TooManyTemplates
    RepositoryInUse           it has open tasks
    TaskExists                the issue has an open task
    InvalidStage              the task cannot do this where it is
    KeyIssuedBefore           its secret was returned then
    Superseded                another worker has changed the sandbox meanwhile
    PathRefused               something else exists at that path, or permissions are missing
    InterpreterMissing        nothing listens on the code interpreter's port
    CommandNotRunning         no input, no signals
    StdinClosed               started without stdin, or closed since
    FileBusy                  other requests kept replacing it
    DirectoryNotEmpty
    ForgeInUse                it has repositories
    CheckoutRefused           the directory is not empty
    DesktopNotRunning         the sandbox has no desktop, or none that answers
    DesktopControlled         a person has control, so agents' actions are refused
    DesktopNotStreamed        streaming of the desktop is off
  AccessDenied
    Unauthenticated           missing or invalid key
      MetricsRefused          not from this machine, or without the token
    ScopeMissing              the key may not do this
    TicketRefused             the ticket is for something else
    LoginRefused              the login cookie was sent by something other than our own page
    SignatureRefused          a webhook delivery that is not signed with the forge's secret
  LimitReached
    QueueFull
    RateLimited               requests per second of a key
    TooManyAtOnce             concurrent requests of a tenant
    TooManyCommands           running commands of a sandbox or a tenant
    InterpreterBusy           contexts or waiting executions of a sandbox
    TooManyStreams            open streams of a tenant at one server
    TooManyTickets            valid tickets of a tenant
  FileChanged                 If-Match names another version
  RangeOutside                the file is shorter
  FileTooLarge                too large for one answer
  TooManyEntries              a directory too large for one answer
  TransferStalled             the caller sent nothing for too long
  ArchiveFailed               the sandbox could not pack or unpack it
  BrowserNotPrepared          its proxies, extension or context
  FeatureUnavailable          a part of an emulated API that this server does not have
  DiskFull                    the sandbox's disk
  CommandNotStarted           the sandbox refused to start it
  CommandTimedOut             killed after its timeout
  StartFailed                 the provider did not start the sandbox
    StartRefused              and never will, as it was requested
  ResumeFailed                the sandbox stays paused
  SandboxFailed               it was lost, or never started
  SnapshotFailed              the provider did not copy the sandbox
  ToolsNotRunning             nothing listens on the tool server's port
  AgentsNotRunning            nothing listens on the agent server's port
  BrowserNotRunning           nothing listens on the browser's port
  ToolsRefused                a service rejects its token, or the sandbox rejects the settings file
  PortNotOpen                 nothing listens on the port
  PortBroken                  what listens there does not speak HTTP
  PortSilent                  no answer for very long
  NotPassedOn                 the proxy cannot forward this request unchanged
  NoBackend                   none is configured
  NotReady                    the wait is over, the sandbox does not run yet
  ForgeError                  a request to GitHub, GitLab, … failed
    ForgeUnavailable          no answer, or a failure of the forge
    ForgeLimited              a rate limit: Retry-After says how long
    ForgeCredentialRefused    revoked, expired or wrong
    ForgePermissionMissing    the credential lacks a permission, which is named
    ForgeResourceNotFound     missing, or hidden from the credential
    ForgeRefused              rejected as it is
      PullExists              the branch has an open pull request
    NotSupportedByForge
  GitError                    git on the server failed
    GitTimedOut
    RemoteUnreachable         the git server did not answer
    RemoteRefused             the credential or the repository is not accepted
  GitUnavailable              the server has no git
  RepositoryTooLarge          for the mirrors of this server
  CheckoutFailed              the repository was not checked out in the sandbox
  SaveFailed                  the work was not taken out of the sandbox
  SaveTooLarge
  BundleRefused               damaged, or not a git bundle
  BackendError
    BackendUnavailable        no answer
    BackendBusy               no capacity, or rate limited: backpressure
    BackendRefused            the provider answered, and refused
    and, for the lifecycle, those of providers/protocol/errors.py

Each class has a stable `code`. Its HTTP status and title are in the table `sandbox_client/models/error_codes.py`.
"""

from sandbox_server.domain.errors.access import (
    AccessDenied,
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
    CodeContextNotFound,
    CodeExecutionNotFound,
    CodeRefused,
    CodeResultNotFound,
    CommandNotFound,
    CommandNotRunning,
    CommandNotStarted,
    ControlNotUnderstood,
    InterpreterBusy,
    StdinClosed,
    TerminalNotFound,
)
from sandbox_server.domain.errors.conflicts import (
    BrowserContextInUse,
    BrowserSessionEnded,
    IdempotencyMismatch,
    InvalidStage,
    InvalidTransition,
    KeyIssuedBefore,
    NameTaken,
    RepositoryInUse,
    SandboxPaused,
    Superseded,
    TaskExists,
    TooManyTemplates,
)
from sandbox_server.domain.errors.desktops import (
    DesktopControlled,
    DesktopLinkNotFound,
    DesktopNotRunning,
    DesktopNotStreamed,
    DesktopRecordingNotFound,
    DesktopRefused,
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
from sandbox_server.domain.errors.forges import (
    ForgeCredentialRefused,
    ForgeError,
    ForgeHostNotAllowed,
    ForgeInUse,
    ForgeLimited,
    ForgeNotFound,
    ForgePermissionMissing,
    ForgeRefused,
    ForgeResourceNotFound,
    ForgeUnavailable,
    NotSupportedByForge,
    PullExists,
    SignatureRefused,
)
from sandbox_server.domain.errors.git import (
    BundleRefused,
    CheckoutFailed,
    CheckoutRefused,
    CommitNotFound,
    GitError,
    GitTimedOut,
    GitUnavailable,
    RemoteRefused,
    RemoteUnreachable,
    RepositoryTooLarge,
    SaveFailed,
    SaveTooLarge,
)
from sandbox_server.domain.errors.inside import (
    BrowserNotPrepared,
    CommandTimedOut,
    DiskFull,
    FileTooLarge,
    PathNotFound,
    PathRefused,
)
from sandbox_server.domain.errors.kinds import (
    Conflict,
    FeatureUnavailable,
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
from sandbox_server.domain.errors.not_found import (
    AttemptNotFound,
    BackendNotFound,
    BrowserbasePathNotFound,
    BrowserContextNotFound,
    BrowserExtensionNotFound,
    BrowserProjectNotFound,
    BrowserRecordingNotFound,
    BrowserSessionNotFound,
    DeliveryNotFound,
    JobNotFound,
    KeyNotFound,
    PullNotFound,
    RepositoryNotFound,
    SandboxNotFound,
    SaveNotFound,
    SnapshotNotFound,
    TaskNotFound,
    TemplateNotFound,
    TenantNotFound,
)
from sandbox_server.domain.errors.ports import (
    AgentsNotRunning,
    BrowserNotRunning,
    BrowserPathNotFound,
    InterpreterMissing,
    InterpreterUnreachable,
    NotPassedOn,
    PortBroken,
    PortNotOpen,
    PortSilent,
    ToolsNotRunning,
    ToolsRefused,
)
from sandbox_server.domain.errors.sandboxes import (
    NotReady,
    ResumeFailed,
    SandboxFailed,
    SnapshotFailed,
    StartFailed,
    StartRefused,
)

__all__ = [
    "AccessDenied",
    "AgentRunNotFound",
    "AgentsNotRunning",
    "ArchiveFailed",
    "AttemptNotFound",
    "BackendBusy",
    "BackendError",
    "BackendNotFound",
    "BackendRefused",
    "BackendUnavailable",
    "BrowserContextInUse",
    "BrowserContextNotFound",
    "BrowserExtensionNotFound",
    "BrowserNotPrepared",
    "BrowserNotRunning",
    "BrowserPathNotFound",
    "BrowserProjectNotFound",
    "BrowserRecordingNotFound",
    "BrowserSessionEnded",
    "BrowserSessionNotFound",
    "BrowserbasePathNotFound",
    "BundleRefused",
    "CheckoutFailed",
    "CheckoutRefused",
    "CodeContextNotFound",
    "CodeExecutionNotFound",
    "CodeRefused",
    "CodeResultNotFound",
    "CommandNotFound",
    "CommandNotRunning",
    "CommandNotStarted",
    "CommandTimedOut",
    "CommitNotFound",
    "Conflict",
    "ControlNotUnderstood",
    "DeliveryNotFound",
    "DesktopControlled",
    "DesktopLinkNotFound",
    "DesktopNotRunning",
    "DesktopNotStreamed",
    "DesktopRecordingNotFound",
    "DesktopRefused",
    "DirectoryNotEmpty",
    "DiskFull",
    "FeatureUnavailable",
    "FileBusy",
    "FileChanged",
    "FileTooLarge",
    "ForgeCredentialRefused",
    "ForgeError",
    "ForgeHostNotAllowed",
    "ForgeInUse",
    "ForgeLimited",
    "ForgeNotFound",
    "ForgePermissionMissing",
    "ForgeRefused",
    "ForgeResourceNotFound",
    "ForgeUnavailable",
    "GitError",
    "GitTimedOut",
    "GitUnavailable",
    "IdempotencyMismatch",
    "InterpreterBusy",
    "InterpreterMissing",
    "InterpreterUnreachable",
    "InvalidRequest",
    "InvalidStage",
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
    "NotSupportedByForge",
    "PathNotFound",
    "PathRefused",
    "PortBroken",
    "PortNotOpen",
    "PortSilent",
    "PullExists",
    "PullNotFound",
    "QueueFull",
    "RangeOutside",
    "RateLimited",
    "RemoteRefused",
    "RemoteUnreachable",
    "RepositoryInUse",
    "RepositoryNotFound",
    "RepositoryTooLarge",
    "ResumeFailed",
    "SandboxError",
    "SandboxFailed",
    "SandboxNotFound",
    "SandboxPaused",
    "SaveFailed",
    "SaveNotFound",
    "SaveTooLarge",
    "ScopeMissing",
    "SignatureRefused",
    "SnapshotFailed",
    "SnapshotNotFound",
    "StartFailed",
    "StartRefused",
    "StdinClosed",
    "Superseded",
    "TaskExists",
    "TaskNotFound",
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
