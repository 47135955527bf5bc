from sandbox_engine.records.sandbox import SandboxRecord

# Individual fields of every sandbox.
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
# Fields that an assigned sandbox takes from the request.
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
    """Return a key that is equal for sandboxes that can replace each other.

    New fields of records are part of the key until they are listed above.
    """
    made = record.model_dump_json(exclude=_OWN | _TAKEN)
    policy = record.policy
    reach = (policy.allow, policy.deny, sorted(policy.names))
    return f"{made} reach={reach}"


def assign_request(ready: SandboxRecord, wanted: SandboxRecord) -> None:
    """Copy the request's fields to a ready sandbox."""
    for name in _TAKEN:
        setattr(ready, name, getattr(wanted, name))
