"""SQL statements of recording, built once."""

from datetime import datetime

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Interval,
    LargeBinary,
    Select,
    Text,
    bindparam,
    false,
    func,
    insert,
    literal,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects import postgresql

from sandbox_server.db.models import TABLES, Command, IdempotencyKey, Sandbox
from sandbox_server.domain.commands import CommandKind, CommandState
from sandbox_server.domain.state import State, Target
from sandbox_server.log.events import LOG_CHANNEL

NOW = func.statement_timestamp()
_lease = bindparam("lease", type_=Interval)

DEFAULTS = {
    "kind": CommandKind.COMMAND,
    "state": CommandState.STARTING,
    **dict.fromkeys(("background", "stdin"), False),
    **dict.fromkeys(("last_seq", "stdout_size", "stderr_size", "stdout_cut", "stderr_cut"), 0),
}
INSERTED_COLUMNS = (
    *("id", "tenant_id", "sandbox_id", "kind", "name", "cmd", "cwd", "user", "background", "stdin"),
    *("cols", "rows", "timeout", "expires_at", "state", "recorded_by", "agent", "code"),
)
_mapped = Command.__mapper__.columns
_INSERTED = {
    _mapped[name]: bindparam(f"new_{name}", type_=_mapped[name].type) for name in INSERTED_COLUMNS
} | {_mapped["recorded_until"]: NOW + _lease}
# Built once and without ORM objects, which made a short command a fifth slower.
INSERT = (
    insert(TABLES["commands"])
    .values(_INSERTED)
    .returning(_mapped["created_at"], _mapped["recorded_until"])
)


def _insert_if_running(*, with_key: bool) -> Select[Sandbox, datetime, datetime]:
    """Insert a command and select its sandbox. Reading, claiming the key and inserting by statements of their own takes five."""
    sandbox = (
        select(Sandbox.id)
        .where(
            Sandbox.id == _INSERTED[_mapped["sandbox_id"]],
            Sandbox.tenant_id == _INSERTED[_mapped["tenant_id"]],
            Sandbox.state == State.RUNNING,
            Sandbox.target == Target.RUNNING,
            Sandbox.backend == func.any(bindparam("backends", type_=ARRAY(Text))),
        )
        .cte("sandbox")
    )
    values = select(*_INSERTED.values()).select_from(sandbox)
    if with_key:
        key = {
            "tenant_id": _INSERTED[_mapped["tenant_id"]],
            "key": bindparam("key", type_=Text),
            "digest": bindparam("digest", type_=LargeBinary),
            "resource": literal("command"),
            "resource_id": _INSERTED[_mapped["id"]],
        }
        claimed = (
            postgresql.insert(IdempotencyKey)
            .from_select(list(key), select(*key.values()).select_from(sandbox))
            .on_conflict_do_nothing()
            .returning(IdempotencyKey.resource_id)
            .cte("claimed")
        )
        values = values.join(claimed, true())
    inserted = (
        insert(TABLES["commands"])
        .from_select(list(_INSERTED), values)
        .returning(_mapped["created_at"], _mapped["recorded_until"])
        .cte("inserted")
    )
    columns = (inserted.c.created_at, inserted.c.recorded_until)
    return (
        select(Sandbox, *columns)
        .join(inserted, true())
        .where(Sandbox.id == _INSERTED[_mapped["sandbox_id"]])
    )


