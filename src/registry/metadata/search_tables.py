"""The tables behind the search for a part of a name, and the triggers that maintain them.

`search_names` has a row for each repository and each tag. Triggers insert and remove it with the
repository or tag itself, however that happens (a push, a restoration, a cascade), so no change of
a name runs one statement more. A tag that moves touches neither table.

`search_terms` has the beginnings of all places of a name: up to `TERM_LENGTH` characters from each
place on. A part of a name, of any length, is then a prefix of a term, and a page of matches is a
range of the primary key. Both databases do this alike, without an extension, and no account pays
for the names of another, which a trigram index of FTS5 or ``pg_trgm`` cannot promise.

Terms cost as many rows as a name has characters, at random places of the index. Written by the
push itself, a tag of 44 characters would change some 40 pages. So a worker writes and removes them
later, in batches; until then the search reads the few names whose `state` is not ``indexed``.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import DDL, BigInteger, String, UniqueConstraint, event, text

from cloudcore.db.schema import ByteOrdered, Id, one_of
from cloudcore.db.tables import RowNumber, columns, named_index, table
from registry.metadata.tables import repositories, tags

TERM_LENGTH: Final = 12
"""Characters of a name in a term. Of a longer text, the last ones are looked up."""

IS_UNSETTLED: Final = text("state <> 'indexed'")

search_names = table(
    "search_names",
    columns(RowNumber, "id KEY"),
    # No foreign key: a row outlives its repository until its terms are removed.
    columns(Id, "account_id, repository_id"),
    columns(ByteOrdered, "name"),
    columns(String(16), "kind, state"),
    UniqueConstraint("repository_id", "kind", "name"),
    one_of("kind", "repository", "tag"),
    # new: it has no terms yet; gone: its repository or tag is gone, but its terms are not.
    one_of("state", "new", "indexed", "gone"),
    named_index("unsettled", "account_id, id", "state <> 'indexed'"),
)

search_terms = table(
    "search_terms",
    # The last 12 digits of the account's id (all of a UUID that is random, so that terms are
    # short), the first letter of the kind, then the characters in lower case.
    columns(ByteOrdered, "term KEY"),
    columns(BigInteger, "name_id KEY"),
    sqlite_with_rowid=False,
)

# A tag's account is read from its repository's row here, not from `repositories`: SQLite could not
# rename that table while a trigger of another mentions it.
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

search_names.add_is_dependent_on(repositories)
search_names.add_is_dependent_on(tags)
for _name, _when, _body in _TRIGGERS:
    _trigger = f"CREATE TRIGGER {_name} AFTER {_when} FOR EACH ROW"
    _function = f"CREATE FUNCTION {_name}() RETURNS trigger LANGUAGE plpgsql AS"
    for _dialect, _made in (
        ("sqlite", f"{_trigger} BEGIN {_body} END"),
        ("postgresql", f"{_function} $$ BEGIN {_body} RETURN NULL; END $$"),
        ("postgresql", f"{_trigger} EXECUTE FUNCTION {_name}()"),
    ):
        _made_after = DDL(_made).execute_if(dialect=_dialect)  # type: ignore[no-untyped-call]
        event.listen(search_names, "after_create", _made_after)
