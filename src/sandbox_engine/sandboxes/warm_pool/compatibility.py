from sandbox_engine.records.sandbox import SandboxRecord

# Every sandbox has these for itself, whoever asked for it.
_OWN = {
    "id",
    "state",
    "reason",
    "access_token",
    "link",
    "init",
    "started_at",
    "ends_at",
}
# What a ready sandbox takes over from the request that gets it.
_TAKEN = {
    "template_name",
    "metadata",
    "envs",
    "allow_internet",
    "network",
    "traffic_token",
    "timeout",
    "on_timeout",
    "auto_resume",
    "pause_keeps_memory",
    "idempotency",
    "created_at",
}


def compatibility_key(record: SandboxRecord) -> str:
    """Name what a sandbox is; a ready one can stand for a wanted one of the same kind.

    A field that is new to records tells kinds apart until it is said above that it does not.
    """
    made = record.model_dump_json(exclude=_OWN | _TAKEN)
    policy = record.policy
    reach = (policy.allow, policy.deny, sorted(policy.names))
    return f"{made} reach={reach}"


def assign_request(ready: SandboxRecord, wanted: SandboxRecord) -> None:
    """Make a ready sandbox the one that was asked for."""
    for name in _TAKEN:
        setattr(ready, name, getattr(wanted, name))
