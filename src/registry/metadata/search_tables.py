"""The tables behind the search for a part of a name.

`search_names` has a row for each repository and each tag. Triggers, which the migrations create,
insert and delete the row with the repository or tag itself, whatever causes that (a push, a
restoration, a cascade), so no operation needs an extra statement. A tag that moves changes neither
table.

`search_terms` has a term for each position in a name: up to `TERM_LENGTH` characters from there on.
Any part of a name is then a prefix of a term, and a page of matches is a range of the primary key.
This works the same on both databases, without an extension, and the cost for an account does not
depend on other accounts' names, which a trigram index of FTS5 or ``pg_trgm`` cannot promise.

Terms cost as many rows as a name has characters, at random places of the index. Written by the push
itself, a tag of 44 characters would change some 40 pages. So a worker writes and removes them
later, in batches; until then the search reads the few names whose `state` is not ``indexed``.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, String, UniqueConstraint, text

from cloudcore.db.schema import ByteOrdered, Id, one_of
from cloudcore.db.tables import RowNumber, columns, named_index, table

TERM_LENGTH: Final = 12
"""The maximum number of characters in a term. Of a longer text, the last ones are looked up."""

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
    has_rowid=False,
)
