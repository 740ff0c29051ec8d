"""Keep the names of repositories and tags for a search by a part of them.

All names are inserted here, in batches. Their terms are written by a worker after the start; until
it has caught up, an answer of the search says that it is not complete.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_BATCH: Final = 5000
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
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for trigger, when, body in _TRIGGERS:
        made = f"CREATE TRIGGER {trigger} AFTER {when} FOR EACH ROW"
        if is_postgresql:
            function = f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS"
            op.execute(f"{function} $$ BEGIN {body} RETURN NULL; END $$")
            op.execute(f"{made} EXECUTE FUNCTION {trigger}()")
        else:
            op.execute(f"{made} BEGIN {body} END")


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
    op.drop_table("search_terms")
    op.drop_table("search_names")
