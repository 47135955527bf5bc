"""The wire contract of the API, written once: what callers send and what the server answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox_client.models.access import AgentTypeDefaults as AgentTypeDefaults
    from sandbox_client.models.access import BrowserValues as BrowserValues
    from sandbox_client.models.access import Configuration as Configuration
    from sandbox_client.models.access import DesktopValues as DesktopValues
    from sandbox_client.models.access import KeyCreate as KeyCreate
    from sandbox_client.models.access import KeyCreated as KeyCreated
    from sandbox_client.models.access import KeyRead as KeyRead
    from sandbox_client.models.access import KeyScope as KeyScope
    from sandbox_client.models.access import KeyUpdate as KeyUpdate
    from sandbox_client.models.access import LoginRead as LoginRead
    from sandbox_client.models.access import RuleMatch as RuleMatch
    from sandbox_client.models.access import SandboxDefaults as SandboxDefaults
    from sandbox_client.models.access import TemplateDefaults as TemplateDefaults
    from sandbox_client.models.access import TenantDefaults as TenantDefaults
    from sandbox_client.models.access import TenantName as TenantName
    from sandbox_client.models.access import TenantRead as TenantRead
    from sandbox_client.models.access import TenantRule as TenantRule
    from sandbox_client.models.access import TenantWrite as TenantWrite
    from sandbox_client.models.access import TicketCreate as TicketCreate
    from sandbox_client.models.access import TicketCreated as TicketCreated
    from sandbox_client.models.access import TicketScope as TicketScope
    from sandbox_client.models.agent_runs import Afterwards as Afterwards
    from sandbox_client.models.agent_runs import AgentName as AgentName
    from sandbox_client.models.agent_runs import AgentResult as AgentResult
    from sandbox_client.models.agent_runs import AgentRunCreate as AgentRunCreate
    from sandbox_client.models.agent_runs import AgentRunOutcome as AgentRunOutcome
    from sandbox_client.models.agent_runs import AgentRunRead as AgentRunRead
    from sandbox_client.models.agent_runs import AgentRunState as AgentRunState
    from sandbox_client.models.agent_runs import PermissionMode as PermissionMode
    from sandbox_client.models.browsers import BrowserCreate as BrowserCreate
    from sandbox_client.models.browsers import BrowserLogEntry as BrowserLogEntry
    from sandbox_client.models.browsers import BrowserLogKind as BrowserLogKind
    from sandbox_client.models.browsers import BrowserRead as BrowserRead
    from sandbox_client.models.browsers import BrowserRecordingRead as BrowserRecordingRead
    from sandbox_client.models.browsers import BrowserState as BrowserState
    from sandbox_client.models.code import CodeContext as CodeContext
    from sandbox_client.models.code import CodeContextCreate as CodeContextCreate
    from sandbox_client.models.code import CodeContexts as CodeContexts
    from sandbox_client.models.code import CodeCreate as CodeCreate
    from sandbox_client.models.code import CodeError as CodeError
    from sandbox_client.models.code import CodeExecutionRead as CodeExecutionRead
    from sandbox_client.models.code import CodeExecutionState as CodeExecutionState
    from sandbox_client.models.code import CodeOutcome as CodeOutcome
    from sandbox_client.models.code import CodeResult as CodeResult
    from sandbox_client.models.commands import CommandCreate as CommandCreate
    from sandbox_client.models.commands import CommandInput as CommandInput
    from sandbox_client.models.commands import CommandOutcome as CommandOutcome
    from sandbox_client.models.commands import CommandRead as CommandRead
    from sandbox_client.models.commands import CommandSend as CommandSend
    from sandbox_client.models.commands import CommandSignal as CommandSignal
    from sandbox_client.models.commands import CommandState as CommandState
    from sandbox_client.models.commands import OutputCut as OutputCut
    from sandbox_client.models.commands import OutputGap as OutputGap
    from sandbox_client.models.commands import OutputPart as OutputPart
    from sandbox_client.models.commands import OutputPiece as OutputPiece
    from sandbox_client.models.desktops import DesktopAction as DesktopAction
    from sandbox_client.models.desktops import DesktopActionName as DesktopActionName
    from sandbox_client.models.desktops import DesktopActionResult as DesktopActionResult
    from sandbox_client.models.desktops import DesktopControlRead as DesktopControlRead
    from sandbox_client.models.desktops import DesktopControlUpdate as DesktopControlUpdate
    from sandbox_client.models.desktops import DesktopHolder as DesktopHolder
    from sandbox_client.models.desktops import DesktopLinkCreate as DesktopLinkCreate
    from sandbox_client.models.desktops import DesktopLinkCreated as DesktopLinkCreated
    from sandbox_client.models.desktops import DesktopLinkRead as DesktopLinkRead
    from sandbox_client.models.desktops import DesktopMode as DesktopMode
    from sandbox_client.models.desktops import DesktopOptions as DesktopOptions
    from sandbox_client.models.desktops import DesktopRead as DesktopRead
    from sandbox_client.models.desktops import DesktopRecordingOptions as DesktopRecordingOptions
    from sandbox_client.models.desktops import DesktopRecordingRead as DesktopRecordingRead
    from sandbox_client.models.desktops import DesktopRecordingState as DesktopRecordingState
    from sandbox_client.models.desktops import DesktopResolution as DesktopResolution
    from sandbox_client.models.desktops import DesktopUpdate as DesktopUpdate
    from sandbox_client.models.error_codes import ERROR_CODES as ERROR_CODES
    from sandbox_client.models.error_codes import ErrorCode as ErrorCode
    from sandbox_client.models.error_codes import InputProblem as InputProblem
    from sandbox_client.models.error_codes import Problem as Problem
    from sandbox_client.models.files import ArchiveFormat as ArchiveFormat
    from sandbox_client.models.files import DirectoryCreate as DirectoryCreate
    from sandbox_client.models.files import DirectoryPath as DirectoryPath
    from sandbox_client.models.files import FileMove as FileMove
    from sandbox_client.models.files import FilePath as FilePath
    from sandbox_client.models.files import FileRead as FileRead
    from sandbox_client.models.files import FileType as FileType
    from sandbox_client.models.files import FileUser as FileUser
    from sandbox_client.models.forges import DeliveryRead as DeliveryRead
    from sandbox_client.models.forges import DeliveryReceipt as DeliveryReceipt
    from sandbox_client.models.forges import ForgeAuth as ForgeAuth
    from sandbox_client.models.forges import ForgeCheck as ForgeCheck
    from sandbox_client.models.forges import ForgeCheckRead as ForgeCheckRead
    from sandbox_client.models.forges import ForgeInstallationRead as ForgeInstallationRead
    from sandbox_client.models.forges import ForgeKind as ForgeKind
    from sandbox_client.models.forges import ForgeLimitRead as ForgeLimitRead
    from sandbox_client.models.forges import ForgeName as ForgeName
    from sandbox_client.models.forges import ForgeRead as ForgeRead
    from sandbox_client.models.forges import ForgeWrite as ForgeWrite
    from sandbox_client.models.forges import MissingPermissionRead as MissingPermissionRead
    from sandbox_client.models.operations import BackendRead as BackendRead
    from sandbox_client.models.operations import BackendReadiness as BackendReadiness
    from sandbox_client.models.operations import BackendStats as BackendStats
    from sandbox_client.models.operations import BackendUpdate as BackendUpdate
    from sandbox_client.models.operations import EventActor as EventActor
    from sandbox_client.models.operations import EventRead as EventRead
    from sandbox_client.models.operations import Health as Health
    from sandbox_client.models.operations import JobRead as JobRead
    from sandbox_client.models.operations import JobState as JobState
    from sandbox_client.models.operations import LogEvent as LogEvent
    from sandbox_client.models.operations import LogGap as LogGap
    from sandbox_client.models.operations import LogRecord as LogRecord
    from sandbox_client.models.operations import QueueStats as QueueStats
    from sandbox_client.models.operations import Readiness as Readiness
    from sandbox_client.models.operations import Stats as Stats
    from sandbox_client.models.operations import TenantStats as TenantStats
    from sandbox_client.models.operations import TimelineEntry as TimelineEntry
    from sandbox_client.models.operations import Version as Version
    from sandbox_client.models.ports import BrowserLinkCreate as BrowserLinkCreate
    from sandbox_client.models.ports import BrowserLinkRead as BrowserLinkRead
    from sandbox_client.models.ports import LinkCreate as LinkCreate
    from sandbox_client.models.ports import LinkCreated as LinkCreated
    from sandbox_client.models.ports import PortUrls as PortUrls
    from sandbox_client.models.repositories import CiFixMode as CiFixMode
    from sandbox_client.models.repositories import CommitStyle as CommitStyle
    from sandbox_client.models.repositories import FullName as FullName
    from sandbox_client.models.repositories import RepositoryCreate as RepositoryCreate
    from sandbox_client.models.repositories import RepositoryRead as RepositoryRead
    from sandbox_client.models.repositories import RepositorySettings as RepositorySettings
    from sandbox_client.models.repositories import RepositorySettingsRead as RepositorySettingsRead
    from sandbox_client.models.repositories import RepositoryUpdate as RepositoryUpdate
    from sandbox_client.models.repositories import Triggers as Triggers
    from sandbox_client.models.repositories import TriggersRead as TriggersRead
    from sandbox_client.models.sandboxes import AutoResume as AutoResume
    from sandbox_client.models.sandboxes import CheckoutState as CheckoutState
    from sandbox_client.models.sandboxes import KeepAlive as KeepAlive
    from sandbox_client.models.sandboxes import Network as Network
    from sandbox_client.models.sandboxes import OnTimeout as OnTimeout
    from sandbox_client.models.sandboxes import QueuePlace as QueuePlace
    from sandbox_client.models.sandboxes import Resources as Resources
    from sandbox_client.models.sandboxes import SandboxCheckout as SandboxCheckout
    from sandbox_client.models.sandboxes import SandboxCreate as SandboxCreate
    from sandbox_client.models.sandboxes import SandboxRead as SandboxRead
    from sandbox_client.models.sandboxes import SandboxRepository as SandboxRepository
    from sandbox_client.models.sandboxes import SandboxState as SandboxState
    from sandbox_client.models.sandboxes import SandboxTarget as SandboxTarget
    from sandbox_client.models.sandboxes import SandboxUpdate as SandboxUpdate
    from sandbox_client.models.sandboxes import SessionSandbox as SessionSandbox
    from sandbox_client.models.sandboxes import Timeout as Timeout
    from sandbox_client.models.sandboxes import Urls as Urls
    from sandbox_client.models.services import McpServerRead as McpServerRead
    from sandbox_client.models.services import ServicesRead as ServicesRead
    from sandbox_client.models.services import ServiceState as ServiceState
    from sandbox_client.models.services import ToolServerRead as ToolServerRead
    from sandbox_client.models.snapshots import MetricRead as MetricRead
    from sandbox_client.models.snapshots import SandboxFork as SandboxFork
    from sandbox_client.models.snapshots import SnapshotCreate as SnapshotCreate
    from sandbox_client.models.snapshots import SnapshotRead as SnapshotRead
    from sandbox_client.models.snapshots import SnapshotState as SnapshotState
    from sandbox_client.models.tasks import TaskApprove as TaskApprove
    from sandbox_client.models.tasks import TaskAttemptCreate as TaskAttemptCreate
    from sandbox_client.models.tasks import TaskAttemptRead as TaskAttemptRead
    from sandbox_client.models.tasks import TaskBudget as TaskBudget
    from sandbox_client.models.tasks import TaskCheckRead as TaskCheckRead
    from sandbox_client.models.tasks import TaskCreate as TaskCreate
    from sandbox_client.models.tasks import TaskDiff as TaskDiff
    from sandbox_client.models.tasks import TaskFileChange as TaskFileChange
    from sandbox_client.models.tasks import TaskLimits as TaskLimits
    from sandbox_client.models.tasks import TaskLogItem as TaskLogItem
    from sandbox_client.models.tasks import TaskMessageCreate as TaskMessageCreate
    from sandbox_client.models.tasks import TaskMessageRead as TaskMessageRead
    from sandbox_client.models.tasks import TaskNotCompared as TaskNotCompared
    from sandbox_client.models.tasks import TaskOverlap as TaskOverlap
    from sandbox_client.models.tasks import TaskOverlaps as TaskOverlaps
    from sandbox_client.models.tasks import TaskOverlapSide as TaskOverlapSide
    from sandbox_client.models.tasks import TaskPullRead as TaskPullRead
    from sandbox_client.models.tasks import TaskPullRequest as TaskPullRequest
    from sandbox_client.models.tasks import TaskRead as TaskRead
    from sandbox_client.models.tasks import TaskRunRead as TaskRunRead
    from sandbox_client.models.tasks import TaskSaveRead as TaskSaveRead
    from sandbox_client.models.tasks import TaskSaveRestore as TaskSaveRestore
    from sandbox_client.models.tasks import TaskStage as TaskStage
    from sandbox_client.models.tasks import TaskState as TaskState
    from sandbox_client.models.tasks import TaskWait as TaskWait
    from sandbox_client.models.templates import BackendCapabilities as BackendCapabilities
    from sandbox_client.models.templates import CapabilityMatrix as CapabilityMatrix
    from sandbox_client.models.templates import TemplateBuildLog as TemplateBuildLog
    from sandbox_client.models.templates import TemplateBuildRead as TemplateBuildRead
    from sandbox_client.models.templates import TemplateBuildState as TemplateBuildState
    from sandbox_client.models.templates import TemplateCapabilitiesRead as TemplateCapabilitiesRead
    from sandbox_client.models.templates import TemplateCreate as TemplateCreate
    from sandbox_client.models.templates import TemplateName as TemplateName
    from sandbox_client.models.templates import TemplateRead as TemplateRead
    from sandbox_client.models.templates import TemplateRebuild as TemplateRebuild
    from sandbox_client.models.templates import TemplateStep as TemplateStep
    from sandbox_client.models.terminals import READ_CONTROL as READ_CONTROL
    from sandbox_client.models.terminals import TerminalCreate as TerminalCreate
    from sandbox_client.models.terminals import TerminalPing as TerminalPing
    from sandbox_client.models.terminals import TerminalRead as TerminalRead
    from sandbox_client.models.terminals import TerminalResize as TerminalResize
    from sandbox_client.models.terminals import TerminalUpdate as TerminalUpdate
    from sandbox_client.models.verbs import CommandResult as CommandResult
    from sandbox_client.models.verbs import CreateVerb as CreateVerb
    from sandbox_client.models.verbs import Encoding as Encoding
    from sandbox_client.models.verbs import ExposedPort as ExposedPort
    from sandbox_client.models.verbs import ExposePortVerb as ExposePortVerb
    from sandbox_client.models.verbs import FileContent as FileContent
    from sandbox_client.models.verbs import ReadFileVerb as ReadFileVerb
    from sandbox_client.models.verbs import RunCommandVerb as RunCommandVerb
    from sandbox_client.models.verbs import SandboxVerb as SandboxVerb
    from sandbox_client.models.verbs import TimeoutVerb as TimeoutVerb
    from sandbox_client.models.verbs import Verb as Verb
    from sandbox_client.models.verbs import VerbSandbox as VerbSandbox
    from sandbox_client.models.verbs import WriteFileVerb as WriteFileVerb
    from sandbox_client.models.verbs import WrittenFile as WrittenFile
    from sandbox_client.models.wire import YEAR as YEAR
    from sandbox_client.models.wire import Envs as Envs
    from sandbox_client.models.wire import Labels as Labels
    from sandbox_client.models.wire import Name as Name
    from sandbox_client.models.wire import Page as Page
    from sandbox_client.models.wire import Port as Port
    from sandbox_client.models.wire import RequestModel as RequestModel
    from sandbox_client.models.wire import ResponseModel as ResponseModel
    from sandbox_client.models.wire import Seconds as Seconds
    from sandbox_client.models.wire import Storable as Storable
    from sandbox_client.models.wire import Text as Text

# Imported lazily: a verb of `sbx` needs few of them.
_WHERE = {
    "Afterwards": "agent_runs",
    "AgentName": "agent_runs",
    "AgentResult": "agent_runs",
    "AgentRunCreate": "agent_runs",
    "AgentRunOutcome": "agent_runs",
    "AgentRunRead": "agent_runs",
    "AgentRunState": "agent_runs",
    "ArchiveFormat": "files",
    "AutoResume": "sandboxes",
    "BackendCapabilities": "templates",
    "BackendRead": "operations",
    "BackendReadiness": "operations",
    "BackendStats": "operations",
    "BackendUpdate": "operations",
    "BrowserCreate": "browsers",
    "BrowserLinkCreate": "ports",
    "BrowserLinkRead": "ports",
    "BrowserLogEntry": "browsers",
    "BrowserLogKind": "browsers",
    "BrowserRead": "browsers",
    "BrowserRecordingRead": "browsers",
    "BrowserState": "browsers",
    "CapabilityMatrix": "templates",
    "CheckoutState": "sandboxes",
    "CiFixMode": "repositories",
    "CodeContext": "code",
    "CodeContextCreate": "code",
    "CodeContexts": "code",
    "CodeCreate": "code",
    "CodeError": "code",
    "CodeExecutionRead": "code",
    "CodeExecutionState": "code",
    "CodeOutcome": "code",
    "CodeResult": "code",
    "CommandCreate": "commands",
    "CommandInput": "commands",
    "CommandOutcome": "commands",
    "CommandRead": "commands",
    "CommandResult": "verbs",
    "CommandSend": "commands",
    "CommandSignal": "commands",
    "CommandState": "commands",
    "CommitStyle": "repositories",
    "CreateVerb": "verbs",
    "DeliveryRead": "forges",
    "DeliveryReceipt": "forges",
    "DesktopAction": "desktops",
    "DesktopActionName": "desktops",
    "DesktopActionResult": "desktops",
    "DesktopControlRead": "desktops",
    "DesktopControlUpdate": "desktops",
    "DesktopHolder": "desktops",
    "DesktopLinkCreate": "desktops",
    "DesktopLinkCreated": "desktops",
    "DesktopLinkRead": "desktops",
    "DesktopMode": "desktops",
    "DesktopOptions": "desktops",
    "DesktopRead": "desktops",
    "DesktopRecordingOptions": "desktops",
    "DesktopRecordingRead": "desktops",
    "DesktopRecordingState": "desktops",
    "DesktopResolution": "desktops",
    "DesktopUpdate": "desktops",
    "DirectoryCreate": "files",
    "DirectoryPath": "files",
    "ERROR_CODES": "error_codes",
    "Encoding": "verbs",
    "Envs": "wire",
    "ErrorCode": "error_codes",
    "EventActor": "operations",
    "EventRead": "operations",
    "ExposePortVerb": "verbs",
    "ExposedPort": "verbs",
    "FileContent": "verbs",
    "FileMove": "files",
    "FilePath": "files",
    "FileRead": "files",
    "FileType": "files",
    "FileUser": "files",
    "ForgeAuth": "forges",
    "ForgeCheck": "forges",
    "ForgeCheckRead": "forges",
    "ForgeInstallationRead": "forges",
    "ForgeKind": "forges",
    "ForgeLimitRead": "forges",
    "ForgeName": "forges",
    "ForgeRead": "forges",
    "ForgeWrite": "forges",
    "FullName": "repositories",
    "Health": "operations",
    "InputProblem": "error_codes",
    "JobRead": "operations",
    "JobState": "operations",
    "KeepAlive": "sandboxes",
    "KeyCreate": "access",
    "KeyCreated": "access",
    "KeyRead": "access",
    "KeyScope": "access",
    "KeyUpdate": "access",
    "Labels": "wire",
    "LinkCreate": "ports",
    "LinkCreated": "ports",
    "LogEvent": "operations",
    "LogGap": "operations",
    "LogRecord": "operations",
    "LoginRead": "access",
    "McpServerRead": "services",
    "MetricRead": "snapshots",
    "MissingPermissionRead": "forges",
    "Name": "wire",
    "Network": "sandboxes",
    "OnTimeout": "sandboxes",
    "OutputCut": "commands",
    "OutputGap": "commands",
    "OutputPart": "commands",
    "OutputPiece": "commands",
    "Page": "wire",
    "PermissionMode": "agent_runs",
    "Port": "wire",
    "PortUrls": "ports",
    "Problem": "error_codes",
    "QueuePlace": "sandboxes",
    "QueueStats": "operations",
    "READ_CONTROL": "terminals",
    "ReadFileVerb": "verbs",
    "Readiness": "operations",
    "RepositoryCreate": "repositories",
    "RepositoryRead": "repositories",
    "RepositorySettings": "repositories",
    "RepositorySettingsRead": "repositories",
    "RepositoryUpdate": "repositories",
    "RequestModel": "wire",
    "Resources": "sandboxes",
    "ResponseModel": "wire",
    "RuleMatch": "access",
    "RunCommandVerb": "verbs",
    "SandboxCheckout": "sandboxes",
    "SandboxCreate": "sandboxes",
    "SandboxFork": "snapshots",
    "SandboxRead": "sandboxes",
    "SandboxRepository": "sandboxes",
    "SandboxState": "sandboxes",
    "SandboxTarget": "sandboxes",
    "SandboxUpdate": "sandboxes",
    "SandboxVerb": "verbs",
    "Seconds": "wire",
    "ServiceState": "services",
    "ServicesRead": "services",
    "SessionSandbox": "sandboxes",
    "SnapshotCreate": "snapshots",
    "SnapshotRead": "snapshots",
    "SnapshotState": "snapshots",
    "Stats": "operations",
    "Storable": "wire",
    "TaskApprove": "tasks",
    "TaskAttemptCreate": "tasks",
    "TaskAttemptRead": "tasks",
    "TaskBudget": "tasks",
    "TaskCheckRead": "tasks",
    "TaskCreate": "tasks",
    "TaskDiff": "tasks",
    "TaskFileChange": "tasks",
    "TaskLimits": "tasks",
    "TaskLogItem": "tasks",
    "TaskMessageCreate": "tasks",
    "TaskMessageRead": "tasks",
    "TaskNotCompared": "tasks",
    "TaskOverlap": "tasks",
    "TaskOverlapSide": "tasks",
    "TaskOverlaps": "tasks",
    "TaskPullRead": "tasks",
    "TaskPullRequest": "tasks",
    "TaskRead": "tasks",
    "TaskRunRead": "tasks",
    "TaskSaveRead": "tasks",
    "TaskSaveRestore": "tasks",
    "TaskStage": "tasks",
    "TaskState": "tasks",
    "TaskWait": "tasks",
    "TemplateBuildLog": "templates",
    "TemplateBuildRead": "templates",
    "TemplateBuildState": "templates",
    "TemplateCapabilitiesRead": "templates",
    "TemplateCreate": "templates",
    "TemplateName": "templates",
    "TemplateRead": "templates",
    "TemplateRebuild": "templates",
    "TemplateStep": "templates",
    "AgentTypeDefaults": "access",
    "BrowserValues": "access",
    "Configuration": "access",
    "DesktopValues": "access",
    "SandboxDefaults": "access",
    "TemplateDefaults": "access",
    "TenantDefaults": "access",
    "TenantName": "access",
    "TenantRead": "access",
    "TenantRule": "access",
    "TenantStats": "operations",
    "TenantWrite": "access",
    "TerminalCreate": "terminals",
    "TerminalPing": "terminals",
    "TerminalRead": "terminals",
    "TerminalResize": "terminals",
    "TerminalUpdate": "terminals",
    "Text": "wire",
    "TicketCreate": "access",
    "TicketCreated": "access",
    "TicketScope": "access",
    "TimelineEntry": "operations",
    "Timeout": "sandboxes",
    "TimeoutVerb": "verbs",
    "ToolServerRead": "services",
    "Triggers": "repositories",
    "TriggersRead": "repositories",
    "Urls": "sandboxes",
    "Verb": "verbs",
    "VerbSandbox": "verbs",
    "Version": "operations",
    "WriteFileVerb": "verbs",
    "WrittenFile": "verbs",
    "YEAR": "wire",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    return found
