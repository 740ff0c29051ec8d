"""Create the tables of the first release.

Columns of a table stand by type, long texts and bytes last: SQLite reads a row from its beginning.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment

revision = "0001"
down_revision = None

_COLUMN: Final = re.compile(r"(\w+)( KEY)?( NULL)?(?: DEFAULT (\S+))?")
_REFUSED = "an event of the audit log is never changed"
_OF_FEW_REPOSITORIES: Final = (
    "deleted_manifests",
    "deleted_tags",
    "image_pins",
    "manifest_blobs",
    "manifest_children",
    "manifests",
    "repository_blobs",
    "tag_events",
    "tags",
    "uploads",
)
"""Tables of which PostgreSQL must not guess how many repositories have rows: a plan that is good
for a thousand repositories reads all rows of the largest."""
_Sequence: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# They keep `search_names` (`registry.metadata.search_tables`). A tag's account is read from its
# repository's row there, not from `repositories`: SQLite could not rename that table while a
# trigger of another mentions it.
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


def _columns(kind: Any, columns: str) -> list[sa.schema.SchemaItem]:  # noqa: ANN401 - a type or its class
    """Return columns of a type, listed as in SQL: ``a KEY, b, c NULL, d DEFAULT 0``.

    Only those with the word NULL may be null. Raise `ValueError` for other words.
    """
    return [_column(kind, each) for each in columns.split(", ")]


def _column(kind: Any, described: str) -> sa.Column[Any]:  # noqa: ANN401
    found = _COLUMN.fullmatch(described)
    if found is None:
        raise ValueError(f"{described!r} describes no column")
    name, key, null, default = found.groups()
    return sa.Column(
        name,
        kind,
        primary_key=key is not None,
        nullable=null is not None,
        server_default=None if default is None else sa.text(default),
    )


def _refers(column: str, table: str, ondelete: str | None = None) -> list[sa.schema.SchemaItem]:
    """Return a column with the id of a row of another table, and its foreign key."""
    name = column.split(maxsplit=1)[0]
    return [*_columns(Id, column), _foreign_key(name, f"{table} (id)", ondelete)]


def _of_account(column: str, table: str, ondelete: str | None = None) -> list[sa.schema.SchemaItem]:
    """Return a column like `_refers`; the other row is of the same account."""
    name = column.split(maxsplit=1)[0]
    target = f"{table} (id, account_id)"
    key = _foreign_key(f"{name}, account_id", target, ondelete, name=name.removesuffix("_id"))
    return [*_columns(Id, column), key]


def _foreign_key(
    columns: str, target: str, ondelete: str | None = None, *, name: str | None = None
) -> sa.ForeignKeyConstraint:
    """Return a foreign key of the columns ``a, b``, as SQL lists them, to ``table (c, d)``."""
    table, named = target.removesuffix(")").split(" (")
    referred = [f"{table}.{column}" for column in named.split(", ")]
    return sa.ForeignKeyConstraint(columns.split(", "), referred, name=name, ondelete=ondelete)


def _unique(columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns.split(", "))


def _check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=name)


def _one_of(column: str, values: str) -> sa.CheckConstraint:
    """Return the check that a column has one of the texts ``a, b``."""
    listed = ", ".join(f"'{each}'" for each in values.split(", "))
    return _check(column, f"{column} IN ({listed})")


def _not_negative(columns: str) -> list[sa.schema.SchemaItem]:
    return [_check(column, f"{column} >= 0") for column in columns.split(", ")]


def _index(*each: str) -> list[sa.schema.SchemaItem]:
    """Return indexes, each on the columns ``a, b``."""
    return [sa.Index(None, *columns.split(", ")) for columns in each]


def _named_index(
    name: str, columns: str, where: str | None = None, *, is_unique: bool = False
) -> sa.Index:
    """Return an index, which is partial if there is a condition."""
    condition = None if where is None else sa.text(where)
    return sa.Index(
        name,
        *columns.split(", "),
        unique=is_unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _unique_index(name: str, columns: str, where: str | None = None) -> sa.Index:
    return _named_index(name, columns, where, is_unique=True)


def _table(
    name: str, *parts: sa.schema.SchemaItem | list[sa.schema.SchemaItem], **options: bool
) -> None:
    """Create a table and its indexes; its key is the column ``id``, if no column has the word KEY.

    The names of foreign keys and indexes follow the name of the table.
    """
    items = [item for part in parts for item in (part if isinstance(part, list) else [part])]
    if not any(isinstance(item, sa.Column) and item.primary_key for item in items):
        items.insert(0, _column(Id, "id KEY"))
    for item in items:
        if isinstance(item, sa.ForeignKeyConstraint) and item.name is not None:
            item.name = f"fk_{name}_{item.name}"
        elif isinstance(item, sa.Index) and item.name is not None:
            prefix = "uq" if item.unique else "ix"
            item.name = sa.quoted_name(f"{prefix}_{name}_{item.name}", None)
    op.create_table(name, *items, **options)


def _resource_table(name: str, *parts: sa.schema.SchemaItem | list[sa.schema.SchemaItem]) -> None:
    """Create the table of a described kind of resource, with more columns and constraints."""
    _table(
        name,
        _refers("account_id", "accounts"),
        _columns(ByteOrdered, "region"),
        _columns(Moment, "created_at, updated_at"),
        *parts,
        _unique("id, account_id"),
        _index("account_id, id"),
    )


def upgrade() -> None:
    _create_tables()
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    changed = "BEFORE UPDATE ON audit_events FOR EACH ROW WHEN"
    if is_postgresql:
        for table in _OF_FEW_REPOSITORIES:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN repository_id SET (n_distinct = 2)")
        op.execute(
            "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
        )
        op.execute(
            f"CREATE TRIGGER audit_events_unchanged {changed}"
            " (OLD.outcome <> 'refused' OR NEW.outcome <> 'refused')"
            " EXECUTE FUNCTION refuse_audit_change()"
        )
    else:
        op.execute(
            f"CREATE TRIGGER audit_events_unchanged {changed}"
            " OLD.outcome <> 'refused' OR NEW.outcome <> 'refused'"
            f" BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
        )
    for trigger, when, body in _TRIGGERS:
        made = f"CREATE TRIGGER {trigger} AFTER {when} FOR EACH ROW"
        if is_postgresql:
            function = f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS"
            op.execute(f"{function} $$ BEGIN {body} RETURN NULL; END $$")
            op.execute(f"{made} EXECUTE FUNCTION {trigger}()")
        else:
            op.execute(f"{made} BEGIN {body} END")


def _create_tables() -> None:
    _table(
        "account_days",
        _columns(Id, "account_id KEY"),
        _columns(sa.Integer, "day KEY"),
        _columns(sa.BigInteger, "size_bytes, pulls"),
        _index("day"),
    )
    _table(
        "audit_events",
        _columns(Id, "owner_id"),
        _columns(ByteOrdered, "action, resource, principal, source_crn NULL, source_name NULL"),
        _columns(sa.String(16), "plane NULL, outcome"),
        _columns(sa.Integer, "times"),
        _columns(Moment, "occurred_at, last_at"),
        _columns(sa.Text, "resources NULL, session_name NULL, source_ip NULL, user_agent NULL"),
        _columns(sa.Text, "request_id NULL, details, refusal_key NULL"),
        _one_of("outcome", "succeeded, refused"),
        _check("refusal_key", "(outcome = 'refused') = (refusal_key IS NOT NULL)"),
        _check("times", "times = 1 OR outcome = 'refused'"),
        _index("occurred_at"),
        _named_index("owner", "owner_id, occurred_at, id"),
        _named_index("resource", "owner_id, resource, occurred_at, id"),
        _unique_index("refusal", "refusal_key", "refusal_key IS NOT NULL"),
    )
    _table(
        "certificate_authorities",
        _columns(sa.String(8), "role"),
        _columns(sa.Integer, "generation, list_number"),
        _columns(Moment, "listed_at, expires_at"),
        _columns(sa.LargeBinary, "certificate, private_key, revocation_list"),
        _unique("role, generation"),
        _one_of("role", "root, issuing"),
    )
    _table("closed_months", _columns(Moment, "month KEY, closed_at"))
    _table(
        "embedded_charges",
        _columns(sa.String(3), "currency"),
        _columns(Moment, "charged_at"),
        _columns(sa.Text, "amount, decline"),
    )
    _table("ended_uploads", sqlite_with_rowid=False)
    _table("fleet_settings", _columns(ByteOrdered, "name KEY"), _columns(sa.Text, "value"))
    _table(
        "idempotency_records",
        _columns(Id, "principal KEY, lease_token"),
        _columns(ByteOrdered, "operation KEY, key KEY"),
        _columns(sa.String(16), "state"),
        _columns(sa.String(64), "fingerprint"),
        _columns(sa.Integer, "status NULL"),
        _columns(Moment, "lease_until, created_at"),
        _columns(sa.LargeBinary, "outcome_sealed NULL"),
        _check("completed_outcome", "(state = 'completed') = (outcome_sealed IS NOT NULL)"),
        _check("completed_status", "(state = 'completed') = (status IS NOT NULL)"),
        _one_of("state", "in_progress, completed"),
        _index("created_at"),
    )
    _table("inline_bytes", _columns(Id, "stored_id KEY"), _columns(sa.LargeBinary, "body"))
    _table(
        "nodes",
        _columns(ByteOrdered, "name KEY"),
        _columns(Id, "identity"),
        _columns(sa.Boolean, "is_lost, is_noted"),
        _columns(Moment, "seen_at, stopped_at NULL"),
        _columns(sa.Text, "capabilities"),
    )
    _table(
        "organizations",
        _columns(ByteOrdered, "name"),
        _columns(sa.Boolean, "is_personal"),
        _columns(Moment, "created_at, updated_at"),
    )
    _table(
        "quota_defaults",
        _columns(ByteOrdered, "name KEY"),
        _columns(sa.BigInteger, "maximum"),
        _columns(Moment, "updated_at"),
        _not_negative("maximum"),
    )
    _table(
        "rate_windows",
        _columns(ByteOrdered, "endpoint KEY, subject KEY"),
        _columns(sa.BigInteger, "count, refused"),
        _columns(Moment, "window_ends_at"),
        _index("window_ends_at"),
    )
    _table(
        "revoked_tokens",
        _columns(Id, "jti KEY"),
        _columns(Moment, "expires_at"),
        _index("expires_at"),
    )
    _table(
        "schedules",
        _columns(ByteOrdered, "name KEY"),
        _columns(Id, "lease_token NULL, lease_holder NULL"),
        _columns(Moment, "due_at, ended_at NULL"),
        _columns(sa.Text, "fault NULL"),
    )
    _table(
        "search_terms",
        _columns(ByteOrdered, "term KEY"),
        _columns(sa.BigInteger, "name_id KEY"),
        sqlite_with_rowid=False,
    )
    _table(
        "signing_keys",
        _columns(sa.String(64), "kid KEY"),
        _columns(sa.String(16), "audience, algorithm"),
        _columns(Moment, "created_at, not_after"),
        _columns(sa.LargeBinary, "material_sealed"),
        _index("audience, not_after"),
    )
    _table(
        "spent_states",
        _columns(sa.String(64), "state_sha256 KEY"),
        _columns(Moment, "expires_at"),
        _index("expires_at"),
    )
    _table(
        "store_generations",
        _columns(Moment, "noted_at, accepted_at NULL"),
        _index("accepted_at", "noted_at"),
    )
    _table(
        "usage_hours",
        _columns(Id, "account_id KEY"),
        _columns(sa.Integer, "hour KEY"),
        _columns(ByteOrdered, "sku KEY, region KEY"),
        _columns(sa.BigInteger, "quantity"),
        _check("quantity", "quantity > 0"),
        _index("hour"),
    )
    _table(
        "usage_samples",
        _columns(ByteOrdered, "sku KEY"),
        _columns(sa.Integer, "hour KEY"),
        _index("hour"),
    )
    _table(
        "accounts",
        _refers("organization_id NULL", "organizations"),
        _columns(ByteOrdered, "handle"),
        _columns(sa.String(16), "status"),
        _columns(sa.Boolean, "auto_create_repositories"),
        _columns(sa.BigInteger, "iam_revision DEFAULT 0"),
        _columns(Moment, "created_at"),
        _unique("handle"),
        _one_of("status", "active, suspended"),
        _index("organization_id"),
    )
    _table(
        "certificate_revocations",
        _columns(ByteOrdered, "serial KEY"),
        _refers("authority_id KEY", "certificate_authorities"),
        _columns(Moment, "revoked_at, expires_at"),
        _named_index("authority_id", "authority_id, expires_at"),
    )
    _table(
        "identity_providers",
        _refers("organization_id", "organizations", "CASCADE"),
        _columns(ByteOrdered, "name"),
        _columns(sa.String(16), "status"),
        _columns(sa.Boolean, "creates_people"),
        _columns(sa.BigInteger, "session_hours DEFAULT 168"),
        _columns(Moment, "created_at, updated_at"),
        _columns(sa.Text, "issuer, client_id, scopes, groups_claim, email_verified_claim"),
        _columns(sa.Text, "email_domains"),
        _columns(sa.LargeBinary, "client_secret_sealed NULL"),
        _unique("organization_id, name"),
        _one_of("status", "active, inactive"),
        _index("name"),
    )
    _table(
        "invitations",
        _refers("organization_id", "organizations", "CASCADE"),
        _columns(ByteOrdered, "email"),
        _columns(sa.String(16), "role"),
        _columns(sa.String(64), "code_sha256"),
        _columns(Moment, "created_at, expires_at"),
        _unique("organization_id, email"),
        _one_of("role", "owner, member, billing"),
        _index("expires_at"),
    )
    _table(
        "invoices",
        _refers("organization_id", "organizations"),
        _columns(sa.String(3), "currency"),
        _columns(sa.String(16), "status"),
        _columns(sa.Integer, "attempts"),
        _columns(Moment, "period_start, period_end, due_at, charge_at NULL, paid_at NULL"),
        _columns(Moment, "created_at, updated_at"),
        _columns(sa.Text, "total"),
        _unique("organization_id, period_start, currency"),
        _check("paid_at", "(status = 'paid') = (paid_at IS NOT NULL)"),
        _one_of("status", "open, paid, failed, void"),
        _index("organization_id, id"),
    )
    _table(
        "payment_customers",
        _refers("organization_id KEY", "organizations", "CASCADE"),
        _columns(sa.String(16), "processor KEY"),
        _columns(sa.Text, "reference"),
    )
    _table(
        "payment_methods",
        _refers("organization_id", "organizations", "CASCADE"),
        _columns(sa.String(4), "last4 NULL"),
        _columns(sa.String(16), "type, processor"),
        _columns(sa.Boolean, "is_default"),
        _columns(sa.Integer, "exp_month NULL, exp_year NULL"),
        _columns(Moment, "created_at, updated_at"),
        _columns(sa.Text, "display_name, brand NULL, reference"),
        _one_of("type", "card, sepa_debit"),
        _index("organization_id, id"),
        _unique_index("default", "organization_id", "is_default"),
    )
    _table(
        "users",
        _refers("home_organization_id NULL", "organizations", "SET NULL"),
        _refers("organization_id", "organizations"),
        _columns(ByteOrdered, "email"),
        _columns(sa.String(16), "status"),
        _columns(sa.Boolean, "must_change_password"),
        _columns(Moment, "created_at, updated_at"),
        _columns(sa.Text, "password"),
        _unique("home_organization_id, email"),
        _unique("id, email"),
        _one_of("status", "active, suspended"),
        _index("email"),
    )
    _table(
        "auth_codes",
        _columns(sa.String(64), "code_sha256 KEY, client_id"),
        _refers("user_id", "users", "CASCADE"),
        _columns(Id, "sid NULL, identity_provider_id NULL"),
        _columns(sa.String(128), "code_challenge"),
        _columns(Moment, "created_at, expires_at, spent_at NULL"),
        _columns(sa.Text, "redirect_uri"),
        _index("expires_at"),
    )
    _table(
        "billed_usage",
        _refers("account_id KEY", "accounts"),
        _columns(ByteOrdered, "region KEY, sku KEY"),
        _columns(Moment, "month KEY"),
        _columns(sa.BigInteger, "quantity"),
    )
    _table(
        "blob_objects",
        _refers("account_id", "accounts"),
        _columns(Id, "stored_id"),
        _columns(DigestText, "digest"),
        _columns(sa.String(16), "encoding, state, damage NULL"),
        _columns(sa.String(64), "checksum NULL"),
        _columns(sa.Boolean, "is_current, is_inline DEFAULT false"),
        _columns(sa.BigInteger, "size, stored_size"),
        _columns(Moment, "condemned_at NULL, created_at, verified_at DEFAULT 0, damaged_at NULL"),
        _unique("id, account_id, digest, size"),
        _not_negative("size"),
        _one_of("encoding", "plain, sealed"),
        _one_of("state", "live, condemned, shredded"),
        _named_index("condemned", "account_id, condemned_at", "state = 'condemned'"),
        _named_index("damaged", "account_id, digest", "damage IS NOT NULL"),
        _named_index("plain", "account_id, id", "encoding = 'plain'"),
        _named_index("replaced", "account_id, id", "NOT is_current"),
        _named_index("verified_at", "verified_at, id", "damage IS NULL AND state <> 'shredded'"),
        _unique_index("current_digest", "account_id, digest", "is_current"),
        _unique_index("stored_id", "stored_id"),
    )
    _table(
        "certificate_settings",
        _refers("account_id KEY", "accounts"),
        _columns(sa.Boolean, "private_key_export"),
        _columns(Moment, "updated_at"),
    )
    _resource_table(
        "certificates",
        _columns(Id, "kms_key_id NULL"),
        _columns(ByteOrdered, "name"),
        _columns(sa.String(8), "source"),
        _columns(sa.String(10), "key_algorithm"),
        _columns(sa.String(16), "issuer"),
        _columns(sa.String(20), "status"),
        _columns(sa.String(64), "fingerprint NULL"),
        _columns(sa.Boolean, "is_recheck_asked"),
        _columns(sa.Integer, "warned_days NULL"),
        _columns(Moment, "private_key_exported_at NULL, issued_at NULL, expires_at NULL"),
        _columns(Moment, "renew_at NULL, revocation_asked_at NULL"),
        _columns(sa.Text, "faults, domains, challenges, certificate_pem NULL, chain_pem NULL"),
        _columns(sa.Text, "tags"),
        _columns(sa.LargeBinary, "private_key NULL, csr NULL"),
        _unique("account_id, region, name"),
        _check(
            "certificate_pem",
            "(certificate_pem IS NULL) = (status IN ('pending_validation', 'issuing', 'failed'))",
        ),
        _check("csr", "csr IS NULL OR source = 'acme'"),
        _check("expires_at", "(certificate_pem IS NULL) = (expires_at IS NULL)"),
        _check("issuer", "(source = 'uploaded') = (issuer = '')"),
        _check(
            "private_key",
            "(private_key IS NOT NULL) = (certificate_pem IS NOT NULL AND csr IS NULL)",
        ),
        _check(
            "private_key_exported_at",
            "private_key_exported_at IS NULL OR (private_key IS NOT NULL AND source = 'acme')",
        ),
        _check(
            "renew_at", "renew_at IS NULL OR (source = 'acme' AND status IN ('active', 'expired'))"
        ),
        _one_of("source", "acme, uploaded"),
        _one_of("status", "pending_validation, issuing, active, expired, revoked, failed"),
        _named_index("expires_at", "expires_at", "status = 'active'"),
        _named_index("renew_at", "renew_at", "renew_at IS NOT NULL"),
    )
    _resource_table(
        "database_clusters",
        _columns(Id, "bucket NULL"),
        _columns(ByteOrdered, "status, node, name"),
        _columns(sa.Boolean, "has_data, is_wanted"),
        _columns(sa.Integer, "memory_mb, cpu_millis, disk_mb, port NULL"),
        _columns(sa.BigInteger, "version NULL, generation, applied"),
        _columns(Moment, "checked_at NULL, check_at NULL"),
        _columns(sa.Text, "faults, engine, type, description, schedule NULL, retention NULL, tags"),
        _columns(sa.Text, "bucket_name, endpoint NULL, host NULL, ca NULL, source NULL"),
        _columns(sa.LargeBinary, "secret NULL"),
        _check("applied", "applied <= generation"),
        _check("endpoint", "(type = 'registered') = (endpoint IS NOT NULL)"),
        _check("port", "(type = 'managed') = (port IS NOT NULL)"),
        _one_of("status", "provisioning, active, updating, stopped, unavailable, deleting"),
        _one_of("type", "managed, registered"),
        _index("node, id"),
        _unique_index("name", "account_id, region, name"),
        _named_index("check_at", "check_at, id", "check_at IS NOT NULL"),
        _unique_index("node_port", "node, port", "port IS NOT NULL"),
    )
    _table(
        "digest_aliases",
        _refers("account_id KEY", "accounts"),
        _columns(DigestText, "alias KEY, digest"),
        _index("account_id, digest"),
    )
    _resource_table(
        "email_messages",
        _columns(Id, "identity_id, template_id NULL"),
        _columns(ByteOrdered, "status, identity"),
        _columns(Moment, "ended_at NULL"),
        _columns(sa.Text, "sender, to, cc, bcc, subject, template_name NULL"),
        _check("ended_at", "(status IN ('queued', 'deferred')) = (ended_at IS NULL)"),
        _one_of("status", "queued, deferred, complained, bounced, sent, suppressed"),
        _named_index("ended_at", "ended_at", "ended_at IS NOT NULL"),
        _named_index("identity", "account_id, identity_id, id"),
        _named_index("waiting", "account_id", "status IN ('queued', 'deferred')"),
    )
    _table(
        "email_rates",
        _refers("account_id KEY", "accounts"),
        _columns(Id, "identity_id KEY"),
        _columns(sa.Integer, "accepted"),
        _columns(sa.BigInteger, "second"),
        _index("second"),
    )
    _resource_table(
        "email_templates",
        _columns(ByteOrdered, "name"),
        _columns(sa.Text, "description, subject, html NULL, text NULL, variables, tags"),
        _unique_index("name", "account_id, region, name"),
    )
    _resource_table(
        "event_rules",
        _columns(ByteOrdered, "topic, repository_prefix"),
        _columns(sa.Text, "event_types"),
        _unique("account_id, topic, repository_prefix, event_types"),
    )
    _resource_table(
        "instance_pools",
        _columns(Id, "role NULL, subnet NULL, vpc_id NULL"),
        _columns(ByteOrdered, "node, name"),
        _columns(sa.Integer, "size, memory_mb, cpu_millis"),
        _columns(sa.BigInteger, "generation, fetched"),
        _columns(Moment, "deleted_at NULL"),
        _columns(sa.Text, "status, faults, image, description, command, environment, ports"),
        _columns(sa.Text, "security_groups, tags, image_digest NULL, names"),
        _check("fetched", "fetched <= generation"),
        _check("size", "size >= 0 AND size <= 20"),
        _one_of("status", "provisioning, active, scaling, degraded, deleting"),
        _index("node, id"),
        _named_index("deleted_at", "deleted_at", "deleted_at IS NOT NULL"),
        _unique_index("name", "account_id, region, name", "deleted_at IS NULL"),
    )
    _table(
        "invoice_charges",
        _refers("invoice_id", "invoices", "CASCADE"),
        _columns(Id, "organization_id, payment_method_id"),
        _columns(sa.String(3), "currency"),
        _columns(sa.String(16), "processor, state"),
        _columns(sa.String(64), "request_key NULL"),
        _columns(Moment, "created_at, ended_at NULL"),
        _columns(sa.Text, "method, method_reference, amount, reference NULL, code NULL"),
        _columns(sa.Text, "message NULL"),
        _unique("invoice_id, request_key"),
        _check("ended_at", "(state = 'pending') = (ended_at IS NULL)"),
        _one_of("state", "pending, succeeded, declined"),
        _named_index("pending", "payment_method_id", "state = 'pending'"),
        _unique_index("live", "invoice_id", "state IN ('pending', 'succeeded')"),
    )
    _table(
        "invoice_lines",
        _refers("invoice_id KEY", "invoices", "CASCADE"),
        _columns(sa.Integer, "position KEY"),
        _refers("account_id", "accounts"),
        _columns(ByteOrdered, "region, sku"),
        _columns(Moment, "month"),
        _columns(sa.Text, "unit, quantity, unit_amount, amount"),
        _index("account_id"),
    )
    _resource_table(
        "ip_pools",
        _columns(ByteOrdered, "name"),
        _columns(sa.Text, "description, tags"),
        _unique_index("name", "account_id, region, name"),
    )
    _table(
        "jobs",
        _refers("account_id NULL", "accounts"),
        _columns(Id, "lease_token NULL, lease_holder NULL"),
        _columns(ByteOrdered, "kind, dedup_key NULL, resource NULL"),
        _columns(sa.String(16), "state"),
        _columns(sa.Integer, "attempts"),
        _columns(Moment, "due_at NULL, wake_at NULL, created_at, updated_at, finished_at NULL"),
        _columns(sa.Text, "arguments, cursor, fault NULL"),
        _check("due_at", "(state IN ('queued', 'running')) = (due_at IS NOT NULL)"),
        _check("fault", "state <> 'failed' OR fault IS NOT NULL"),
        _check("finished_at", "(due_at IS NULL) = (finished_at IS NOT NULL)"),
        _check("lease_token", "lease_token IS NULL OR state = 'running'"),
        _one_of("state", "queued, running, succeeded, failed"),
        _named_index("due", "due_at", "due_at IS NOT NULL"),
        _named_index("finished", "finished_at", "finished_at IS NOT NULL"),
        _named_index("held", "lease_holder", "lease_holder IS NOT NULL"),
        _unique_index("unfinished", "kind, dedup_key", "state IN ('queued', 'running')"),
    )
    _resource_table(
        "kms_keys",
        _columns(ByteOrdered, "name NULL"),
        _columns(sa.String(16), "key_spec, origin"),
        _columns(sa.String(24), "state, key_usage"),
        _columns(sa.Integer, "current_version"),
        _columns(Moment, "deletion_at NULL"),
        _columns(sa.Text, "description, tags"),
        _unique("id, name"),
        _check("current_version", "current_version > 0"),
        _check("deleted_name", "(state = 'deleted') = (name IS NULL)"),
        _check(
            "deletion_at", "(state IN ('pending_deletion', 'deleted')) = (deletion_at IS NOT NULL)"
        ),
        _one_of("key_spec", "aes-256, hmac-256, rsa-2048, rsa-4096, ecdsa-p256"),
        _one_of("key_usage", "encrypt_decrypt, generate_verify_mac, sign_verify"),
        _one_of("origin", "customer, platform"),
        _check("platform_state", "origin = 'customer' OR state = 'enabled'"),
        _one_of("state", "enabled, disabled, pending_deletion, deleted"),
        _named_index("deleted", "id", "state = 'deleted'"),
        _named_index("deletion_at", "deletion_at", "state = 'pending_deletion'"),
        _unique_index("name", "account_id, region, name", "name IS NOT NULL"),
        _unique_index("platform", "account_id", "origin = 'platform'"),
    )
    _resource_table(
        "load_balancers",
        _columns(Id, "interface_id NULL, role_id NULL"),
        _columns(ByteOrdered, "status, name"),
        _columns(sa.Integer, "replica_count"),
        _columns(sa.BigInteger, "generation, applied"),
        _columns(sa.Text, "faults, node, description, vip, tags, vpc, subnet, security_groups"),
        _columns(sa.Text, "listeners, backends, fingerprints, replicas, targets"),
        _check("replica_count", "replica_count BETWEEN 1 AND 4"),
        _one_of("status", "provisioning, active, updating, degraded, failed, deleting"),
        _unique_index("name", "account_id, region, name"),
        _named_index("node", "node, id"),
    )
    _table(
        "manifest_bodies",
        _refers("account_id KEY", "accounts"),
        _columns(DigestText, "digest KEY"),
        _columns(sa.LargeBinary, "body"),
    )
    _table(
        "memberships",
        _refers("organization_id KEY", "organizations", "CASCADE"),
        _columns(Id, "user_id KEY"),
        _columns(ByteOrdered, "email"),
        _columns(sa.String(16), "role"),
        _columns(Moment, "created_at"),
        _foreign_key("user_id, email", "users (id, email)", "CASCADE"),
        _unique("organization_id, email"),
        _one_of("role", "owner, member, billing"),
        _index("user_id"),
    )
    _table(
        "missing_topics",
        _refers("account_id KEY", "accounts"),
        _columns(ByteOrdered, "crn KEY"),
        _columns(sa.BigInteger, "events"),
        _columns(Moment, "first_at, last_at"),
        _index("last_at"),
    )
    _table(
        "outbox",
        _columns(_Sequence, "sequence KEY"),
        _refers("account_id", "accounts"),
        _columns(Id, "id"),
        _columns(ByteOrdered, "type"),
        _columns(Moment, "created_at, delivered_at NULL"),
        _columns(sa.Text, "payload"),
        _unique("id"),
        _named_index("delivered", "delivered_at", "delivered_at IS NOT NULL"),
        _named_index("pending", "account_id, sequence", "delivered_at IS NULL"),
        _named_index("undelivered", "created_at", "delivered_at IS NULL"),
    )
    _table(
        "policies",
        _refers("account_id", "accounts"),
        _columns(ByteOrdered, "name"),
        _columns(sa.BigInteger, "revision"),
        _columns(Moment, "created_at, updated_at"),
        _columns(sa.Text, "description, document, account_ids DEFAULT '{}'"),
        _unique("account_id, name"),
        _unique("id, account_id"),
    )
    _table(
        "provider_subjects",
        _refers("provider_id KEY", "identity_providers", "CASCADE"),
        _columns(ByteOrdered, "subject KEY"),
        _refers("user_id", "users", "CASCADE"),
        _columns(Moment, "created_at"),
        _unique("provider_id, user_id"),
        _index("user_id"),
    )
    _resource_table(
        "pull_through_cache_rules",
        _columns(ByteOrdered, "prefix"),
        _columns(sa.Boolean, "enabled"),
        _columns(sa.Integer, "tag_ttl_seconds, negative_ttl_seconds, keep_unpulled_days NULL"),
        _columns(sa.BigInteger, "max_bytes NULL"),
        _columns(Moment, "last_success_at NULL"),
        _columns(sa.Text, "upstream_url, upstream_prefix, username NULL"),
        _columns(sa.LargeBinary, "secret_sealed NULL"),
        _unique("account_id, prefix"),
        _check("credential", "(username IS NULL) = (secret_sealed IS NULL)"),
    )
    _table(
        "quarantined_objects",
        _refers("account_id", "accounts"),
        _columns(Id, "stored_id"),
        _columns(DigestText, "digest"),
        _columns(sa.String(16), "encoding"),
        _columns(sa.String(64), "checksum NULL"),
        _columns(sa.Boolean, "is_inline DEFAULT false"),
        _columns(sa.BigInteger, "size, stored_size"),
        _columns(Moment, "swept_at, removal_began_at NULL"),
        _index("account_id, digest", "account_id, swept_at"),
        _unique_index("stored_id", "stored_id"),
    )
    _resource_table(
        "queues",
        _of_account("dead_letter_queue_id NULL", "queues"),
        _columns(ByteOrdered, "name"),
        _columns(sa.Integer, "retention_seconds, lease_seconds, delay_seconds, max_leases NULL"),
        _columns(sa.BigInteger, "purged_through"),
        _columns(Moment, "deleted_at NULL"),
        _columns(sa.Text, "description, tags"),
        _not_negative("delay_seconds"),
        _check("dead_letter_queue_id", "dead_letter_queue_id <> id"),
        _check("lease_seconds", "lease_seconds > 0"),
        _check("max_leases", "max_leases > 0"),
        _check("redrive_policy", "(dead_letter_queue_id IS NULL) = (max_leases IS NULL)"),
        _check("retention_seconds", "retention_seconds > 0"),
        _named_index(
            "dead_letter_queue_id", "dead_letter_queue_id", "dead_letter_queue_id IS NOT NULL"
        ),
        _named_index("deleted", "id", "deleted_at IS NOT NULL"),
        _unique_index("name", "account_id, region, name", "deleted_at IS NULL"),
    )
    _table(
        "quota_levels",
        _refers("account_id KEY", "accounts"),
        _columns(ByteOrdered, "name KEY"),
        _columns(sa.Integer, "percent"),
        _check("percent", "percent IN (0, 80, 100)"),
    )
    _table(
        "quotas",
        _refers("account_id KEY", "accounts"),
        _columns(ByteOrdered, "name KEY"),
        _columns(sa.BigInteger, "maximum"),
        _columns(Moment, "updated_at"),
        _not_negative("maximum"),
    )
    _table(
        "registry_settings",
        _refers("account_id KEY", "accounts"),
        _columns(sa.Boolean, "access_key_login DEFAULT false"),
        _columns(sa.Integer, "undelete_days"),
        _columns(Moment, "updated_at"),
        _columns(sa.Text, "uncounted_pullers"),
        _check("undelete_days", "undelete_days BETWEEN 0 AND 90"),
    )
    _table(
        "repositories",
        _refers("account_id", "accounts"),
        _columns(ByteOrdered, "name"),
        _columns(sa.String(16), "tag_mutability"),
        _columns(sa.String(32), "source"),
        _columns(sa.Boolean, "is_sparse DEFAULT false"),
        _columns(sa.BigInteger, "image_count DEFAULT 0, tag_count DEFAULT 0"),
        _columns(sa.BigInteger, "tagged_image_count DEFAULT 0, size_bytes DEFAULT 0"),
        _columns(sa.BigInteger, "deleted_image_count DEFAULT 0, deleted_tag_count DEFAULT 0"),
        _columns(sa.BigInteger, "revision DEFAULT 0"),
        _columns(Moment, "created_at, updated_at, deleted_at NULL, restorable_until NULL"),
        _columns(sa.Text, "description NULL, tags DEFAULT '{}'"),
        _columns(sa.Text, "immutable_tag_exclusions DEFAULT '[]', deleted_by NULL"),
        _columns(sa.Text, "deleted_by_source NULL"),
        _unique("id, account_id"),
        _not_negative("deleted_image_count, deleted_tag_count, image_count, size_bytes"),
        _not_negative("tag_count, tagged_image_count"),
        _one_of("source", "user, push, pull_through_cache"),
        _one_of("tag_mutability", "mutable, immutable"),
        _named_index("deleted", "account_id, id", "deleted_at IS NOT NULL"),
        _named_index("restorable", "account_id, restorable_until", "restorable_until IS NOT NULL"),
        _named_index("restorable_until", "restorable_until", "restorable_until IS NOT NULL"),
        _unique_index("live_name", "account_id, name", "deleted_at IS NULL"),
    )
    _table(
        "repository_folders",
        _refers("account_id KEY", "accounts"),
        _columns(ByteOrdered, "folder KEY"),
        _columns(sa.BigInteger, "repository_count"),
        _not_negative("repository_count"),
    )
    _table(
        "roles",
        _refers("account_id", "accounts"),
        _columns(ByteOrdered, "name"),
        _columns(sa.BigInteger, "max_session_seconds"),
        _columns(Moment, "created_at, updated_at, last_used_at NULL"),
        _columns(sa.Text, "description, trust_policy, trust_ids DEFAULT '{}'"),
        _unique("account_id, name"),
        _unique("id, account_id"),
        _check("max_session_seconds", "max_session_seconds BETWEEN 3600 AND 43200"),
    )
    _table(
        "runs",
        _refers("account_id", "accounts"),
        _columns(Id, "scope_id"),
        _columns(ByteOrdered, "kind"),
        _columns(sa.String(16), "state"),
        _columns(sa.BigInteger, "done, total NULL"),
        _columns(Moment, "started_at, finished_at NULL"),
        _columns(sa.Text, "arguments, counts, faults, fault NULL, started_by"),
        _columns(sa.Text, "started_by_source NULL"),
        _check("finished_at", "(state = 'running') = (finished_at IS NULL)"),
        _one_of("state", "running, succeeded, failed"),
        _index("scope_id, kind, id"),
        _unique_index("running", "scope_id, kind", "state = 'running'"),
    )
    _table(
        "service_accounts",
        _refers("account_id", "accounts"),
        _columns(ByteOrdered, "name"),
        _columns(sa.String(16), "status"),
        _columns(Moment, "created_at, updated_at"),
        _columns(sa.Text, "description"),
        _unique("account_id, name"),
        _unique("id, account_id"),
        _one_of("status", "active, suspended"),
    )
    _table(
        "storage_account_bytes",
        _refers("account_id KEY", "accounts"),
        _columns(sa.Integer, "shard KEY"),
        _columns(sa.BigInteger, "bytes"),
    )
    _table(
        "stored_bytes",
        _refers("account_id KEY", "accounts"),
        _columns(sa.BigInteger, "bytes"),
        _not_negative("bytes"),
    )
    _resource_table(
        "suppressions",
        _columns(ByteOrdered, "reason, folded"),
        _columns(Moment, "expires_at NULL"),
        _columns(sa.Text, "address, description, source_message_id NULL"),
        _one_of("reason", "auto_bounce, auto_complaint, unsubscribe, manual"),
        _unique_index("folded", "account_id, region, folded"),
    )
    _resource_table(
        "topics",
        _columns(ByteOrdered, "name"),
        _columns(sa.Text, "description, tags, delivery_policy"),
        _unique("account_id, region, name"),
    )
    _resource_table(
        "vpcs",
        _columns(ByteOrdered, "name, cidr_ipv6 NULL"),
        _columns(sa.BigInteger, "generation, checked, applied"),
        _columns(sa.Text, "status, faults, node, description, cidr_ipv4, tags"),
        _one_of("status", "provisioning, active, degraded, deleting"),
        _index("node, id"),
        _unique_index("name", "account_id, region, name"),
        _unique_index("cidr_ipv6", "cidr_ipv6", "cidr_ipv6 < 'f'"),
    )
    _table(
        "waiting_events",
        _columns(Id, "event_id KEY"),
        _columns(ByteOrdered, "crn KEY, type"),
        _refers("account_id", "accounts"),
        _columns(Moment, "created_at"),
        _columns(sa.Text, "payload"),
        _index("created_at"),
        _named_index("topic", "account_id, crn, event_id"),
    )
    _table(
        "access_keys",
        _columns(Id, "account_id, service_account_id"),
        _columns(sa.String(16), "status"),
        _columns(sa.String(20), "access_key_id"),
        _columns(sa.String(64), "secret_sha256"),
        _columns(Moment, "last_used_at NULL, created_at, expires_at NULL"),
        _columns(sa.Text, "description DEFAULT ''"),
        _columns(sa.LargeBinary, "secret_sealed"),
        _foreign_key(
            "service_account_id, account_id", "service_accounts (id, account_id)", "CASCADE"
        ),
        _unique("access_key_id"),
        _one_of("status", "active, inactive"),
        _index("service_account_id"),
    )
    _table(
        "backup_schedules",
        _of_account("cluster_id KEY", "database_clusters", "CASCADE"),
        _columns(Id, "account_id"),
        _columns(Moment, "due_at"),
        _index("due_at"),
    )
    _table(
        "blob_object_keys",
        _refers("object_id KEY", "blob_objects", "CASCADE"),
        _columns(Id, "kms_key_id KEY, account_id"),
        _columns(sa.LargeBinary, "wrapped_data_key NULL"),
        _foreign_key("kms_key_id, account_id", "kms_keys (id, account_id)"),
        _named_index("erasable", "kms_key_id, object_id", "wrapped_data_key IS NOT NULL"),
    )
    _table(
        "cached_referrers",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(DigestText, "subject KEY"),
        _columns(Moment, "checked_at, fresh_until"),
        _columns(sa.LargeBinary, "body"),
        _index("fresh_until"),
    )
    _table(
        "certificate_issues",
        _columns(sa.String(64), "fingerprint KEY"),
        _refers("account_id", "accounts"),
        _refers("certificate_id", "certificates", "CASCADE"),
        _columns(sa.String(16), "issuer"),
        _columns(Moment, "expires_at"),
        _columns(sa.LargeBinary, "certificate"),
        _index("certificate_id"),
    )
    _table(
        "certificate_texts",
        _columns(ByteOrdered, "name KEY, value KEY"),
        _refers("certificate_id", "certificates", "CASCADE"),
        _index("certificate_id"),
    )
    _table(
        "certificate_users",
        _refers("certificate_id KEY", "certificates"),
        _columns(ByteOrdered, "used_by KEY"),
    )
    _resource_table(
        "database_backups",
        _of_account("base_id NULL", "database_backups"),
        _of_account("cluster_id", "database_clusters"),
        _columns(sa.Integer, "progress"),
        _columns(sa.BigInteger, "size_bytes NULL, stored_bytes NULL"),
        _columns(Moment, "started_at NULL, completed_at NULL, verified_at NULL"),
        _columns(sa.Text, "status, faults, node, kind, trigger, verification, verified_by NULL"),
        _columns(sa.Text, "label"),
        _check("base_id", "kind = 'incremental' OR base_id IS NULL"),
        _one_of("kind", "base, incremental"),
        _check("progress", "progress BETWEEN 0 AND 100"),
        _one_of("status", "pending, running, succeeded, failed, deleting"),
        _one_of("trigger", "manual, schedule"),
        _one_of("verification", "never, pending, running, succeeded, failed"),
        _index("base_id", "cluster_id, id"),
        _named_index("verifying", "node", "verification = 'running'"),
    )
    _resource_table(
        "dedicated_ips",
        _of_account("ip_pool_id NULL", "ip_pools"),
        _columns(ByteOrdered, "address"),
        _columns(sa.Integer, "warmup_percentage"),
        _columns(sa.BigInteger, "day, sent"),
        _columns(Moment, "warmup_started_at NULL"),
        _columns(sa.Text, "warmup_status"),
        _columns(sa.LargeBinary, "outcomes"),
        _not_negative("sent"),
        _one_of("warmup_status", "new, warming, warmed, paused"),
        _index("ip_pool_id"),
        _unique_index("address", "address"),
    )
    _table(
        "deleted_manifests",
        _columns(Id, "repository_id, account_id"),
        _columns(DigestText, "digest, config_digest NULL, subject_digest NULL"),
        _columns(sa.Boolean, "is_index"),
        _columns(sa.BigInteger, "manifest_size_bytes, size_bytes"),
        _columns(Moment, "pushed_at, last_pulled_at NULL, deleted_at, restorable_until"),
        _columns(sa.Text, "media_type, artifact_type NULL, deleted_by, deleted_by_source NULL"),
        _columns(sa.Text, "tags, annotations"),
        _foreign_key("account_id, digest", "manifest_bodies (account_id, digest)"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
        _index("restorable_until"),
        _named_index("deleted_at", "repository_id, deleted_at, id"),
        _named_index("restorable", "repository_id, restorable_until"),
        _unique_index("digest", "digest, repository_id"),
    )
    _table(
        "deleted_tags",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(ByteOrdered, "name KEY"),
        _columns(DigestText, "digest, pushed_digest"),
        _columns(sa.Boolean, "has_image"),
        _columns(sa.BigInteger, "sequence"),
        _columns(Moment, "created_at, deleted_at, restorable_until"),
        _columns(sa.Text, "deleted_by, deleted_by_source NULL"),
        _index("repository_id, digest", "restorable_until"),
        _named_index("restorable", "repository_id, restorable_until", "has_image"),
        _named_index("sequence", "repository_id, sequence", "has_image"),
    )
    _table(
        "email_contents",
        _of_account("message_id KEY", "email_messages", "CASCADE"),
        _columns(Id, "account_id"),
        _columns(Moment, "ended_at NULL"),
        _columns(sa.LargeBinary, "sealed"),
        _named_index("ended_at", "ended_at", "ended_at IS NOT NULL"),
    )
    _resource_table(
        "email_identities",
        _of_account("ip_pool_id NULL", "ip_pools"),
        _columns(ByteOrdered, "status, value, kind"),
        _columns(sa.BigInteger, "asked"),
        _columns(Moment, "verified_at NULL, checked_at NULL, check_at NULL"),
        _columns(Moment, "confirmation_expires_at NULL"),
        _columns(sa.Text, "faults, description, tags, dkim_selector NULL, dkim_public NULL"),
        _columns(sa.Text, "confirmation_nonce NULL"),
        _columns(sa.LargeBinary, "dkim_key NULL, confirmation_hash NULL"),
        _check("confirmation_hash", "kind = 'address' OR confirmation_hash IS NULL"),
        _check(
            "dkim_key",
            "(kind = 'domain') = (dkim_key IS NOT NULL)"
            " AND (dkim_key IS NULL) = (dkim_public IS NULL)"
            " AND (dkim_key IS NULL) = (dkim_selector IS NULL)",
        ),
        _one_of("kind", "domain, address"),
        _one_of("status", "pending, verified, failed"),
        _check("verified_at", "status <> 'verified' OR verified_at IS NOT NULL"),
        _index("ip_pool_id"),
        _named_index("check_at", "check_at", "check_at IS NOT NULL"),
        _unique_index("confirmation_hash", "confirmation_hash", "confirmation_hash IS NOT NULL"),
        _unique_index("value", "account_id, region, value"),
    )
    _table(
        "email_recipients",
        _of_account("message_id KEY", "email_messages", "CASCADE"),
        _columns(sa.Integer, "position KEY, attempts"),
        _columns(Id, "account_id"),
        _columns(ByteOrdered, "region, folded"),
        _columns(Moment, "last_attempt_at NULL, next_attempt_at NULL"),
        _columns(sa.Text, "address, kind, status, reason NULL, source_ip NULL"),
        _not_negative("attempts"),
        _one_of("kind", "to, cc, bcc"),
        _check(
            "next_attempt_at", "(status IN ('queued', 'deferred')) = (next_attempt_at IS NOT NULL)"
        ),
        _one_of("status", "queued, deferred, complained, bounced, sent, suppressed"),
        _named_index("folded", "account_id, folded, message_id"),
        _named_index("source_ip", "account_id, source_ip", "status IN ('queued', 'deferred')"),
    )
    _table(
        "encryption_bindings",
        _refers("account_id", "accounts"),
        _columns(Id, "repository_id NULL, kms_key_id"),
        _columns(Moment, "created_at, ended_at NULL"),
        _foreign_key("kms_key_id, account_id", "kms_keys (id, account_id)"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)", "CASCADE"),
        _index("account_id, repository_id, id", "kms_key_id"),
        _unique_index("account", "account_id", "ended_at IS NULL AND repository_id IS NULL"),
        _unique_index(
            "repository", "repository_id", "ended_at IS NULL AND repository_id IS NOT NULL"
        ),
    )
    _table(
        "group_assignments",
        _refers("provider_id", "identity_providers", "CASCADE"),
        _refers("role_id", "roles", "CASCADE"),
        _columns(ByteOrdered, "group_name"),
        _columns(Moment, "created_at"),
        _unique("role_id, provider_id, group_name"),
        _index("provider_id, group_name"),
    )
    _resource_table(
        "instances",
        _of_account("pool_id", "instance_pools"),
        _columns(Id, "interface_id NULL"),
        _columns(ByteOrdered, "node"),
        _columns(sa.BigInteger, "restarts, exit_code NULL, memory_mb, cpu_millis, not_before NULL"),
        _columns(Moment, "started_at NULL"),
        _columns(sa.Text, "status, address NULL, address_ipv6 NULL, image, image_digest, version"),
        _columns(sa.Text, "ports, exits"),
        _one_of("status", "starting, running, unhealthy, stopping, stopped"),
        _index("node, id", "pool_id"),
        _unique_index("interface_id", "interface_id", "interface_id IS NOT NULL"),
    )
    _resource_table(
        "internet_gateways",
        _of_account("vpc_id NULL", "vpcs"),
        _columns(ByteOrdered, "name"),
        _columns(sa.Text, "description, tags"),
        _unique_index("name", "account_id, region, name"),
        _unique_index("vpc_id", "vpc_id"),
    )
    _table(
        "kms_key_versions",
        _columns(Id, "key_id KEY, account_id"),
        _columns(sa.Integer, "version KEY"),
        _columns(ByteOrdered, "key_name"),
        _columns(sa.String(16), "provider"),
        _columns(Moment, "created_at"),
        _columns(sa.LargeBinary, "wrapped_material"),
        _foreign_key("key_id, account_id", "kms_keys (id, account_id)", name="key_account"),
        _foreign_key("key_id, key_name", "kms_keys (id, name)", name="key_name"),
        _one_of("provider", "embedded, aws"),
        _check("version", "version > 0"),
    )
    _table(
        "lifecycle_policies",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(sa.BigInteger, "revision"),
        _columns(Moment, "next_run_at, updated_at"),
        _columns(sa.Text, "document"),
        _index("next_run_at"),
    )
    _table(
        "load_balancer_metrics",
        _of_account("load_balancer_id KEY", "load_balancers"),
        _columns(sa.Integer, "replica KEY"),
        _columns(Id, "account_id"),
        _columns(Moment, "updated_at"),
        _columns(sa.Text, "served, last"),
    )
    _table(
        "load_balancer_pools",
        _columns(Id, "pool_id KEY, account_id"),
        _of_account("load_balancer_id KEY", "load_balancers"),
        _index("load_balancer_id"),
    )
    _table(
        "load_balancer_vips",
        _columns(ByteOrdered, "vip KEY"),
        _of_account("load_balancer_id", "load_balancers"),
        _columns(Id, "account_id"),
        _unique("load_balancer_id"),
    )
    _table(
        "manifests",
        _columns(Id, "repository_id, account_id"),
        _columns(DigestText, "digest, config_digest NULL, subject_digest NULL"),
        _columns(sa.Boolean, "is_index"),
        _columns(sa.BigInteger, "manifest_size_bytes, size_bytes, tag_count DEFAULT 0"),
        _columns(Moment, "pushed_at, restored_at NULL, last_pulled_at NULL"),
        _columns(sa.Text, "media_type, artifact_type NULL, annotations"),
        _foreign_key("account_id, digest", "manifest_bodies (account_id, digest)"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
        _unique("id, repository_id"),
        _unique("repository_id, digest"),
        _not_negative("tag_count"),
        _index("account_id, digest", "repository_id, id"),
        _named_index(
            "last_pulled_at", "repository_id, last_pulled_at", "last_pulled_at IS NOT NULL"
        ),
        _named_index("subject", "repository_id, subject_digest, id", "subject_digest IS NOT NULL"),
        _named_index("tagged", "repository_id, id", "tag_count > 0"),
        _named_index("untagged", "repository_id, id", "tag_count = 0"),
    )
    _table(
        "policy_attachments",
        _columns(Id, "account_id, policy_id, service_account_id NULL, role_id NULL"),
        _columns(Moment, "created_at"),
        _foreign_key("policy_id, account_id", "policies (id, account_id)"),
        _foreign_key("role_id, account_id", "roles (id, account_id)", "CASCADE"),
        _foreign_key(
            "service_account_id, account_id", "service_accounts (id, account_id)", "CASCADE"
        ),
        _unique("policy_id, role_id"),
        _unique("policy_id, service_account_id"),
        _check("one_principal", "(service_account_id IS NULL) <> (role_id IS NULL)"),
        _index("role_id", "service_account_id"),
    )
    _table(
        "policy_revisions",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(sa.String(16), "kind KEY"),
        _columns(sa.BigInteger, "revision"),
        _one_of("kind", "resource, lifecycle"),
    )
    _table(
        "publications",
        _refers("account_id", "accounts"),
        _refers("topic_id", "topics", "CASCADE"),
        _columns(Moment, "published_at, ended_at NULL"),
        _columns(sa.Text, "subject NULL, message, attributes, content_type NULL"),
        _index("ended_at", "topic_id"),
    )
    _table(
        "pull_through_stats",
        _refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
        _columns(sa.BigInteger, "pulls, misses, fetched_bytes, served_bytes"),
    )
    _table(
        "quarantined_object_keys",
        _refers("quarantined_id KEY", "quarantined_objects", "CASCADE"),
        _columns(Id, "kms_key_id KEY, account_id"),
        _columns(sa.LargeBinary, "wrapped_data_key"),
        _foreign_key("kms_key_id, account_id", "kms_keys (id, account_id)"),
        _index("kms_key_id, quarantined_id"),
    )
    _table(
        "queue_messages",
        _columns(_Sequence, "position KEY"),
        _of_account("queue_id", "queues"),
        _columns(Id, "id, account_id"),
        _columns(sa.String(22), "lease_token NULL"),
        _columns(sa.Integer, "size, lease_count"),
        _columns(Moment, "queued_at, hidden_until NULL, sent_at"),
        _columns(sa.Text, "attributes"),
        _columns(sa.LargeBinary, "body"),
        _not_negative("lease_count"),
        _check("lease_token", "lease_token IS NULL OR hidden_until IS NOT NULL"),
        _named_index("all", "queue_id, position, size"),
        _named_index("hidden", "queue_id, hidden_until, position", "hidden_until IS NOT NULL"),
        _named_index("visible", "queue_id, position", "hidden_until IS NULL"),
        _unique_index("id", "id"),
        sqlite_autoincrement=True,
    )
    _table(
        "repository_activity",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(Id, "account_id"),
        _columns(sa.BigInteger, "size_bytes"),
        _columns(Moment, "used_at"),
        _named_index("used_at", "account_id, used_at, repository_id", "size_bytes > 0"),
    )
    _table(
        "repository_days",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(sa.Integer, "day KEY"),
        _columns(Id, "account_id"),
        _columns(sa.BigInteger, "size_bytes, pulls"),
        _index("account_id, day", "day"),
    )
    _table(
        "repository_growth",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(sa.Integer, "span KEY"),
        _columns(Id, "account_id"),
        _columns(sa.BigInteger, "size_before, size_bytes, change_bytes"),
        _index("account_id, span, change_bytes, repository_id"),
    )
    _table(
        "resource_policies",
        _refers("repository_id KEY", "repositories", "CASCADE"),
        _columns(sa.String(16), "visibility"),
        _columns(sa.BigInteger, "revision"),
        _columns(Moment, "updated_at"),
        _columns(sa.Text, "document, principal_ids"),
        _one_of("visibility", "private, shared, public"),
    )
    _table(
        "role_assignments",
        _refers("role_id KEY", "roles", "CASCADE"),
        _refers("user_id KEY", "users", "CASCADE"),
        _refers("identity_provider_id NULL", "identity_providers", "CASCADE"),
        _columns(Moment, "created_at"),
        _index("identity_provider_id", "user_id"),
    )
    _resource_table(
        "security_groups",
        _of_account("vpc_id", "vpcs"),
        _columns(ByteOrdered, "name"),
        _columns(sa.Boolean, "is_default"),
        _columns(sa.Text, "description, tags, rules"),
        _index("vpc_id"),
        _unique_index("name", "account_id, region, name"),
        _unique_index("default", "vpc_id", "is_default"),
    )
    _resource_table(
        "storage_buckets",
        _of_account("kms_key_id NULL", "kms_keys"),
        _columns(ByteOrdered, "name"),
        _columns(sa.Text, "cors NULL, tags"),
        _unique("region, name"),
        _index("account_id, region, name", "kms_key_id"),
    )
    _resource_table(
        "subscriptions",
        _refers("topic_id", "topics", "CASCADE"),
        _columns(ByteOrdered, "endpoint, dead_letter_queue NULL, confirmation_nonce NULL"),
        _columns(sa.String(8), "protocol"),
        _columns(sa.String(24), "status"),
        _columns(sa.Boolean, "raw_message_delivery"),
        _columns(Moment, "confirmation_expires_at NULL, previous_until NULL, active_since NULL"),
        _columns(sa.Text, "filter_policy, faults, delivery_policy"),
        _columns(sa.LargeBinary, "signing_secret NULL, previous_secret NULL"),
        _columns(sa.LargeBinary, "confirmation_hash NULL"),
        _unique("confirmation_hash"),
        _unique("topic_id, protocol, endpoint"),
        _check("active_since", "(active_since IS NULL) = (status <> 'confirmed')"),
        _check(
            "confirmation_expires_at",
            "(confirmation_hash IS NULL) = (confirmation_expires_at IS NULL)",
        ),
        _check("confirmation_hash", "(confirmation_hash IS NULL) = (status = 'confirmed')"),
        _check("previous_secret", "(previous_secret IS NULL) = (previous_until IS NULL)"),
        _one_of("protocol", "email, http, https, queue"),
        _check("queue_status", "status = 'confirmed' OR protocol <> 'queue'"),
        _check("signing_secret", "(protocol IN ('http', 'https')) = (signing_secret IS NOT NULL)"),
        _one_of("status", "pending_confirmation, confirmed"),
        _index("topic_id, id"),
    )
    _table(
        "tag_events",
        _columns(_Sequence, "sequence KEY"),
        _refers("repository_id", "repositories", "CASCADE"),
        _columns(Id, "manifest_id NULL, previous_manifest_id NULL"),
        _columns(ByteOrdered, "tag"),
        _columns(DigestText, "digest NULL, previous_digest NULL"),
        _columns(sa.String(16), "action"),
        _columns(sa.BigInteger, "ordinal"),
        _columns(Moment, "occurred_at"),
        _columns(sa.Text, "principal, source NULL"),
        _one_of("action", "created, moved, deleted, restored"),
        _check("digest", "(digest IS NULL) = (action = 'deleted')"),
        _index("repository_id, sequence", "repository_id, tag, sequence"),
        _named_index(
            "previous_digest",
            "repository_id, previous_digest, occurred_at",
            "previous_digest IS NOT NULL",
        ),
    )
    _table(
        "uploads",
        _columns(Id, "repository_id, account_id, stage_id NULL, lease_holder NULL"),
        _columns(Id, "kms_key_id NULL"),
        _columns(sa.String(16), "algorithm NULL"),
        _columns(sa.Boolean, "stage_shared"),
        _columns(sa.BigInteger, "received_bytes, lease_token"),
        _columns(Moment, "leased_until NULL, created_at, expires_at"),
        _columns(sa.Text, "digests NULL"),
        _columns(sa.LargeBinary, "wrapped_data_key NULL, body NULL"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
        _not_negative("received_bytes"),
        _check("data_key", "(kms_key_id IS NULL) = (wrapped_data_key IS NULL)"),
        _check("lease", "(lease_holder IS NULL) = (leased_until IS NULL)"),
        _index("account_id, expires_at", "expires_at", "repository_id, expires_at"),
        _unique_index("stage_id", "stage_id", "stage_id IS NOT NULL"),
    )
    _table(
        "upstream_faults",
        _refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
        _columns(sa.String(32), "code KEY"),
        _columns(sa.String(16), "stage"),
        _columns(sa.Integer, "http_status NULL"),
        _columns(sa.BigInteger, "occurrences"),
        _columns(Moment, "first_at, last_at"),
        _columns(sa.Text, "message"),
    )
    _table(
        "upstream_lookups",
        _refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
        _columns(ByteOrdered, "repository KEY, reference KEY"),
        _columns(Moment, "fetching_until NULL, absent_until NULL, ends_at"),
        _index("ends_at"),
    )
    _table(
        "upstream_states",
        _refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
        _columns(ByteOrdered, "accepted_repository NULL"),
        _columns(sa.String(32), "pause_code NULL"),
        _columns(sa.Integer, "failures"),
        _columns(sa.BigInteger, "rate_limit NULL, rate_remaining NULL, rate_window_seconds NULL"),
        _columns(Moment, "paused_until NULL, failed_at NULL, rate_at NULL, accepted_at NULL"),
    )
    _table(
        "upstream_tag_lists",
        _refers("rule_id KEY", "pull_through_cache_rules", "CASCADE"),
        _columns(ByteOrdered, "repository KEY"),
        _columns(sa.Boolean, "is_whole"),
        _columns(Moment, "checked_at, fresh_until"),
        _columns(sa.LargeBinary, "names"),
        _index("fresh_until"),
    )
    _table(
        "backup_turns",
        _columns(Id, "cluster_id KEY, account_id"),
        _of_account("backup_id", "database_backups"),
        _index("backup_id"),
    )
    _table(
        "blob_fills",
        _refers("account_id KEY", "accounts"),
        _columns(DigestText, "digest KEY"),
        _refers("upload_id", "uploads", "CASCADE"),
        _columns(sa.BigInteger, "size NULL"),
        _unique_index("upload_id", "upload_id"),
    )
    _table(
        "bucket_uses",
        _of_account("bucket_id KEY", "storage_buckets"),
        _columns(Id, "user_id KEY, account_id"),
        _columns(sa.Text, "words"),
        _index("account_id, bucket_id"),
    )
    _table(
        "container_passwords",
        _columns(Id, "user_id, role_id"),
        _columns(ByteOrdered, "name"),
        _columns(sa.String(64), "password_sha256"),
        _columns(Moment, "created_at, expires_at, last_used_at NULL"),
        _foreign_key("role_id, user_id", "role_assignments (role_id, user_id)", "CASCADE"),
        _unique("user_id, name"),
        _index("expires_at", "role_id, user_id"),
    )
    _table(
        "deleted_manifest_blobs",
        _refers("manifest_id KEY", "deleted_manifests", "CASCADE"),
        _columns(DigestText, "digest KEY"),
        _columns(Id, "object_id, account_id, kms_key_id NULL"),
        _columns(sa.BigInteger, "size"),
        _foreign_key(
            "object_id, account_id, digest, size", "blob_objects (id, account_id, digest, size)"
        ),
        _foreign_key("object_id, kms_key_id", "blob_object_keys (object_id, kms_key_id)"),
        _index("object_id"),
    )
    _table(
        "deleted_manifest_children",
        _refers("manifest_id KEY", "deleted_manifests", "CASCADE"),
        _columns(DigestText, "child_digest KEY"),
        _columns(sa.Boolean, "is_missing DEFAULT false"),
    )
    _table(
        "deleted_missing_blobs",
        _refers("manifest_id KEY", "deleted_manifests", "CASCADE"),
        _columns(DigestText, "digest KEY"),
        _columns(sa.BigInteger, "size"),
    )
    _table(
        "deliveries",
        _refers("account_id", "accounts"),
        _refers("publication_id NULL", "publications", "CASCADE"),
        _refers("subscription_id", "subscriptions", "CASCADE"),
        _columns(sa.Integer, "size DEFAULT 0, attempts"),
        _columns(Moment, "due_at, created_at"),
        _unique("publication_id, subscription_id"),
        _named_index("due", "subscription_id, due_at, size"),
    )
    _resource_table(
        "egress_only_gateways",
        _of_account("vpc_id", "vpcs"),
        _columns(ByteOrdered, "name"),
        _columns(sa.Text, "description, tags"),
        _foreign_key("vpc_id", "internet_gateways (vpc_id)", name="uplink"),
        _unique_index("name", "account_id, region, name"),
        _unique_index("vpc_id", "vpc_id"),
    )
    _table(
        "image_pins",
        _columns(Id, "manifest_id KEY, repository_id"),
        _columns(ByteOrdered, "name KEY"),
        _columns(Moment, "expires_at NULL, created_at"),
        _columns(sa.Text, "created_by, created_by_source NULL"),
        _foreign_key("manifest_id, repository_id", "manifests (id, repository_id)", "CASCADE"),
        _index("repository_id, manifest_id"),
        _named_index("expires_at", "expires_at", "expires_at IS NOT NULL"),
    )
    _table(
        "manifest_children",
        _columns(Id, "parent_id KEY, repository_id, child_id NULL"),
        _columns(DigestText, "child_digest KEY"),
        _foreign_key("child_id, repository_id", "manifests (id, repository_id)"),
        _foreign_key("parent_id, repository_id", "manifests (id, repository_id)", "CASCADE"),
        _index("child_id"),
        _named_index("missing", "repository_id, child_digest", "child_id IS NULL"),
    )
    _table(
        "missing_blobs",
        _columns(Id, "manifest_id KEY, repository_id"),
        _columns(DigestText, "digest KEY"),
        _columns(sa.BigInteger, "size"),
        _foreign_key("manifest_id, repository_id", "manifests (id, repository_id)", "CASCADE"),
        _index("digest, repository_id"),
    )
    _table(
        "repository_blobs",
        _columns(Id, "repository_id KEY, account_id, object_id, kms_key_id NULL"),
        _columns(DigestText, "digest KEY"),
        _columns(sa.Integer, "manifest_refs"),
        _columns(sa.BigInteger, "size"),
        _columns(Moment, "touched_at"),
        _foreign_key(
            "object_id, account_id, digest, size", "blob_objects (id, account_id, digest, size)"
        ),
        _foreign_key("object_id, kms_key_id", "blob_object_keys (object_id, kms_key_id)"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
        _not_negative("manifest_refs"),
        _index("object_id", "repository_id, kms_key_id"),
        _named_index("unreferenced", "account_id, touched_at", "manifest_refs = 0"),
    )
    _table(
        "sessions",
        _refers("organization_id NULL", "organizations", "SET NULL"),
        _refers("parent_sid NULL", "sessions", "CASCADE"),
        _refers("role_id NULL", "roles", "CASCADE"),
        _refers("source_access_key_id NULL", "access_keys", "CASCADE"),
        _refers("user_id NULL", "users", "CASCADE"),
        _columns(sa.String(16), "kind"),
        _columns(sa.String(20), "access_key_id NULL"),
        _columns(sa.String(64), "token_sha256 NULL"),
        _columns(Moment, "created_at, expires_at, revoked_at NULL, ends_at NULL"),
        _columns(sa.Text, "source_crn NULL, session_name NULL, first_source NULL"),
        _columns(sa.LargeBinary, "secret_sealed NULL"),
        _unique("access_key_id"),
        _check(
            "kind",
            "(kind = 'user' AND user_id IS NOT NULL) OR (kind = 'role' AND role_id IS NOT NULL)",
        ),
        _index("expires_at", "organization_id", "parent_sid", "role_id, revoked_at, expires_at"),
        _index("source_access_key_id", "user_id"),
    )
    _table(
        "storage_counts",
        _of_account("bucket_id KEY", "storage_buckets"),
        _columns(sa.Integer, "shard KEY"),
        _columns(Id, "account_id"),
        _columns(sa.BigInteger, "objects, object_bytes, upload_bytes"),
        _index("account_id, bucket_id"),
    )
    _table(
        "storage_objects",
        _of_account("bucket_id", "storage_buckets"),
        _columns(Id, "account_id"),
        _columns(sa.String(32), "storage_class"),
        _columns(sa.String(40), "etag"),
        _columns(sa.BigInteger, "size"),
        _columns(Moment, "created_at"),
        _columns(sa.LargeBinary, "key"),
        _columns(sa.Text, "content_type, headers, metadata, tags, checksum NULL"),
        _unique("bucket_id, key"),
        _unique("id, account_id"),
        _not_negative("size"),
    )
    _table(
        "storage_uploads",
        _of_account("bucket_id", "storage_buckets"),
        _columns(Id, "account_id"),
        _columns(sa.String(16), "checksum_algorithm NULL, checksum_type NULL"),
        _columns(sa.String(32), "storage_class"),
        _columns(Moment, "created_at, ended_at NULL"),
        _columns(sa.LargeBinary, "key"),
        _columns(sa.Text, "content_type, headers, metadata, tags, completion NULL"),
        _unique("id, account_id"),
        _check("completion", "(ended_at IS NULL) = (completion IS NULL)"),
        _index("bucket_id", "created_at"),
        _named_index("ended_at", "ended_at", "ended_at IS NOT NULL"),
        _named_index("open", "bucket_id, key, id", "ended_at IS NULL"),
    )
    _table(
        "tags",
        _columns(Id, "repository_id KEY, manifest_id"),
        _columns(ByteOrdered, "name KEY"),
        _columns(DigestText, "pushed_digest"),
        _columns(Moment, "created_at, updated_at, fresh_until NULL, stale_since NULL"),
        _columns(Moment, "checked_at NULL"),
        _columns(sa.Text, "upstream_etag NULL"),
        _foreign_key("manifest_id, repository_id", "manifests (id, repository_id)", "CASCADE"),
        _index("manifest_id"),
    )
    _table(
        "login_credentials",
        _refers("account_id", "accounts"),
        _refers("access_key_id NULL", "access_keys", "CASCADE"),
        _refers("service_account_id NULL", "service_accounts", "CASCADE"),
        _refers("sid NULL", "sessions", "CASCADE"),
        _columns(sa.String(64), "password_sha256"),
        _columns(Moment, "created_at, expires_at, revoked_at NULL"),
        _unique("password_sha256"),
        _index("account_id, revoked_at, expires_at", "expires_at", "service_account_id", "sid"),
    )
    _table(
        "manifest_blobs",
        _columns(Id, "manifest_id KEY, repository_id"),
        _columns(DigestText, "digest KEY"),
        _foreign_key("manifest_id, repository_id", "manifests (id, repository_id)", "CASCADE"),
        _foreign_key("repository_id, digest", "repository_blobs (repository_id, digest)"),
        _index("digest, repository_id"),
    )
    _table(
        "refresh_tokens",
        _columns(sa.String(64), "token_sha256 KEY, client_id NULL"),
        _refers("sid", "sessions", "CASCADE"),
        _columns(Moment, "created_at, expires_at, spent_at NULL"),
        _index("expires_at", "sid"),
    )
    _resource_table(
        "route_tables",
        _of_account("egress_only_gateway_id NULL", "egress_only_gateways"),
        _of_account("internet_gateway_id NULL", "internet_gateways"),
        _of_account("vpc_id", "vpcs"),
        _columns(ByteOrdered, "name"),
        _columns(sa.Boolean, "is_main"),
        _columns(sa.Text, "description, tags, routes"),
        _index("egress_only_gateway_id", "internet_gateway_id", "vpc_id"),
        _unique_index("name", "account_id, region, name"),
        _unique_index("main", "vpc_id", "is_main"),
    )
    _table(
        "search_names",
        _columns(_Sequence, "id KEY"),
        _columns(Id, "account_id, repository_id"),
        _columns(ByteOrdered, "name"),
        _columns(sa.String(16), "kind, state"),
        _unique("repository_id, kind, name"),
        _one_of("kind", "repository, tag"),
        _one_of("state", "new, indexed, gone"),
        _named_index("unsettled", "account_id, id", "state <> 'indexed'"),
    )
    _table(
        "storage_pieces",
        _refers("account_id", "accounts"),
        _of_account("object_id NULL", "storage_objects"),
        _of_account("upload_id NULL", "storage_uploads"),
        _columns(Id, "kms_key_id NULL"),
        _columns(sa.String(16), "encoding, damage NULL"),
        _columns(sa.String(32), "md5"),
        _columns(sa.String(64), "sha256, stored_checksum NULL"),
        _columns(sa.Integer, "number"),
        _columns(sa.BigInteger, "size, stored_size"),
        _columns(Moment, "created_at, condemned_at NULL, damaged_at NULL, verified_at DEFAULT 0"),
        _columns(sa.Text, "checksum NULL"),
        _columns(sa.LargeBinary, "body NULL, wrapped NULL"),
        _check("number", "number BETWEEN 1 AND 10000"),
        _check(
            "owner",
            "(object_id IS NOT NULL AND upload_id IS NULL AND condemned_at IS NULL)"
            " OR (object_id IS NULL AND upload_id IS NOT NULL AND condemned_at IS NULL)"
            " OR (object_id IS NULL AND upload_id IS NULL AND condemned_at IS NOT NULL)",
        ),
        _check("wrapped", "(kms_key_id IS NULL) = (wrapped IS NULL)"),
        _named_index("condemned", "condemned_at", "condemned_at IS NOT NULL"),
        _named_index("damaged", "account_id, id", "damage IS NOT NULL"),
        _named_index("kms_key_id", "kms_key_id, encoding", "kms_key_id IS NOT NULL"),
        _named_index(
            "verified_at",
            "verified_at, id",
            "damage IS NULL AND condemned_at IS NULL AND encoding <> 'shredded'",
        ),
        _unique_index("object", "object_id, number", "object_id IS NOT NULL"),
        _unique_index("upload", "upload_id, number", "upload_id IS NOT NULL"),
    )
    _resource_table(
        "subnets",
        _of_account("route_table_id NULL", "route_tables"),
        _of_account("vpc_id", "vpcs"),
        _columns(ByteOrdered, "name"),
        _columns(sa.BigInteger, "next_ipv4, next_ipv6"),
        _columns(sa.Text, "description, cidr_ipv4 NULL, cidr_ipv6 NULL, tags"),
        _check("cidr_ipv4", "cidr_ipv4 IS NOT NULL OR cidr_ipv6 IS NOT NULL"),
        _check("route_table_id", "route_table_id IS NOT NULL"),
        _index("route_table_id", "vpc_id"),
        _unique_index("name", "account_id, region, name"),
    )
    _resource_table(
        "network_interfaces",
        _of_account("subnet_id", "subnets"),
        _of_account("vpc_id", "vpcs"),
        _columns(ByteOrdered, "name"),
        _columns(sa.Boolean, "is_balancer"),
        _columns(sa.Text, "address_ipv4 NULL, address_ipv6 NULL, owner, security_groups"),
        _check("address_ipv4", "address_ipv4 IS NOT NULL OR address_ipv6 IS NOT NULL"),
        _index("subnet_id"),
        _unique_index("name", "account_id, region, name"),
        _unique_index("address_ipv4", "vpc_id, address_ipv4"),
        _unique_index("address_ipv6", "vpc_id, address_ipv6"),
    )
    _table(
        "subnet_free_addresses",
        _refers("subnet_id KEY", "subnets"),
        _columns(sa.BigInteger, "position KEY"),
        _columns(Moment, "freed_at"),
        _named_index("freed_at", "subnet_id, freed_at, position"),
    )
    _table(
        "network_interface_groups",
        _refers("interface_id KEY", "network_interfaces"),
        _refers("group_id KEY", "security_groups"),
        _index("group_id"),
    )
