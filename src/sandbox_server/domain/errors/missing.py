from sandbox_server.domain.errors.kinds import NotFound


class SandboxNotFound(NotFound):
    code = "sandbox-not-found"
    title = "Sandbox not found"
    noun = "sandbox"
    remediation = (
        "Sandboxes that ended are removed after a while; another tenant's are not told apart."
    )


class TenantNotFound(NotFound):
    code = "tenant-not-found"
    title = "Tenant not found"
    noun = "tenant"


class KeyNotFound(NotFound):
    code = "key-not-found"
    title = "API key not found"
    noun = "API key"


class TemplateNotFound(NotFound):
    code = "template-not-found"
    title = "Template not found"
    noun = "template"
    remediation = "List the templates, or build one of this name."


class BackendNotFound(NotFound):
    code = "backend-not-found"
    title = "Backend not found"
    noun = "backend"
    remediation = "List the backends, or leave the backend out to have one chosen."


class JobNotFound(NotFound):
    code = "job-not-found"
    title = "Job not found"
    noun = "job"


class SnapshotNotFound(NotFound):
    code = "snapshot-not-found"
    title = "Snapshot not found"
    noun = "snapshot"
