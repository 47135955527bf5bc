"""The kinds of jobs, and what the subject of each is."""

SANDBOX = "sandbox"  # a sandbox's id; as long as it lives
ADMISSION = "admission"  # a backend's name: a place there may be free
PATROL = "patrol"  # a backend's name: compare its truth with ours
SERVICES = "services"  # a sandbox's id: tell the services in it what they are to know
AGENT_RUN = "agent-run"  # a run's id: pause its sandbox once it has ended
SNAPSHOT = "snapshot"  # a snapshot's id
TEMPLATES = "templates"  # a backend's name: see which templates it has
TEMPLATE_BUILD = "template-build"  # `{template id}/{backend}`
AGENT_TEMPLATE = "agent-template"  # a backend's name: see whether it has the default template
HOUSEKEEPING = "housekeeping"  # "hourly"