INSERT_IF_RUNNING = _insert_if_running(with_key=False)
CLAIM_AND_INSERT_IF_RUNNING = _insert_if_running(with_key=True)
EXTEND = (
    update(Command)
    .where(Command.id == func.any(bindparam("ids", type_=ARRAY(Text))))
    # Wrapped in coalesce: with the partial index the planner would read all commands that have not ended.
    .where(
        Command.recorded_by == bindparam("by"), func.coalesce(Command.ended_at.is_(None), false())
    )
    .values(recorded_until=NOW + _lease)
    .returning(Command.id)
    .execution_options(synchronize_session=False)
)
# Numbers are taken after the commands are locked: always in this order, so that there is no deadlock.
# LATERAL looks up each command by its id: otherwise the planner would read all that have not ended.
STORE = text(f"""
WITH input_rows AS (
    SELECT * FROM jsonb_to_recordset(CAST(:commands AS jsonb)) AS input_rows(
        id text, last_seq bigint, count bigint, state text, state_reason text, exit_code int, pid int,
        started boolean, stdout_size bigint, stderr_size bigint, stdout_cut bigint, stderr_cut bigint)
), locked AS (
    SELECT command.sandbox_id, input_rows.*
    FROM (SELECT * FROM input_rows ORDER BY id) AS input_rows, LATERAL (
        SELECT sandbox_id FROM commands
        WHERE commands.id = input_rows.id AND commands.last_seq = input_rows.last_seq AND commands.recorded_by = :by
            AND commands.ended_at IS NULL
        LIMIT 1 FOR UPDATE
    ) AS command
), positioned AS (
    SELECT locked.*, sum(count) OVER (ORDER BY id) - count AS before, sum(count) OVER () AS total FROM locked
), taken AS (
    INSERT INTO streams (tenant_id, next_seq) SELECT :tenant_id, 1 + max(total) FROM positioned HAVING count(*) > 0
    ON CONFLICT (tenant_id) DO UPDATE SET next_seq = streams.next_seq + excluded.next_seq - 1
    RETURNING next_seq
), numbered AS (
    SELECT positioned.*, taken.next_seq - total + before AS first FROM positioned, taken
), inserted AS (
    INSERT INTO command_output (sandbox_id, seq, command_id, type, start, content, data)
    SELECT sandbox_id, first + record.number, id, record.type, record.start, record.content, CAST(record.data AS jsonb)
    FROM unnest(:ids, :numbers, :types, :starts, :contents, :datas)
        AS record(command_id, number, type, start, content, data)
    JOIN numbered ON numbered.id = record.command_id
), deleted AS (
    DELETE FROM command_output USING numbered, unnest(:deleted_ids, :deleted_seqs) AS evicted(command_id, seq)
    WHERE numbered.id = evicted.command_id
        AND command_output.sandbox_id = numbered.sandbox_id AND command_output.seq = evicted.seq
), cut AS (
    UPDATE command_output SET type = 'gap', content = '', start = evicted.start, data = CAST(evicted.data AS jsonb)
    FROM numbered, unnest(:cut_ids, :cut_seqs, :cut_starts, :cut_datas) AS evicted(command_id, seq, start, data)
    WHERE numbered.id = evicted.command_id
        AND command_output.sandbox_id = numbered.sandbox_id AND command_output.seq = evicted.seq
)
UPDATE commands SET
    last_seq = first + count - 1,
    recorded_until = statement_timestamp() + :lease,
    state = coalesce(numbered.state, commands.state),
    state_reason = coalesce(numbered.state_reason, commands.state_reason),
    exit_code = coalesce(numbered.exit_code, commands.exit_code),
    pid = coalesce(numbered.pid, commands.pid),
    started_at = CASE WHEN started THEN clock_timestamp() ELSE started_at END,
    expires_at = CASE WHEN started THEN clock_timestamp() + commands.timeout ELSE expires_at END,
    ended_at = CASE WHEN numbered.state IN ('starting', 'running') THEN NULL
        WHEN numbered.state IS NOT NULL THEN clock_timestamp() END,
    stdout_size = numbered.stdout_size, stderr_size = numbered.stderr_size,
    stdout_cut = numbered.stdout_cut, stderr_cut = numbered.stderr_cut
FROM numbered WHERE commands.id = numbered.id
RETURNING commands.id, commands.last_seq, commands.started_at, commands.expires_at, commands.ended_at,
    pg_notify('{LOG_CHANNEL}', 'sandbox/' || commands.sandbox_id || ' command/' || commands.id)
""").bindparams(  # noqa: S608 - the channel name is a constant
    bindparam("lease", type_=Interval),
    *(
        bindparam(name, type_=ARRAY(type_))
        for type_, names in {
            Text: ("ids", "types", "datas", "deleted_ids", "cut_ids", "cut_datas"),
            BigInteger: ("numbers", "starts", "deleted_seqs", "cut_seqs", "cut_starts"),
            LargeBinary: ("contents",),
        }.items()
        for name in names
    ),
)
