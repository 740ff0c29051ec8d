"""Keep names for a search by a part of them; and the days of accounts, and what is stale or grew.

All names are inserted here, in batches. Their terms are written by a worker after the start; until
it has caught up, an answer of the search says that it is not complete. The next measurement of
repositories writes what is stale and what grew.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_BATCH: Final = 5000
_HOLDS_BYTES: Final = sa.text("size_bytes > 0")
_IS_UNSETTLED: Final = sa.text("state <> 'indexed'")
_TRIGGERS: Final = (
    (
        "search_repository_added",
        "INSERT ON repositories",
        """
INSERT INTO search_names (account_id, repository_id, kind, name, state)
VALUES (NEW.account_id, NEW.id, 'repository', NEW.name, 'new')
ON CONFLICT (repository_id, kind, name) DO UPDATE SET state = 'indexed';
""",
    ),
    (
        "search_tag_added",
        "INSERT ON tags",
        """
INSERT INTO search_names (account_id, repository_id, kind, name, state)
SELECT account_id, repository_id, 'tag', NEW.name, 'new' FROM search_names
 WHERE repository_id = NEW.repository_id AND kind = 'repository'
ON CONFLICT (repository_id, kind, name) DO UPDATE SET state = 'indexed';
""",
    ),
    (
        "search_repository_gone",
        "DELETE ON repositories",
        """
DELETE FROM search_names
 WHERE repository_id = OLD.id AND kind = 'repository' AND name = OLD.name AND state = 'new';
UPDATE search_names SET state = 'gone'
 WHERE repository_id = OLD.id AND kind = 'repository' AND name = OLD.name;
""",
    ),
    (
        "search_tag_gone",
        "DELETE ON tags",
        """
DELETE FROM search_names
 WHERE repository_id = OLD.repository_id AND kind = 'tag' AND name = OLD.name AND state = 'new';
UPDATE search_names SET state = 'gone'
 WHERE repository_id = OLD.repository_id AND kind = 'tag' AND name = OLD.name;
""",
    ),
)
_ADD_REPOSITORIES: Final = sa.text(
    """
INSERT INTO search_names (account_id, repository_id, kind, name, state)
SELECT account_id, id, 'repository', name, 'new' FROM repositories
 WHERE id > :after ORDER BY id LIMIT :batch
"""
)
_LAST_REPOSITORY: Final = sa.text(
    """
SELECT max(id) FROM (SELECT id FROM repositories WHERE id > :after ORDER BY id LIMIT :batch)
    AS batch
"""
)
_ADD_TAGS: Final = sa.text(
    """
INSERT INTO search_names (account_id, repository_id, kind, name, state)
SELECT r.account_id, r.id, 'tag', t.name, 'new'
  FROM (SELECT repository_id, name FROM tags WHERE (repository_id, name) > (:repository, :after)
         ORDER BY repository_id, name LIMIT :batch) AS t
  JOIN repositories AS r ON r.id = t.repository_id
"""
)
_LAST_TAG: Final = sa.text(
    """
SELECT repository_id, name
  FROM (SELECT repository_id, name FROM tags WHERE (repository_id, name) > (:repository, :after)
         ORDER BY repository_id, name LIMIT :batch) AS t
 ORDER BY repository_id DESC, name DESC LIMIT 1
"""
)


def upgrade() -> None:
    name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "search_names",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", name, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.CheckConstraint("kind IN ('repository', 'tag')", name=op.f("ck_search_names_kind")),
        sa.CheckConstraint(
            "state IN ('new', 'indexed', 'gone')", name=op.f("ck_search_names_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_names")),
        sa.UniqueConstraint(
            "repository_id", "kind", "name", name=op.f("uq_search_names_repository_id_kind_name")
        ),
    )
    op.create_index(
        "ix_search_names_unsettled",
        "search_names",
        ["account_id", "id"],
        unique=False,
        sqlite_where=_IS_UNSETTLED,
        postgresql_where=_IS_UNSETTLED,
    )
    op.create_table(
        "search_terms",
        sa.Column("term", name, nullable=False),
        sa.Column("name_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("term", "name_id", name=op.f("pk_search_terms")),
        sqlite_with_rowid=False,
    )
    _insert_names()
    _create_activity()
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for trigger, when, body in _TRIGGERS:
        made = f"CREATE TRIGGER {trigger} AFTER {when} FOR EACH ROW"
        if is_postgresql:
            function = f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS"
            op.execute(f"{function} $$ BEGIN {body} RETURN NULL; END $$")
            op.execute(f"{made} EXECUTE FUNCTION {trigger}()")
        else:
            op.execute(f"{made} BEGIN {body} END")


def _create_activity() -> None:
    op.create_table(
        "account_days",
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("pulls", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "day", name=op.f("pk_account_days")),
    )
    op.create_index(op.f("ix_account_days_day"), "account_days", ["day"], unique=False)
    op.execute(
        "INSERT INTO account_days (account_id, day, size_bytes, pulls)"
        " SELECT account_id, day, sum(size_bytes), sum(pulls) FROM repository_days"
        " GROUP BY account_id, day"
    )
    op.create_table(
        "repository_activity",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_repository_activity_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", name=op.f("pk_repository_activity")),
    )
    op.create_index(
        "ix_repository_activity_used_at",
        "repository_activity",
        ["account_id", "used_at", "repository_id"],
        unique=False,
        sqlite_where=_HOLDS_BYTES,
        postgresql_where=_HOLDS_BYTES,
    )
    op.create_table(
        "repository_growth",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("span", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("size_before", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("change_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_repository_growth_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", "span", name=op.f("pk_repository_growth")),
    )
    op.create_index(
        op.f("ix_repository_growth_account_id_span_change_bytes_repository_id"),
        "repository_growth",
        ["account_id", "span", "change_bytes", "repository_id"],
        unique=False,
    )


def _insert_names() -> None:
    connection = op.get_bind()
    at = {"after": "", "batch": _BATCH}
    while (last := connection.execute(_LAST_REPOSITORY, at).scalar()) is not None:
        connection.execute(_ADD_REPOSITORIES, at)
        at["after"] = last
    at = {"repository": "", "after": "", "batch": _BATCH}
    while (row := connection.execute(_LAST_TAG, at).first()) is not None:
        connection.execute(_ADD_TAGS, at)
        at |= {"repository": row[0], "after": row[1]}


def downgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for trigger, when, _ in _TRIGGERS:
        if is_postgresql:
            op.execute(f"DROP TRIGGER {trigger} ON {when.split()[-1]}")
            op.execute(f"DROP FUNCTION {trigger}")
        else:
            op.execute(f"DROP TRIGGER {trigger}")
    for table in ("repository_growth", "repository_activity", "account_days"):
        op.drop_table(table)
    op.drop_table("search_terms")
    op.drop_table("search_names")
