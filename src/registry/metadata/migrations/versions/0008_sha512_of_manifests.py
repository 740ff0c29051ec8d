"""Record the sha512 of every manifest beside its sha256.

A referrer may name its subject by one, and a client may ask for referrers by the other.
"""

from __future__ import annotations

import hashlib
from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_PAGE: Final = 50  # of up to 4 MiB each
_NEXT: Final = sa.text(
    "SELECT account_id, digest, body FROM manifest_bodies"
    " WHERE (account_id, digest) > (:account_id, :digest)"
    " ORDER BY account_id, digest LIMIT :page"
)
_ADD: Final = sa.text(
    "INSERT INTO digest_aliases (account_id, alias, digest)"
    " VALUES (:account_id, :alias, :digest) ON CONFLICT DO NOTHING"
)


def upgrade() -> None:
    connection = op.get_bind()
    after = {"account_id": "", "digest": ""}
    while rows := connection.execute(_NEXT, {**after, "page": _PAGE}).all():
        aliases = [
            {
                "account_id": account_id,
                "alias": f"sha512:{hashlib.sha512(body).hexdigest()}",
                "digest": digest,
            }
            for account_id, digest, body in rows
        ]
        connection.execute(_ADD, aliases)
        after = {"account_id": rows[-1][0], "digest": rows[-1][1]}


def downgrade() -> None:
    pass  # The rows stay: they are true, and some were there before.
