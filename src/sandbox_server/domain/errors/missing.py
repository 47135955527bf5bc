from sandbox_server.domain.errors.kinds import NotFound


class SandboxNotFound(NotFound):
    code = "sandbox-not-found"
    noun = "sandbox"
    remediation = (
        "Sandboxes that ended are removed after a while; another tenant's are not told apart."
    )


class TenantNotFound(NotFound):
    code = "tenant-not-found"
    noun = "tenant"


class KeyNotFound(NotFound):
    code = "key-not-found"
    noun = "API key"


class TemplateNotFound(NotFound):
    code = "template-not-found"
    noun = "template"
    remediation = "List the templates, or build one of this name."


class BackendNotFound(NotFound):
    code = "backend-not-found"
    noun = "backend"
    remediation = "List the backends, or leave the backend out to have one chosen."


class JobNotFound(NotFound):
    code = "job-not-found"
    noun = "job"


class SnapshotNotFound(NotFound):
    code = "snapshot-not-found"
    noun = "snapshot"
