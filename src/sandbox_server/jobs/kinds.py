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
