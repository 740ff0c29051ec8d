"""Let stored bytes have an id of their own, lie in a row, and be sealed under KMS keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

_ID = sa.String(length=36)
_IS_CURRENT = "ended_at IS NULL AND repository_id IS "
_STATES = "state IN ('live', 'condemned')", "state IN ('live', 'condemned', 'shredded')"
_WRAP = (["object_id", "kms_key_id"], ["object_id", "kms_key_id"])
_LINKS = ("repository_blobs", "deleted_manifest_blobs")


def upgrade() -> None:
    for table in ("blob_objects", "quarantined_objects"):
        op.add_column(table, sa.Column("stored_id", _ID, nullable=True))
        op.add_column(
            table,
            sa.Column("is_inline", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        )
        op.add_column(table, sa.Column("checksum", sa.String(length=64), nullable=True))
        op.execute(f"UPDATE {table} SET stored_id = id")  # noqa: S608
        _require(table, "stored_id")
    _replace_check("blob_objects", "state", *_STATES)
    for table in ("blob_objects", "quarantined_objects"):
        op.create_index(f"uq_{table}_stored_id", table, ["stored_id"], unique=True)
    is_plain = sa.text("encoding = 'plain'")
    op.create_index(
        "ix_blob_objects_plain",
        "blob_objects",
        ["account_id", "id"],
        sqlite_where=is_plain,
        postgresql_where=is_plain,
    )
    op.create_table(
        "inline_bytes",
        sa.Column("stored_id", _ID, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("stored_id", name=op.f("pk_inline_bytes")),
    )
    _create_wraps("blob_object_keys", "object_id", "blob_objects", is_erasable=True)
    _create_wraps("quarantined_object_keys", "quarantined_id", "quarantined_objects")
    for table in _LINKS:
        op.add_column(table, sa.Column("kms_key_id", _ID, nullable=True))
        _add_foreign_key(table)
    op.create_index(
        op.f("ix_repository_blobs_repository_id_kms_key_id"),
        "repository_blobs",
        ["repository_id", "kms_key_id"],
    )
    op.add_column("uploads", sa.Column("kms_key_id", _ID, nullable=True))
    op.add_column("uploads", sa.Column("wrapped_data_key", sa.LargeBinary(), nullable=True))
    _add_check("uploads", "data_key", "(kms_key_id IS NULL) = (wrapped_data_key IS NULL)")
    _create_bindings()


def _create_wraps(table: str, owner: str, owners: str, *, is_erasable: bool = False) -> None:
    op.create_table(
        table,
        sa.Column(owner, _ID, nullable=False),
        sa.Column("kms_key_id", _ID, nullable=False),
        sa.Column("account_id", _ID, nullable=False),
        sa.Column("wrapped_data_key", sa.LargeBinary(), nullable=is_erasable),
        sa.ForeignKeyConstraint(
            [owner], [f"{owners}.id"], name=op.f(f"fk_{table}_{owner}"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["kms_key_id", "account_id"],
            ["kms_keys.id", "kms_keys.account_id"],
            name=op.f(f"fk_{table}_kms_key_id_account_id"),
        ),
        sa.PrimaryKeyConstraint(owner, "kms_key_id", name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_kms_key_id_{owner}"), table, ["kms_key_id", owner])


def _create_bindings() -> None:
    table = "encryption_bindings"
    op.create_table(
        table,
        sa.Column("id", _ID, nullable=False),
        sa.Column("account_id", _ID, nullable=False),
        sa.Column("repository_id", _ID, nullable=True),
        sa.Column("kms_key_id", _ID, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f(f"fk_{table}_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"],
            ["repositories.id", "repositories.account_id"],
            name=op.f(f"fk_{table}_repository_id_account_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["kms_key_id", "account_id"],
            ["kms_keys.id", "kms_keys.account_id"],
            name=op.f(f"fk_{table}_kms_key_id_account_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    history = ["account_id", "repository_id", "id"]
    op.create_index(op.f(f"ix_{table}_account_id_repository_id_id"), table, history)
    op.create_index(op.f(f"ix_{table}_kms_key_id"), table, ["kms_key_id"])
    for scope, is_null in (("repository", "NOT NULL"), ("account", "NULL")):
        op.create_index(
            f"uq_{table}_{scope}",
            table,
            [f"{scope}_id"],
            unique=True,
            sqlite_where=sa.text(_IS_CURRENT + is_null),
            postgresql_where=sa.text(_IS_CURRENT + is_null),
        )


def downgrade() -> None:
    op.drop_table("encryption_bindings")
    _drop_check("uploads", "data_key", "(kms_key_id IS NULL) = (wrapped_data_key IS NULL)")
    op.drop_column("uploads", "wrapped_data_key")
    op.drop_column("uploads", "kms_key_id")
    op.drop_index(op.f("ix_repository_blobs_repository_id_kms_key_id"), "repository_blobs")
    for table in _LINKS:
        _drop_foreign_key(table)
        op.drop_column(table, "kms_key_id")
    op.drop_table("quarantined_object_keys")
    op.drop_table("blob_object_keys")
    op.drop_table("inline_bytes")
    op.drop_index("ix_blob_objects_plain", "blob_objects")
    for table in ("quarantined_objects", "blob_objects"):
        op.drop_index(f"uq_{table}_stored_id", table)
    _replace_check("blob_objects", "state", *reversed(_STATES))
    for table in ("blob_objects", "quarantined_objects"):
        for column in ("checksum", "is_inline", "stored_id"):
            op.drop_column(table, column)


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _require(table: str, column: str) -> None:
    if not _is_sqlite():
        op.alter_column(table, column, nullable=False)
        return
    _edit_table(table, f"{column} VARCHAR(36)", f"{column} VARCHAR(36) NOT NULL")


def _add_check(table: str, name: str, condition: str) -> None:
    if not _is_sqlite():
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)
        return
    _add_constraint(table, f"CONSTRAINT ck_{table}_{name} CHECK ({condition})")


def _drop_check(table: str, name: str, condition: str) -> None:
    if not _is_sqlite():
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table, type_="check")
        return
    _drop_constraint(table, f"CONSTRAINT ck_{table}_{name} CHECK ({condition})")


def _replace_check(table: str, name: str, old: str, new: str) -> None:
    if not _is_sqlite():
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table, type_="check")
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, new)
        return
    _edit_table(table, f"CHECK ({old})", f"CHECK ({new})")


def _foreign_key(table: str) -> str:
    columns = "object_id, kms_key_id"
    return (
        f"CONSTRAINT fk_{table}_object_id_kms_key_id FOREIGN KEY({columns})"
        f" REFERENCES blob_object_keys ({columns})"
    )


def _add_foreign_key(table: str) -> None:
    if not _is_sqlite():
        name = op.f(f"fk_{table}_object_id_kms_key_id")
        op.create_foreign_key(name, table, "blob_object_keys", *_WRAP)
        return
    _add_constraint(table, _foreign_key(table))


def _drop_foreign_key(table: str) -> None:
    if not _is_sqlite():
        name = op.f(f"fk_{table}_object_id_kms_key_id")
        op.drop_constraint(name, table, type_="foreignkey")
        return
    _drop_constraint(table, _foreign_key(table))


def _add_constraint(table: str, constraint: str) -> None:
    _edit(table, "substr(sql, 1, length(sql) - 1) || :new", ")", f", {constraint}\n)")


def _drop_constraint(table: str, constraint: str) -> None:
    _edit_table(table, f", {constraint}", "")


def _edit_table(table: str, old: str, new: str) -> None:
    _edit(table, "replace(sql, :old, :new)", old, new)


def _edit(table: str, expression: str, old: str, new: str) -> None:
    """Change the text of a table in SQLite, which changes no row (see revision 0012)."""
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema=ON")
    changed = connection.execute(
        sa.text(
            f"UPDATE sqlite_master SET sql = {expression}"  # noqa: S608 - texts of this file
            " WHERE type = 'table' AND name = :table AND instr(sql, :old) > 0"
        ),
        {"table": table, "old": old, "new": new},
    )
    assert changed.rowcount == 1, "the table lacks the text that it was created with"
    connection.exec_driver_sql(f"PRAGMA schema_version={version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema=RESET")
