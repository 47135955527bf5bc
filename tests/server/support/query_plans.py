"""How the database carries out the very statements that an act makes."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sandbox_server.db.session import create_sessions

Plan = dict[str, Any]


async def vacuum(database: AsyncEngine, *tables: str) -> None:
    """Have the database know its rows, as it does a while after they were written."""
    outside_transactions = database.execution_options(isolation_level="AUTOCOMMIT")
    async with outside_transactions.connect() as connection:
        await connection.execute(text(f"VACUUM ANALYZE {', '.join(tables)}"))


async def explain(
    database: AsyncEngine, act: Callable[[AsyncSession], Awaitable[object]]
) -> list[Plan]:
    """Have the statements explained that an act makes; what it does is undone."""
    statements: list[tuple[str, Any]] = []

    @event.listens_for(database.sync_engine, "before_cursor_execute")
    def note(_connection, _cursor, statement, parameters, _context, many):
        statements.append((statement, parameters[0] if many else parameters))

    async with create_sessions(database)() as session:
        await act(session)
        await session.rollback()
    event.remove(database.sync_engine, "before_cursor_execute", note)
    async with database.connect() as connection:
        explained = [
            await connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters
            )
            for statement, parameters in statements
        ]
    return [result.scalar_one()[0]["Plan"] for result in explained]


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def reads_by_index(plan: Plan, index: str, *, only_part: bool = True) -> bool:
    """Tell whether no table is read from end to end, and rows are found by the index."""
    every = list(nodes(plan))
    return all(node["Node Type"] != "Seq Scan" for node in every) and any(
        node.get("Index Name") == index and (not only_part or "Index Cond" in node)
        for node in every
    )


def rows_read(plan: Plan, table: str) -> int:
    """Count the rows of a table that were looked at, wanted or not."""
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(plan)
        if node.get("Relation Name") == table
    )
