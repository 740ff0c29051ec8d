"""Call the form of stored bytes their encoding, and allow sealed bytes beside plain ones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    _rename("layout", "encoding", "IN ('plain')", "IN ('plain', 'sealed')")


def downgrade() -> None:
    _rename("encoding", "layout", "IN ('plain', 'sealed')", "IN ('plain')")


def _rename(old: str, new: str, old_values: str, new_values: str) -> None:
    """Rename the column of both tables, and replace the CHECK on the one of live objects."""
    for table in ("quarantined_objects", "blob_objects"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    names = f"ck_blob_objects_{old}", f"ck_blob_objects_{new}"
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint(op.f(names[0]), "blob_objects", type_="check")
        op.create_check_constraint(op.f(names[1]), "blob_objects", f"{new} {new_values}")
        return
    _edit_table(
        f"CONSTRAINT {names[0]} CHECK ({new} {old_values})",
        f"CONSTRAINT {names[1]} CHECK ({new} {new_values})",
    )


def _edit_table(old: str, new: str) -> None:
    """Replace a constraint in the text of SQLite's table, which changes no row.

    A batch would copy the table, and foreign keys refer to it. This is the other way of
    https://www.sqlite.org/lang_altertable.html, "Making Other Kinds Of Table Schema Changes".
    """
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema=ON")
    changed = connection.execute(
        sa.text(
            "UPDATE sqlite_master SET sql = replace(sql, :old, :new)"
            " WHERE type = 'table' AND name = 'blob_objects' AND instr(sql, :old) > 0"
        ),
        {"old": old, "new": new},
    )
    assert changed.rowcount == 1, "the table lacks the constraint that it was created with"
    connection.exec_driver_sql(f"PRAGMA schema_version={version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema=RESET")
