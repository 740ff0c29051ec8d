"""Move the runs of the collector and of lifecycle policies to one table; add the schedule.

Ids, moments, counts and faults stay as they are. Of a run under way it becomes known at its next
step how far it is. A downgrade drops the faults on the way, and runs of other kinds.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_GC = ("unlinked", "condemned", "swept", "removed", "freed_bytes", "kept")
_LIFECYCLE = ("evaluated", "expired", "freed_bytes")
_RUNNING = sa.text("state = 'running'")
_STATUS_RUNNING = sa.text("status = 'running'")


def upgrade() -> None:
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "schedules",
        sa.Column("name", name, nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("lease_token", sa.String(length=36), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_schedules")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", name, nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("scope_id", sa.String(length=36), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=True),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("faults", sa.Text(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('running', 'succeeded', 'failed')", name=op.f("ck_runs_state")
        ),
        sa.CheckConstraint(
            "(state = 'running') = (finished_at IS NULL)", name=op.f("ck_runs_finished_at")
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_runs_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_scope_id_kind_id"), "runs", ["scope_id", "kind", "id"])
    op.create_index(
        "uq_runs_running",
        "runs",
        ["scope_id", "kind"],
        unique=True,
        sqlite_where=_RUNNING,
        postgresql_where=_RUNNING,
    )
    _move_in("gc_runs", "registry.garbage_collection", "account_id, account_id", "'null'", _GC)
    _move_in(
        "lifecycle_runs JOIN repositories r ON r.id = lifecycle_runs.repository_id",
        "registry.lifecycle",
        "r.account_id, r.id",
        _quoted("document"),
        _LIFECYCLE,
    )
    op.drop_table("lifecycle_runs")
    op.drop_table("gc_runs")


def downgrade() -> None:
    _create_former("gc_runs", sa.Column("account_id", sa.String(length=36), nullable=False), _GC)
    _create_former(
        "lifecycle_runs",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        _LIFECYCLE,
    )
    _move_out("gc_runs", "registry.garbage_collection", {"account_id": "scope_id"}, _GC)
    _move_out(
        "lifecycle_runs",
        "registry.lifecycle",
        {"repository_id": "scope_id", "document": _unquoted("arguments")},
        _LIFECYCLE,
    )
    op.drop_table("runs")
    op.drop_table("schedules")


def _move_in(
    source: str, kind: str, account_and_scope: str, arguments: str, counts: tuple[str, ...]
) -> None:
    """Insert the rows of a former table."""
    table = source.split(maxsplit=1)[0]
    pairs = ", ".join(f"'{name}', {name}" for name in counts)
    build = "json_build_object" if _is_postgresql() else "json_object"
    own = [
        f"{table}.{name}"
        for name in ("id", "status", "fault", "started_by", "started_at", "finished_at")
    ]
    op.execute(
        "INSERT INTO runs (kind, account_id, scope_id, arguments, done, counts, faults,"  # noqa: S608 - our own words
        " id, state, fault, started_by, started_at, finished_at)"
        f" SELECT '{kind}', {account_and_scope}, {arguments}, 0,"
        f" CAST({build}({pairs}) AS text), '[]', {', '.join(own)} FROM {source}"
    )


def _move_out(table: str, kind: str, columns: dict[str, str], counts: tuple[str, ...]) -> None:
    """Insert the rows of a kind into their former table."""
    columns = columns | {name: _count(name) for name in counts}
    columns |= {name: name for name in ("id", "fault", "started_by", "started_at", "finished_at")}
    op.execute(
        f"INSERT INTO {table} (status, {', '.join(columns)})"  # noqa: S608 - our own words
        f" SELECT state, {', '.join(columns.values())} FROM runs WHERE kind = '{kind}'"
    )


def _create_former(table: str, scope: sa.Column[str], counts: tuple[str, ...]) -> None:
    """Create a table as the revisions before this one know it."""
    document = [sa.Column("document", sa.Text(), nullable=False)]
    referred, cascade = ("accounts.id", None) if table == "gc_runs" else ("repositories.id", True)
    op.create_table(
        table,
        sa.Column("id", sa.String(length=36), nullable=False),
        scope,
        *(document if cascade else []),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in counts),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (finished_at IS NULL)", name=op.f(f"ck_{table}_finished_at")
        ),
        sa.CheckConstraint(
            "status IN ('running', 'succeeded', 'failed')", name=op.f(f"ck_{table}_status")
        ),
        sa.ForeignKeyConstraint(
            [scope.name],
            [referred],
            name=op.f(f"fk_{table}_{scope.name}"),
            ondelete="CASCADE" if cascade else None,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_{scope.name}_id"), table, [scope.name, "id"])
    op.create_index(
        f"uq_{table}_running",
        table,
        [scope.name],
        unique=True,
        sqlite_where=_STATUS_RUNNING,
        postgresql_where=_STATUS_RUNNING,
    )


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _quoted(column: str) -> str:
    """Return the SQL of a text as a JSON string."""
    return f"CAST(to_json({column}) AS text)" if _is_postgresql() else f"json_quote({column})"


def _unquoted(column: str) -> str:
    """Return the SQL of the text of a JSON string."""
    return f"CAST({column} AS json) #>> '{{}}'" if _is_postgresql() else f"{column} ->> '$'"


def _count(name: str) -> str:
    if _is_postgresql():
        return f"CAST(CAST(counts AS json) ->> '{name}' AS bigint)"
    return f"counts ->> '{name}'"
