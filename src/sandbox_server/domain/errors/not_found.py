from sandbox_server.domain.errors.kinds import NotFound


class SandboxNotFound(NotFound):
    code = "sandbox-not-found"
    noun = "sandbox"
    remediation = "Records of ended sandboxes are deleted after some days. Sandboxes of other tenants are not visible."


class TenantNotFound(NotFound):
    code = "tenant-not-found"
    noun = "tenant"
    remediation = "List the tenants with GET /v1/tenants."


class KeyNotFound(NotFound):
    code = "key-not-found"
    noun = "API key"
    remediation = "List the API keys with GET /v1/keys."


class TemplateNotFound(NotFound):
    code = "template-not-found"
    noun = "template"
    remediation = "List the templates, or build a template with this name."

    def __init__(self, name: str, *, is_bundled: bool = False) -> None:
        super().__init__(name)
        self.name = name
        if is_bundled:
            what = f"The template {name!r} is bundled with the server, but not built."
            self.args = (
                f"{what} An operator builds it with `sandbox-server template build {name}`.",
            )


class BackendNotFound(NotFound):
    code = "backend-not-found"
    noun = "backend"
    remediation = "List the backends, or omit the backend to have one chosen."


class JobNotFound(NotFound):
    code = "job-not-found"
    noun = "job"


class SnapshotNotFound(NotFound):
    code = "snapshot-not-found"
    noun = "snapshot"


class BrowserContextNotFound(NotFound):
    code = "browser-context-not-found"
    noun = "browser context"


class BrowserExtensionNotFound(NotFound):
    code = "browser-extension-not-found"
    noun = "browser extension"


class BrowserRecordingNotFound(NotFound):
    code = "browser-recording-not-found"
    noun = "recording of a page"
    remediation = "List the recorded pages with GET /v1/browsers/{id}/recordings."


class BrowserProjectNotFound(NotFound):
    code = "browser-project-not-found"
    noun = "project"
    remediation = "List the projects; your API key has one."


class BrowserbasePathNotFound(NotFound):
    code = "browserbase-path-not-found"
    noun = "resource of Browserbase's API"


class BrowserSessionNotFound(NotFound):
    code = "browser-session-not-found"
    noun = "browser session"
    remediation = "List the sessions with GET /v1/browsers. Ended ones are deleted after some days; those of other tenants are not visible."


class DeliveryNotFound(NotFound):
    code = "delivery-not-found"
    noun = "webhook delivery"
    remediation = "List the deliveries. They are deleted after some days."


class RepositoryNotFound(NotFound):
    code = "repository-not-found"
    noun = "repository"
    remediation = "Add it with POST /v1/repositories, or list the repositories."


class TaskNotFound(NotFound):
    code = "task-not-found"
    noun = "task"
    remediation = "List the tasks with GET /v1/tasks. Tasks of other tenants are not visible."


class PullNotFound(NotFound):
    code = "pull-request-not-found"
    noun = "pull request of task"
    remediation = "A task has a pull request once its work is published."


class AttemptNotFound(NotFound):
    code = "attempt-not-found"
    noun = "attempt"
    remediation = "List the attempts with GET /v1/tasks/{task_id}/attempts."


class SaveNotFound(NotFound):
    code = "save-not-found"
    noun = "save"
    remediation = (
        "List the saves with GET /v1/tasks/{task_id}/saves. Older ones are removed after some time."
    )
