"""The kinds of jobs as stored in the database, and the subject of each."""

SANDBOX = "sandbox"  # a sandbox's id, for as long as the sandbox exists
ADMISSION = "admission"  # a backend's name: give its free slots to queued sandboxes
DRIFT_CHECK = "patrol"  # a backend's name: compare its sandboxes with the rows
SERVICES = "services"  # a sandbox's id: write the settings of its services
AGENT_RUN = "agent-run"  # a run's id: pause its sandbox after the run
SNAPSHOT = "snapshot"  # a snapshot's id
TEMPLATES = "templates"  # a backend's name: list its templates
TEMPLATE_BUILD = "template-build"  # `{template id}/{backend}`
AGENT_TEMPLATE = "agent-template"  # a backend's name: build the default template there
HOUSEKEEPING = "housekeeping"  # "hourly"
BROWSER_SESSION = "browser-session"  # a browser session's id, until its sandbox is to be deleted
CHECKOUT = "checkout"  # a sandbox's id: check out the repository that was requested with it
DESKTOP = (
    "desktop"  # a sandbox's id: apply the settings of its desktop, end the control of a person
)
REPOSITORY = "repository"  # a repository's id: fetch its mirror
PREPARATION = "preparation"  # a repository's id: prepare the snapshot that its sandboxes start from
TASK = "task"  # a task's id, for as long as the task is open
TASK_ATTEMPT = "task-attempt"  # `{task id}/{number}`, for as long as the attempt is open
TASK_SAVE = "task-save"  # a task's id: take the work out of its sandbox
FORGE_WRITES = "forge-writes"  # a forge's id: its writes, one after the other
WEBHOOK_DELIVERY = "webhook-delivery"  # the id of our row
WEBHOOK_REDELIVERY = "webhook-redelivery"  # a forge's id: repeat webhooks that did not arrive
TRIGGER_LOOK = (
    "trigger-look"  # a repository's id: find labels and mentions whose webhooks were lost
)
PULL_REQUEST = "pull-request"  # `{repository id}/{number}`: read it anew while it is open
GIT_PUSH = "git-push"  # a push's id: forward it once its forge answers
