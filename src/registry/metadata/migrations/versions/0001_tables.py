"""Create the tables of the first release."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from cloudcore.db.schema import ByteOrdered, DigestText, Id, Moment

revision = "0001"
down_revision = None

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


def _columns(kind: Any, *names: str) -> list[sa.Column[Any]]:  # noqa: ANN401 - a type or its class
    """Return columns of a type that are never null."""
    return [sa.Column(name, kind, nullable=False) for name in names]


def _nullable(kind: Any, *names: str) -> list[sa.Column[Any]]:  # noqa: ANN401 - a type or its class
    return [sa.Column(name, kind) for name in names]


def _table_and_columns(text: str) -> tuple[str, list[str]]:
    """Return the table and the columns of ``table (a, b)``."""
    table, columns = text.removesuffix(")").split(" (")
    return table, columns.split(", ")


def _check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=name)


def _foreign_key(
    columns: str, target: str, name: str | None = None, ondelete: str | None = None
) -> sa.ForeignKeyConstraint:
    """Return a foreign key of the columns ``a, b``, as SQL lists them, to ``table (c, d)``."""
    table, named = _table_and_columns(target)
    referred = [f"{table}.{column}" for column in named]
    return sa.ForeignKeyConstraint(columns.split(", "), referred, name=name, ondelete=ondelete)


def _index(name: str, on: str, where: str | None = None, *, is_unique: bool = False) -> None:
    """Create an index on ``table (a, b)``, which is partial if there is a condition."""
    table, columns = _table_and_columns(on)
    condition = None if where is None else sa.text(where)
    op.create_index(
        name,
        table,
        columns,
        unique=is_unique,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _unique_index(name: str, on: str, where: str | None = None) -> None:
    _index(name, on, where, is_unique=True)


def _resource_table(name: str, *more: sa.schema.SchemaItem) -> None:
    """Create the table of a described kind of resource, with `more` columns and constraints."""
    op.create_table(
        name,
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        *(each for each in more if isinstance(each, sa.Column)),
        *_columns(Moment, "created_at", "updated_at"),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("id", "account_id"),
        *(each for each in more if not isinstance(each, sa.Column)),
    )
    _index(f"ix_{name}_account_id_id", f"{name} (account_id, id)")


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
    op.create_table(
        "account_days",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("day", sa.Integer, nullable=False),
        *_columns(sa.BigInteger, "size_bytes", "pulls"),
        sa.PrimaryKeyConstraint("account_id", "day"),
    )
    _index("ix_account_days_day", "account_days (day)")
    op.create_table(
        "audit_events",
        sa.Column("id", Id, primary_key=True),
        sa.Column("owner_id", Id, nullable=False),
        sa.Column("occurred_at", Moment, nullable=False),
        *_columns(ByteOrdered, "action", "resource"),
        sa.Column("resources", sa.Text),
        sa.Column("principal", ByteOrdered, nullable=False),
        *_nullable(ByteOrdered, "source_crn", "source_name"),
        sa.Column("session_name", sa.Text),
        sa.Column("plane", sa.String(16)),
        sa.Column("outcome", sa.String(16), nullable=False),
        *_nullable(sa.Text, "source_ip", "user_agent", "request_id"),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("refusal_key", sa.Text),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("last_at", Moment, nullable=False),
        _check("outcome", "outcome IN ('succeeded', 'refused')"),
        _check("refusal_key", "(outcome = 'refused') = (refusal_key IS NOT NULL)"),
        _check("times", "times = 1 OR outcome = 'refused'"),
    )
    _index("ix_audit_events_occurred_at", "audit_events (occurred_at)")
    _index("ix_audit_events_owner", "audit_events (owner_id, occurred_at, id)")
    _index("ix_audit_events_resource", "audit_events (owner_id, resource, occurred_at, id)")
    _unique_index(
        "uq_audit_events_refusal", "audit_events (refusal_key)", "refusal_key IS NOT NULL"
    )
    op.create_table(
        "certificate_authorities",
        sa.Column("id", Id, primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        *_columns(sa.LargeBinary, "certificate", "private_key", "revocation_list"),
        sa.Column("list_number", sa.Integer, nullable=False),
        *_columns(Moment, "listed_at", "expires_at"),
        sa.UniqueConstraint("role", "generation"),
        _check("role", "role IN ('root', 'issuing')"),
    )
    op.create_table(
        "closed_months",
        sa.Column("month", Moment, primary_key=True),
        sa.Column("closed_at", Moment, nullable=False),
    )
    op.create_table(
        "embedded_charges",
        sa.Column("id", Id, primary_key=True),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("decline", sa.Text, nullable=False),
        sa.Column("charged_at", Moment, nullable=False),
    )
    op.create_table("ended_uploads", sa.Column("id", Id, primary_key=True), sqlite_with_rowid=False)
    op.create_table(
        "fleet_settings",
        sa.Column("name", ByteOrdered, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "idempotency_records",
        sa.Column("principal", Id, nullable=False),
        *_columns(ByteOrdered, "operation", "key"),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("lease_token", Id, nullable=False),
        sa.Column("lease_until", Moment, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("outcome_sealed", sa.LargeBinary),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("principal", "operation", "key"),
        _check("completed_outcome", "(state = 'completed') = (outcome_sealed IS NOT NULL)"),
        _check("completed_status", "(state = 'completed') = (status IS NOT NULL)"),
        _check("state", "state IN ('in_progress', 'completed')"),
    )
    _index("ix_idempotency_records_created_at", "idempotency_records (created_at)")
    op.create_table(
        "inline_bytes",
        sa.Column("stored_id", Id, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "nodes",
        sa.Column("name", ByteOrdered, primary_key=True),
        sa.Column("identity", Id, nullable=False),
        sa.Column("capabilities", sa.Text, nullable=False),
        sa.Column("seen_at", Moment, nullable=False),
        *_columns(sa.Boolean, "is_lost", "is_noted"),
        sa.Column("stopped_at", Moment),
    )
    op.create_table(
        "organizations",
        sa.Column("id", Id, primary_key=True),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("is_personal", sa.Boolean, nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
    )
    op.create_table(
        "quota_defaults",
        sa.Column("name", ByteOrdered, primary_key=True),
        sa.Column("maximum", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        _check("maximum", "maximum >= 0"),
    )
    op.create_table(
        "rate_windows",
        *_columns(ByteOrdered, "endpoint", "subject"),
        sa.Column("window_ends_at", Moment, nullable=False),
        *_columns(sa.BigInteger, "count", "refused"),
        sa.PrimaryKeyConstraint("endpoint", "subject"),
    )
    _index("ix_rate_windows_window_ends_at", "rate_windows (window_ends_at)")
    op.create_table(
        "revoked_tokens",
        sa.Column("jti", Id, primary_key=True),
        sa.Column("expires_at", Moment, nullable=False),
    )
    _index("ix_revoked_tokens_expires_at", "revoked_tokens (expires_at)")
    op.create_table(
        "schedules",
        sa.Column("name", ByteOrdered, primary_key=True),
        sa.Column("due_at", Moment, nullable=False),
        *_nullable(Id, "lease_token", "lease_holder"),
        sa.Column("ended_at", Moment),
        sa.Column("fault", sa.Text),
    )
    op.create_table(
        "search_terms",
        sa.Column("term", ByteOrdered, nullable=False),
        sa.Column("name_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("term", "name_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "signing_keys",
        sa.Column("kid", sa.String(64), primary_key=True),
        *_columns(sa.String(16), "audience", "algorithm"),
        sa.Column("material_sealed", sa.LargeBinary, nullable=False),
        *_columns(Moment, "created_at", "not_after"),
    )
    _index("ix_signing_keys_audience_not_after", "signing_keys (audience, not_after)")
    op.create_table(
        "spent_states",
        sa.Column("state_sha256", sa.String(64), primary_key=True),
        sa.Column("expires_at", Moment, nullable=False),
    )
    _index("ix_spent_states_expires_at", "spent_states (expires_at)")
    op.create_table(
        "store_generations",
        sa.Column("id", Id, primary_key=True),
        sa.Column("noted_at", Moment, nullable=False),
        sa.Column("accepted_at", Moment),
    )
    _index("ix_store_generations_accepted_at", "store_generations (accepted_at)")
    _index("ix_store_generations_noted_at", "store_generations (noted_at)")
    op.create_table(
        "usage_hours",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        *_columns(ByteOrdered, "sku", "region"),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "hour", "sku", "region"),
        _check("quantity", "quantity > 0"),
    )
    _index("ix_usage_hours_hour", "usage_hours (hour)")
    op.create_table(
        "usage_samples",
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("sku", "hour"),
    )
    _index("ix_usage_samples_hour", "usage_samples (hour)")
    op.create_table(
        "accounts",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id),
        sa.Column("handle", ByteOrdered, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("auto_create_repositories", sa.Boolean, nullable=False),
        sa.Column("iam_revision", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", Moment, nullable=False),
        _foreign_key("organization_id", "organizations (id)"),
        sa.UniqueConstraint("handle"),
        _check("status", "status IN ('active', 'suspended')"),
    )
    _index("ix_accounts_organization_id", "accounts (organization_id)")
    op.create_table(
        "certificate_revocations",
        sa.Column("serial", ByteOrdered, nullable=False),
        sa.Column("authority_id", Id, nullable=False),
        *_columns(Moment, "revoked_at", "expires_at"),
        sa.PrimaryKeyConstraint("serial", "authority_id"),
        _foreign_key("authority_id", "certificate_authorities (id)"),
    )
    _index(
        "ix_certificate_revocations_authority_id",
        "certificate_revocations (authority_id, expires_at)",
    )
    op.create_table(
        "identity_providers",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "issuer", "client_id"),
        sa.Column("client_secret_sealed", sa.LargeBinary),
        *_columns(sa.Text, "scopes", "groups_claim", "email_verified_claim", "email_domains"),
        sa.Column("creates_people", sa.Boolean, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("session_hours", sa.BigInteger, nullable=False, server_default=sa.text("168")),
        _foreign_key("organization_id", "organizations (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("organization_id", "name"),
        _check("status", "status IN ('active', 'inactive')"),
    )
    _index("ix_identity_providers_name", "identity_providers (name)")
    op.create_table(
        "invitations",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("email", ByteOrdered, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("code_sha256", sa.String(64), nullable=False),
        *_columns(Moment, "created_at", "expires_at"),
        _foreign_key("organization_id", "organizations (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("organization_id", "email"),
        _check("role", "role IN ('owner', 'member', 'billing')"),
    )
    _index("ix_invitations_expires_at", "invitations (expires_at)")
    op.create_table(
        "invoices",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        *_columns(Moment, "period_start", "period_end"),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("total", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        *_nullable(Moment, "charge_at", "paid_at"),
        *_columns(Moment, "created_at", "updated_at"),
        _foreign_key("organization_id", "organizations (id)"),
        sa.UniqueConstraint("organization_id", "period_start", "currency"),
        _check("paid_at", "(status = 'paid') = (paid_at IS NOT NULL)"),
        _check("status", "status IN ('open', 'paid', 'failed', 'void')"),
    )
    _index("ix_invoices_organization_id_id", "invoices (organization_id, id)")
    op.create_table(
        "payment_customers",
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("processor", sa.String(16), nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "processor"),
        _foreign_key("organization_id", "organizations (id)", ondelete="CASCADE"),
    )
    op.create_table(
        "payment_methods",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("brand", sa.Text),
        sa.Column("last4", sa.String(4)),
        *_nullable(sa.Integer, "exp_month", "exp_year"),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("processor", sa.String(16), nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        _foreign_key("organization_id", "organizations (id)", ondelete="CASCADE"),
        _check("type", "type IN ('card', 'sepa_debit')"),
    )
    _index("ix_payment_methods_organization_id_id", "payment_methods (organization_id, id)")
    _unique_index("uq_payment_methods_default", "payment_methods (organization_id)", "is_default")
    op.create_table(
        "users",
        sa.Column("id", Id, primary_key=True),
        sa.Column("email", ByteOrdered, nullable=False),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("must_change_password", sa.Boolean, nullable=False),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("home_organization_id", Id),
        _foreign_key("home_organization_id", "organizations (id)", ondelete="SET NULL"),
        _foreign_key("organization_id", "organizations (id)"),
        sa.UniqueConstraint("home_organization_id", "email"),
        sa.UniqueConstraint("id", "email"),
        _check("status", "status IN ('active', 'suspended')"),
    )
    _index("ix_users_email", "users (email)")
    op.create_table(
        "auth_codes",
        sa.Column("code_sha256", sa.String(64), primary_key=True),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("client_id", sa.String(64), nullable=False),
        sa.Column("redirect_uri", sa.Text, nullable=False),
        sa.Column("code_challenge", sa.String(128), nullable=False),
        sa.Column("sid", Id),
        *_columns(Moment, "created_at", "expires_at"),
        sa.Column("spent_at", Moment),
        sa.Column("identity_provider_id", Id),
        _foreign_key("user_id", "users (id)", ondelete="CASCADE"),
    )
    _index("ix_auth_codes_expires_at", "auth_codes (expires_at)")
    op.create_table(
        "billed_usage",
        sa.Column("account_id", Id, nullable=False),
        *_columns(ByteOrdered, "region", "sku"),
        sa.Column("month", Moment, nullable=False),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "region", "sku", "month"),
        _foreign_key("account_id", "accounts (id)"),
    )
    op.create_table(
        "blob_objects",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        *_columns(sa.BigInteger, "size", "stored_size"),
        sa.Column("encoding", sa.String(16), nullable=False),
        sa.Column("is_current", sa.Boolean, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("condemned_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("verified_at", Moment, nullable=False, server_default=sa.text("0")),
        sa.Column("damage", sa.String(16)),
        sa.Column("damaged_at", Moment),
        sa.Column("stored_id", Id, nullable=False),
        sa.Column("is_inline", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("checksum", sa.String(64)),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("id", "account_id", "digest", "size"),
        _check("encoding", "encoding IN ('plain', 'sealed')"),
        _check("size", "size >= 0"),
        _check("state", "state IN ('live', 'condemned', 'shredded')"),
    )
    _index(
        "ix_blob_objects_condemned",
        "blob_objects (account_id, condemned_at)",
        "state = 'condemned'",
    )
    _index("ix_blob_objects_damaged", "blob_objects (account_id, digest)", "damage IS NOT NULL")
    _index("ix_blob_objects_plain", "blob_objects (account_id, id)", "encoding = 'plain'")
    _index("ix_blob_objects_replaced", "blob_objects (account_id, id)", "NOT is_current")
    _index(
        "ix_blob_objects_verified_at",
        "blob_objects (verified_at, id)",
        "damage IS NULL AND state <> 'shredded'",
    )
    _unique_index(
        "uq_blob_objects_current_digest", "blob_objects (account_id, digest)", "is_current"
    )
    _unique_index("uq_blob_objects_stored_id", "blob_objects (stored_id)")
    op.create_table(
        "certificate_settings",
        sa.Column("account_id", Id, primary_key=True),
        sa.Column("private_key_export", sa.Boolean, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        _foreign_key("account_id", "accounts (id)"),
    )
    _resource_table(
        "certificates",
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("domains", sa.Text, nullable=False),
        sa.Column("source", sa.String(8), nullable=False),
        sa.Column("issuer", sa.String(16), nullable=False),
        sa.Column("key_algorithm", sa.String(10), nullable=False),
        sa.Column("challenges", sa.Text, nullable=False),
        *_nullable(sa.Text, "certificate_pem", "chain_pem"),
        sa.Column("fingerprint", sa.String(64)),
        *_nullable(sa.LargeBinary, "private_key", "csr"),
        sa.Column("private_key_exported_at", Moment),
        sa.Column("kms_key_id", Id),
        *_nullable(Moment, "issued_at", "expires_at", "renew_at"),
        sa.Column("warned_days", sa.Integer),
        sa.Column("revocation_asked_at", Moment),
        sa.Column("is_recheck_asked", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.UniqueConstraint("account_id", "region", "name"),
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
        _check("source", "source IN ('acme', 'uploaded')"),
        _check(
            "status",
            "status IN ('pending_validation', 'issuing', 'active', 'expired', 'revoked', 'failed')",
        ),
    )
    _index("ix_certificates_expires_at", "certificates (expires_at)", "status = 'active'")
    _index("ix_certificates_renew_at", "certificates (renew_at)", "renew_at IS NOT NULL")
    _resource_table(
        "database_clusters",
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        *_columns(ByteOrdered, "node", "name"),
        *_columns(sa.Text, "engine", "type"),
        sa.Column("version", sa.BigInteger),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("bucket", Id),
        *_nullable(sa.Text, "schedule", "retention"),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("checked_at", Moment),
        sa.Column("bucket_name", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text),
        sa.Column("secret", sa.LargeBinary),
        *_columns(sa.Integer, "memory_mb", "cpu_millis", "disk_mb"),
        sa.Column("port", sa.Integer),
        *_nullable(sa.Text, "host", "ca", "source"),
        *_columns(sa.Boolean, "has_data", "is_wanted"),
        *_columns(sa.BigInteger, "generation", "applied"),
        sa.Column("check_at", Moment),
        _check("applied", "applied <= generation"),
        _check("endpoint", "(type = 'registered') = (endpoint IS NOT NULL)"),
        _check("port", "(type = 'managed') = (port IS NOT NULL)"),
        _check(
            "status",
            "status IN ('provisioning', 'active', 'updating', 'stopped',"
            " 'unavailable', 'deleting')",
        ),
        _check("type", "type IN ('managed', 'registered')"),
    )
    _unique_index("uq_database_clusters_name", "database_clusters (account_id, region, name)")
    _index(
        "ix_database_clusters_check_at", "database_clusters (check_at, id)", "check_at IS NOT NULL"
    )
    _index("ix_database_clusters_node_id", "database_clusters (node, id)")
    _unique_index(
        "uq_database_clusters_node_port", "database_clusters (node, port)", "port IS NOT NULL"
    )
    op.create_table(
        "digest_aliases",
        sa.Column("account_id", Id, nullable=False),
        *_columns(DigestText, "alias", "digest"),
        sa.PrimaryKeyConstraint("account_id", "alias"),
        _foreign_key("account_id", "accounts (id)"),
    )
    _index("ix_digest_aliases_account_id_digest", "digest_aliases (account_id, digest)")
    _resource_table(
        "email_messages",
        *_columns(sa.Text, "sender", "to", "cc", "bcc", "subject"),
        *_columns(ByteOrdered, "status", "identity"),
        sa.Column("identity_id", Id, nullable=False),
        sa.Column("template_id", Id),
        sa.Column("template_name", sa.Text),
        sa.Column("ended_at", Moment),
        _check("ended_at", "(status IN ('queued', 'deferred')) = (ended_at IS NULL)"),
        _check(
            "status",
            "status IN ('queued', 'deferred', 'complained', 'bounced', 'sent', 'suppressed')",
        ),
    )
    _index("ix_email_messages_ended_at", "email_messages (ended_at)", "ended_at IS NOT NULL")
    _index("ix_email_messages_identity", "email_messages (account_id, identity_id, id)")
    _index(
        "ix_email_messages_waiting",
        "email_messages (account_id)",
        "status IN ('queued', 'deferred')",
    )
    op.create_table(
        "email_rates",
        *_columns(Id, "account_id", "identity_id"),
        sa.Column("second", sa.BigInteger, nullable=False),
        sa.Column("accepted", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "identity_id"),
        _foreign_key("account_id", "accounts (id)"),
    )
    _index("ix_email_rates_second", "email_rates (second)")
    _resource_table(
        "email_templates",
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "description", "subject"),
        *_nullable(sa.Text, "html", "text"),
        *_columns(sa.Text, "variables", "tags"),
    )
    _unique_index("uq_email_templates_name", "email_templates (account_id, region, name)")
    op.create_table(
        "event_rules",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("topic", ByteOrdered, nullable=False),
        sa.Column("event_types", sa.Text, nullable=False),
        sa.Column("repository_prefix", ByteOrdered, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        _foreign_key("account_id", "accounts (id)"),
    )
    _index("ix_event_rules_account_id_id", "event_rules (account_id, id)")
    op.create_table(
        "instance_pools",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        *_columns(sa.Text, "status", "faults"),
        *_columns(ByteOrdered, "node", "name"),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        *_columns(sa.Text, "description", "command", "environment"),
        *_columns(sa.Integer, "memory_mb", "cpu_millis"),
        sa.Column("ports", sa.Text, nullable=False),
        *_nullable(Id, "role", "subnet"),
        *_columns(sa.Text, "security_groups", "tags"),
        sa.Column("image_digest", sa.Text),
        sa.Column("names", sa.Text, nullable=False),
        sa.Column("vpc_id", Id),
        *_columns(sa.BigInteger, "generation", "fetched"),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("deleted_at", Moment),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("id", "account_id"),
        _check("fetched", "fetched <= generation"),
        _check("size", "size >= 0 AND size <= 20"),
        _check("status", "status IN ('provisioning', 'active', 'scaling', 'degraded', 'deleting')"),
    )
    _index("ix_instance_pools_account_id_id", "instance_pools (account_id, id)")
    _index("ix_instance_pools_deleted_at", "instance_pools (deleted_at)", "deleted_at IS NOT NULL")
    _index("ix_instance_pools_node_id", "instance_pools (node, id)")
    _unique_index(
        "uq_instance_pools_name", "instance_pools (account_id, region, name)", "deleted_at IS NULL"
    )
    op.create_table(
        "invoice_charges",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "organization_id", "invoice_id", "payment_method_id"),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("processor", sa.String(16), nullable=False),
        *_columns(sa.Text, "method_reference", "amount"),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        *_nullable(sa.Text, "reference", "code", "message"),
        sa.Column("request_key", sa.String(64)),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        _foreign_key("invoice_id", "invoices (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("invoice_id", "request_key"),
        _check("ended_at", "(state = 'pending') = (ended_at IS NULL)"),
        _check("state", "state IN ('pending', 'succeeded', 'declined')"),
    )
    _index("ix_invoice_charges_pending", "invoice_charges (payment_method_id)", "state = 'pending'")
    _unique_index(
        "uq_invoice_charges_live",
        "invoice_charges (invoice_id)",
        "state IN ('pending', 'succeeded')",
    )
    op.create_table(
        "invoice_lines",
        sa.Column("invoice_id", Id, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        *_columns(ByteOrdered, "region", "sku"),
        sa.Column("month", Moment, nullable=False),
        *_columns(sa.Text, "unit", "quantity", "unit_amount", "amount"),
        sa.PrimaryKeyConstraint("invoice_id", "position"),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key("invoice_id", "invoices (id)", ondelete="CASCADE"),
    )
    _index("ix_invoice_lines_account_id", "invoice_lines (account_id)")
    _resource_table(
        "ip_pools",
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "description", "tags"),
    )
    _unique_index("uq_ip_pools_name", "ip_pools (account_id, region, name)")
    op.create_table(
        "jobs",
        sa.Column("id", Id, primary_key=True),
        sa.Column("kind", ByteOrdered, nullable=False),
        sa.Column("dedup_key", ByteOrdered),
        sa.Column("account_id", Id),
        sa.Column("resource", ByteOrdered),
        sa.Column("state", sa.String(16), nullable=False),
        *_columns(sa.Text, "arguments", "cursor"),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", Moment),
        *_nullable(Id, "lease_token", "lease_holder"),
        sa.Column("wake_at", Moment),
        sa.Column("fault", sa.Text),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("finished_at", Moment),
        _foreign_key("account_id", "accounts (id)"),
        _check("due_at", "(state IN ('queued', 'running')) = (due_at IS NOT NULL)"),
        _check("fault", "state <> 'failed' OR fault IS NOT NULL"),
        _check("finished_at", "(due_at IS NULL) = (finished_at IS NOT NULL)"),
        _check("lease_token", "lease_token IS NULL OR state = 'running'"),
        _check("state", "state IN ('queued', 'running', 'succeeded', 'failed')"),
    )
    _index("ix_jobs_due", "jobs (due_at)", "due_at IS NOT NULL")
    _index("ix_jobs_finished", "jobs (finished_at)", "finished_at IS NOT NULL")
    _index("ix_jobs_held", "jobs (lease_holder)", "lease_holder IS NOT NULL")
    _unique_index("uq_jobs_unfinished", "jobs (kind, dedup_key)", "state IN ('queued', 'running')")
    _resource_table(
        "kms_keys",
        sa.Column("name", ByteOrdered),
        sa.Column("state", sa.String(24), nullable=False),
        sa.Column("key_spec", sa.String(16), nullable=False),
        sa.Column("key_usage", sa.String(24), nullable=False),
        sa.Column("current_version", sa.Integer, nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("deletion_at", Moment),
        *_columns(sa.Text, "description", "tags"),
        sa.UniqueConstraint("id", "name"),
        _check("current_version", "current_version > 0"),
        _check("deleted_name", "(state = 'deleted') = (name IS NULL)"),
        _check(
            "deletion_at", "(state IN ('pending_deletion', 'deleted')) = (deletion_at IS NOT NULL)"
        ),
        _check(
            "key_spec", "key_spec IN ('aes-256', 'hmac-256', 'rsa-2048', 'rsa-4096', 'ecdsa-p256')"
        ),
        _check(
            "key_usage", "key_usage IN ('encrypt_decrypt', 'generate_verify_mac', 'sign_verify')"
        ),
        _check("origin", "origin IN ('customer', 'platform')"),
        _check("platform_state", "origin = 'customer' OR state = 'enabled'"),
        _check("state", "state IN ('enabled', 'disabled', 'pending_deletion', 'deleted')"),
    )
    _index("ix_kms_keys_deleted", "kms_keys (id)", "state = 'deleted'")
    _index("ix_kms_keys_deletion_at", "kms_keys (deletion_at)", "state = 'pending_deletion'")
    _unique_index("uq_kms_keys_name", "kms_keys (account_id, region, name)", "name IS NOT NULL")
    _unique_index("uq_kms_keys_platform", "kms_keys (account_id)", "origin = 'platform'")
    _resource_table(
        "load_balancers",
        sa.Column("status", ByteOrdered, nullable=False),
        *_columns(sa.Text, "faults", "node"),
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "description", "vip"),
        sa.Column("replica_count", sa.Integer, nullable=False),
        *_columns(sa.Text, "tags", "vpc", "subnet"),
        sa.Column("interface_id", Id),
        *_columns(sa.Text, "security_groups", "listeners", "backends"),
        sa.Column("role_id", Id),
        *_columns(sa.BigInteger, "generation", "applied"),
        *_columns(sa.Text, "fingerprints", "replicas", "targets"),
        _check("replica_count", "replica_count BETWEEN 1 AND 4"),
        _check(
            "status",
            "status IN ('provisioning', 'active', 'updating', 'degraded', 'failed', 'deleting')",
        ),
    )
    _unique_index("uq_load_balancers_name", "load_balancers (account_id, region, name)")
    _index("ix_load_balancers_node", "load_balancers (node, id)")
    op.create_table(
        "manifest_bodies",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "digest"),
        _foreign_key("account_id", "accounts (id)"),
    )
    op.create_table(
        "memberships",
        *_columns(Id, "organization_id", "user_id"),
        sa.Column("email", ByteOrdered, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "user_id"),
        _foreign_key("organization_id", "organizations (id)"),
        _foreign_key("user_id, email", "users (id, email)"),
        sa.UniqueConstraint("organization_id", "email"),
        _check("role", "role IN ('owner', 'member', 'billing')"),
    )
    _index("ix_memberships_user_id", "memberships (user_id)")
    op.create_table(
        "missing_topics",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("crn", ByteOrdered, nullable=False),
        *_columns(Moment, "first_at", "last_at"),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "crn"),
        _foreign_key("account_id", "accounts (id)"),
    )
    _index("ix_missing_topics_last_at", "missing_topics (last_at)")
    op.create_table(
        "outbox",
        sa.Column("sequence", _Sequence, primary_key=True),
        *_columns(Id, "id", "account_id"),
        sa.Column("type", ByteOrdered, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("delivered_at", Moment),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("id"),
    )
    _index("ix_outbox_delivered", "outbox (delivered_at)", "delivered_at IS NOT NULL")
    _index("ix_outbox_pending", "outbox (account_id, sequence)", "delivered_at IS NULL")
    _index("ix_outbox_undelivered", "outbox (created_at)", "delivered_at IS NULL")
    op.create_table(
        "policies",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "description", "document"),
        sa.Column("revision", sa.BigInteger, nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("account_ids", sa.Text, nullable=False, server_default=sa.text("'{}'")),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("account_id", "name"),
        sa.UniqueConstraint("id", "account_id"),
    )
    op.create_table(
        "provider_subjects",
        sa.Column("provider_id", Id, nullable=False),
        sa.Column("subject", ByteOrdered, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("provider_id", "subject"),
        _foreign_key("provider_id", "identity_providers (id)", ondelete="CASCADE"),
        _foreign_key("user_id", "users (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("provider_id", "user_id"),
    )
    _index("ix_provider_subjects_user_id", "provider_subjects (user_id)")
    op.create_table(
        "pull_through_cache_rules",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("prefix", ByteOrdered, nullable=False),
        sa.Column("upstream_url", sa.Text, nullable=False),
        sa.Column("upstream_prefix", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("username", sa.Text),
        sa.Column("secret_sealed", sa.LargeBinary),
        *_columns(sa.BigInteger, "tag_ttl_seconds", "negative_ttl_seconds"),
        *_nullable(sa.BigInteger, "keep_unpulled_days", "max_bytes"),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("last_success_at", Moment),
        *_columns(Moment, "created_at", "updated_at"),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("account_id", "prefix"),
        _check("credential", "(username IS NULL) = (secret_sealed IS NULL)"),
    )
    op.create_table(
        "quarantined_objects",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        *_columns(sa.BigInteger, "size", "stored_size"),
        sa.Column("encoding", sa.String(16), nullable=False),
        sa.Column("swept_at", Moment, nullable=False),
        sa.Column("removal_began_at", Moment),
        sa.Column("stored_id", Id, nullable=False),
        sa.Column("is_inline", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("checksum", sa.String(64)),
        _foreign_key("account_id", "accounts (id)"),
    )
    _index("ix_quarantined_objects_account_id_digest", "quarantined_objects (account_id, digest)")
    _index(
        "ix_quarantined_objects_account_id_swept_at", "quarantined_objects (account_id, swept_at)"
    )
    _unique_index("uq_quarantined_objects_stored_id", "quarantined_objects (stored_id)")
    op.create_table(
        "queues",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        *_columns(ByteOrdered, "region", "name"),
        sa.Column("description", sa.Text, nullable=False),
        *_columns(sa.Integer, "retention_seconds", "lease_seconds", "delay_seconds"),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("dead_letter_queue_id", Id),
        sa.Column("max_leases", sa.Integer),
        sa.Column("purged_through", sa.BigInteger, nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("deleted_at", Moment),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key(
            "dead_letter_queue_id, account_id",
            "queues (id, account_id)",
            name="fk_queues_dead_letter_queue",
        ),
        sa.UniqueConstraint("id", "account_id"),
        _check("dead_letter_queue_id", "dead_letter_queue_id <> id"),
        _check("delay_seconds", "delay_seconds >= 0"),
        _check("lease_seconds", "lease_seconds > 0"),
        _check("max_leases", "max_leases > 0"),
        _check("redrive_policy", "(dead_letter_queue_id IS NULL) = (max_leases IS NULL)"),
        _check("retention_seconds", "retention_seconds > 0"),
    )
    _index("ix_queues_account_id_id", "queues (account_id, id)")
    _index(
        "ix_queues_dead_letter_queue_id",
        "queues (dead_letter_queue_id)",
        "dead_letter_queue_id IS NOT NULL",
    )
    _index("ix_queues_deleted", "queues (id)", "deleted_at IS NOT NULL")
    _unique_index("uq_queues_name", "queues (account_id, region, name)", "deleted_at IS NULL")
    op.create_table(
        "quota_levels",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("percent", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name"),
        _foreign_key("account_id", "accounts (id)"),
        _check("percent", "percent IN (0, 80, 100)"),
    )
    op.create_table(
        "quotas",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("maximum", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name"),
        _foreign_key("account_id", "accounts (id)"),
        _check("maximum", "maximum >= 0"),
    )
    op.create_table(
        "registry_settings",
        sa.Column("account_id", Id, primary_key=True),
        sa.Column("undelete_days", sa.Integer, nullable=False),
        sa.Column("uncounted_pullers", sa.Text, nullable=False),
        sa.Column("access_key_login", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("updated_at", Moment, nullable=False),
        _foreign_key("account_id", "accounts (id)"),
        _check("undelete_days", "undelete_days BETWEEN 0 AND 90"),
    )
    op.create_table(
        "repositories",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("tags", sa.Text, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("tag_mutability", sa.String(16), nullable=False),
        sa.Column(
            "immutable_tag_exclusions", sa.Text, nullable=False, server_default=sa.text("'[]'")
        ),
        sa.Column("source", sa.String(32), nullable=False),
        sa.Column("image_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("tag_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("tagged_image_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("size_bytes", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column(
            "deleted_image_count", sa.BigInteger, nullable=False, server_default=sa.text("0")
        ),
        sa.Column("deleted_tag_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("deleted_at", Moment),
        *_nullable(sa.Text, "deleted_by", "deleted_by_source"),
        sa.Column("restorable_until", Moment),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("is_sparse", sa.Boolean, nullable=False, server_default=sa.text("false")),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("id", "account_id"),
        _check("deleted_image_count", "deleted_image_count >= 0"),
        _check("deleted_tag_count", "deleted_tag_count >= 0"),
        _check("image_count", "image_count >= 0"),
        _check("size_bytes", "size_bytes >= 0"),
        _check("source", "source IN ('user', 'push', 'pull_through_cache')"),
        _check("tag_count", "tag_count >= 0"),
        _check("tag_mutability", "tag_mutability IN ('mutable', 'immutable')"),
        _check("tagged_image_count", "tagged_image_count >= 0"),
    )
    _index("ix_repositories_deleted", "repositories (account_id, id)", "deleted_at IS NOT NULL")
    _index(
        "ix_repositories_restorable",
        "repositories (account_id, restorable_until)",
        "restorable_until IS NOT NULL",
    )
    _index(
        "ix_repositories_restorable_until",
        "repositories (restorable_until)",
        "restorable_until IS NOT NULL",
    )
    _unique_index(
        "uq_repositories_live_name", "repositories (account_id, name)", "deleted_at IS NULL"
    )
    op.create_table(
        "repository_folders",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("folder", ByteOrdered, nullable=False),
        sa.Column("repository_count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "folder"),
        _foreign_key("account_id", "accounts (id)"),
        _check("repository_count", "repository_count >= 0"),
    )
    op.create_table(
        "roles",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "description", "trust_policy"),
        sa.Column("max_session_seconds", sa.BigInteger, nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        sa.Column("trust_ids", sa.Text, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("last_used_at", Moment),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("account_id", "name"),
        sa.UniqueConstraint("id", "account_id"),
        _check("max_session_seconds", "max_session_seconds BETWEEN 3600 AND 43200"),
    )
    op.create_table(
        "runs",
        sa.Column("id", Id, primary_key=True),
        sa.Column("kind", ByteOrdered, nullable=False),
        *_columns(Id, "account_id", "scope_id"),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger),
        *_columns(sa.Text, "counts", "faults"),
        sa.Column("fault", sa.Text),
        sa.Column("started_by", sa.Text, nullable=False),
        sa.Column("started_by_source", sa.Text),
        sa.Column("started_at", Moment, nullable=False),
        sa.Column("finished_at", Moment),
        _foreign_key("account_id", "accounts (id)"),
        _check("finished_at", "(state = 'running') = (finished_at IS NULL)"),
        _check("state", "state IN ('running', 'succeeded', 'failed')"),
    )
    _index("ix_runs_scope_id_kind_id", "runs (scope_id, kind, id)")
    _unique_index("uq_runs_running", "runs (scope_id, kind)", "state = 'running'")
    op.create_table(
        "service_accounts",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        _foreign_key("account_id", "accounts (id)"),
        sa.UniqueConstraint("account_id", "name"),
        sa.UniqueConstraint("id", "account_id"),
        _check("status", "status IN ('active', 'suspended')"),
    )
    op.create_table(
        "storage_account_bytes",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "shard"),
        _foreign_key("account_id", "accounts (id)"),
    )
    op.create_table(
        "stored_bytes",
        sa.Column("account_id", Id, primary_key=True),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        _foreign_key("account_id", "accounts (id)"),
        _check("bytes", "bytes >= 0"),
    )
    _resource_table(
        "suppressions",
        *_columns(sa.Text, "address", "description"),
        sa.Column("expires_at", Moment),
        sa.Column("reason", ByteOrdered, nullable=False),
        sa.Column("source_message_id", sa.Text),
        sa.Column("folded", ByteOrdered, nullable=False),
        _check("reason", "reason IN ('auto_bounce', 'auto_complaint', 'unsubscribe', 'manual')"),
    )
    _unique_index("uq_suppressions_folded", "suppressions (account_id, region, folded)")
    _resource_table(
        "topics",
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "description", "tags", "delivery_policy"),
        sa.UniqueConstraint("account_id", "region", "name"),
    )
    _resource_table(
        "vpcs",
        *_columns(sa.Text, "status", "faults", "node"),
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(sa.Text, "description", "cidr_ipv4"),
        sa.Column("cidr_ipv6", ByteOrdered),
        sa.Column("tags", sa.Text, nullable=False),
        *_columns(sa.BigInteger, "generation", "checked", "applied"),
        _check("status", "status IN ('provisioning', 'active', 'degraded', 'deleting')"),
    )
    _unique_index("uq_vpcs_name", "vpcs (account_id, region, name)")
    _index("ix_vpcs_node_id", "vpcs (node, id)")
    _unique_index("uq_vpcs_cidr_ipv6", "vpcs (cidr_ipv6)", "cidr_ipv6 < 'f'")
    op.create_table(
        "waiting_events",
        sa.Column("event_id", Id, nullable=False),
        sa.Column("crn", ByteOrdered, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("type", ByteOrdered, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "crn"),
        _foreign_key("account_id", "accounts (id)"),
    )
    _index("ix_waiting_events_created_at", "waiting_events (created_at)")
    _index("ix_waiting_events_topic", "waiting_events (account_id, crn, event_id)")
    op.create_table(
        "access_keys",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "account_id", "service_account_id"),
        sa.Column("access_key_id", sa.String(20), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("secret_sealed", sa.LargeBinary, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("last_used_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("description", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("expires_at", Moment),
        _foreign_key(
            "service_account_id, account_id",
            "service_accounts (id, account_id)",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("access_key_id"),
        _check("status", "status IN ('active', 'inactive')"),
    )
    _index("ix_access_keys_service_account_id", "access_keys (service_account_id)")
    op.create_table(
        "backup_schedules",
        sa.Column("cluster_id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        _foreign_key(
            "cluster_id, account_id",
            "database_clusters (id, account_id)",
            name="fk_backup_schedules_cluster",
            ondelete="CASCADE",
        ),
    )
    _index("ix_backup_schedules_due_at", "backup_schedules (due_at)")
    op.create_table(
        "blob_object_keys",
        *_columns(Id, "object_id", "kms_key_id", "account_id"),
        sa.Column("wrapped_data_key", sa.LargeBinary),
        sa.PrimaryKeyConstraint("object_id", "kms_key_id"),
        _foreign_key("kms_key_id, account_id", "kms_keys (id, account_id)"),
        _foreign_key("object_id", "blob_objects (id)", ondelete="CASCADE"),
    )
    _index(
        "ix_blob_object_keys_erasable",
        "blob_object_keys (kms_key_id, object_id)",
        "wrapped_data_key IS NOT NULL",
    )
    op.create_table(
        "cached_referrers",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("subject", DigestText, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        *_columns(Moment, "checked_at", "fresh_until"),
        sa.PrimaryKeyConstraint("repository_id", "subject"),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
    )
    _index("ix_cached_referrers_fresh_until", "cached_referrers (fresh_until)")
    op.create_table(
        "certificate_issues",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        *_columns(Id, "certificate_id", "account_id"),
        sa.Column("issuer", sa.String(16), nullable=False),
        sa.Column("certificate", sa.LargeBinary, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key("certificate_id", "certificates (id)", ondelete="CASCADE"),
    )
    _index("ix_certificate_issues_certificate_id", "certificate_issues (certificate_id)")
    op.create_table(
        "certificate_texts",
        *_columns(ByteOrdered, "name", "value"),
        sa.Column("certificate_id", Id, nullable=False),
        sa.PrimaryKeyConstraint("name", "value"),
        _foreign_key("certificate_id", "certificates (id)", ondelete="CASCADE"),
    )
    _index("ix_certificate_texts_certificate_id", "certificate_texts (certificate_id)")
    op.create_table(
        "certificate_users",
        sa.Column("certificate_id", Id, nullable=False),
        sa.Column("used_by", ByteOrdered, nullable=False),
        sa.PrimaryKeyConstraint("certificate_id", "used_by"),
        _foreign_key("certificate_id", "certificates (id)"),
    )
    _resource_table(
        "database_backups",
        *_columns(sa.Text, "status", "faults", "node"),
        sa.Column("cluster_id", Id, nullable=False),
        *_columns(sa.Text, "kind", "trigger"),
        sa.Column("progress", sa.Integer, nullable=False),
        *_nullable(sa.BigInteger, "size_bytes", "stored_bytes"),
        *_nullable(Moment, "started_at", "completed_at"),
        sa.Column("verification", sa.Text, nullable=False),
        sa.Column("verified_at", Moment),
        sa.Column("verified_by", sa.Text),
        sa.Column("base_id", Id),
        sa.Column("label", sa.Text, nullable=False),
        _foreign_key(
            "base_id, account_id",
            "database_backups (id, account_id)",
            name="fk_database_backups_base",
        ),
        _foreign_key(
            "cluster_id, account_id",
            "database_clusters (id, account_id)",
            name="fk_database_backups_cluster",
        ),
        _check("base_id", "kind = 'incremental' OR base_id IS NULL"),
        _check("kind", "kind IN ('base', 'incremental')"),
        _check("progress", "progress BETWEEN 0 AND 100"),
        _check("status", "status IN ('pending', 'running', 'succeeded', 'failed', 'deleting')"),
        _check("trigger", "trigger IN ('manual', 'schedule')"),
        _check(
            "verification", "verification IN ('never', 'pending', 'running', 'succeeded', 'failed')"
        ),
    )
    _index("ix_database_backups_base_id", "database_backups (base_id)")
    _index("ix_database_backups_cluster_id_id", "database_backups (cluster_id, id)")
    _index("ix_database_backups_verifying", "database_backups (node)", "verification = 'running'")
    _resource_table(
        "dedicated_ips",
        sa.Column("address", ByteOrdered, nullable=False),
        sa.Column("warmup_status", sa.Text, nullable=False),
        sa.Column("warmup_percentage", sa.Integer, nullable=False),
        sa.Column("warmup_started_at", Moment),
        sa.Column("ip_pool_id", Id),
        *_columns(sa.BigInteger, "day", "sent"),
        sa.Column("outcomes", sa.LargeBinary, nullable=False),
        _foreign_key(
            "ip_pool_id, account_id", "ip_pools (id, account_id)", name="fk_dedicated_ips_ip_pool"
        ),
        _check("sent", "sent >= 0"),
        _check("warmup_status", "warmup_status IN ('new', 'warming', 'warmed', 'paused')"),
    )
    _index("ix_dedicated_ips_ip_pool_id", "dedicated_ips (ip_pool_id)")
    _unique_index("uq_dedicated_ips_address", "dedicated_ips (address)")
    op.create_table(
        "deleted_manifests",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "repository_id", "account_id"),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("artifact_type", sa.Text),
        *_nullable(DigestText, "config_digest", "subject_digest"),
        sa.Column("is_index", sa.Boolean, nullable=False),
        *_columns(sa.BigInteger, "manifest_size_bytes", "size_bytes"),
        *_columns(sa.Text, "annotations", "tags"),
        sa.Column("pushed_at", Moment, nullable=False),
        sa.Column("last_pulled_at", Moment),
        sa.Column("deleted_at", Moment, nullable=False),
        sa.Column("deleted_by", sa.Text, nullable=False),
        sa.Column("deleted_by_source", sa.Text),
        sa.Column("restorable_until", Moment, nullable=False),
        _foreign_key("account_id, digest", "manifest_bodies (account_id, digest)"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
    )
    _index("ix_deleted_manifests_deleted_at", "deleted_manifests (repository_id, deleted_at, id)")
    _index("ix_deleted_manifests_restorable", "deleted_manifests (repository_id, restorable_until)")
    _index("ix_deleted_manifests_restorable_until", "deleted_manifests (restorable_until)")
    _unique_index("uq_deleted_manifests_digest", "deleted_manifests (digest, repository_id)")
    op.create_table(
        "deleted_tags",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        *_columns(DigestText, "digest", "pushed_digest"),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("has_image", sa.Boolean, nullable=False),
        sa.Column("deleted_at", Moment, nullable=False),
        sa.Column("deleted_by", sa.Text, nullable=False),
        sa.Column("deleted_by_source", sa.Text),
        sa.Column("restorable_until", Moment, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "name"),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
    )
    _index("ix_deleted_tags_repository_id_digest", "deleted_tags (repository_id, digest)")
    _index(
        "ix_deleted_tags_restorable", "deleted_tags (repository_id, restorable_until)", "has_image"
    )
    _index("ix_deleted_tags_restorable_until", "deleted_tags (restorable_until)")
    _index("ix_deleted_tags_sequence", "deleted_tags (repository_id, sequence)", "has_image")
    op.create_table(
        "email_contents",
        sa.Column("message_id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("ended_at", Moment),
        _foreign_key(
            "message_id, account_id",
            "email_messages (id, account_id)",
            name="fk_email_contents_message",
            ondelete="CASCADE",
        ),
    )
    _index("ix_email_contents_ended_at", "email_contents (ended_at)", "ended_at IS NOT NULL")
    _resource_table(
        "email_identities",
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        *_columns(ByteOrdered, "value", "kind"),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("ip_pool_id", Id),
        *_nullable(Moment, "verified_at", "checked_at"),
        sa.Column("tags", sa.Text, nullable=False),
        *_nullable(sa.Text, "dkim_selector", "dkim_public"),
        sa.Column("dkim_key", sa.LargeBinary),
        sa.Column("check_at", Moment),
        sa.Column("asked", sa.BigInteger, nullable=False),
        sa.Column("confirmation_nonce", sa.Text),
        sa.Column("confirmation_hash", sa.LargeBinary),
        sa.Column("confirmation_expires_at", Moment),
        _foreign_key(
            "ip_pool_id, account_id",
            "ip_pools (id, account_id)",
            name="fk_email_identities_ip_pool",
        ),
        _check("confirmation_hash", "kind = 'address' OR confirmation_hash IS NULL"),
        _check(
            "dkim_key",
            "(kind = 'domain') = (dkim_key IS NOT NULL)"
            " AND (dkim_key IS NULL) = (dkim_public IS NULL)"
            " AND (dkim_key IS NULL) = (dkim_selector IS NULL)",
        ),
        _check("kind", "kind IN ('domain', 'address')"),
        _check("status", "status IN ('pending', 'verified', 'failed')"),
        _check("verified_at", "status <> 'verified' OR verified_at IS NOT NULL"),
    )
    _index("ix_email_identities_check_at", "email_identities (check_at)", "check_at IS NOT NULL")
    _index("ix_email_identities_ip_pool_id", "email_identities (ip_pool_id)")
    _unique_index(
        "uq_email_identities_confirmation_hash",
        "email_identities (confirmation_hash)",
        "confirmation_hash IS NOT NULL",
    )
    _unique_index("uq_email_identities_value", "email_identities (account_id, region, value)")
    op.create_table(
        "email_recipients",
        sa.Column("message_id", Id, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("folded", ByteOrdered, nullable=False),
        *_columns(sa.Text, "kind", "status"),
        sa.Column("reason", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("last_attempt_at", Moment),
        sa.Column("source_ip", sa.Text),
        sa.Column("next_attempt_at", Moment),
        sa.PrimaryKeyConstraint("message_id", "position"),
        _foreign_key(
            "message_id, account_id",
            "email_messages (id, account_id)",
            name="fk_email_recipients_message",
            ondelete="CASCADE",
        ),
        _check("attempts", "attempts >= 0"),
        _check("kind", "kind IN ('to', 'cc', 'bcc')"),
        _check(
            "next_attempt_at", "(status IN ('queued', 'deferred')) = (next_attempt_at IS NOT NULL)"
        ),
        _check(
            "status",
            "status IN ('queued', 'deferred', 'complained', 'bounced', 'sent', 'suppressed')",
        ),
    )
    _index("ix_email_recipients_folded", "email_recipients (account_id, folded, message_id)")
    _index(
        "ix_email_recipients_source_ip",
        "email_recipients (account_id, source_ip)",
        "status IN ('queued', 'deferred')",
    )
    op.create_table(
        "encryption_bindings",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("repository_id", Id),
        sa.Column("kms_key_id", Id, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key("kms_key_id, account_id", "kms_keys (id, account_id)"),
        _foreign_key(
            "repository_id, account_id", "repositories (id, account_id)", ondelete="CASCADE"
        ),
    )
    _index(
        "ix_encryption_bindings_account_id_repository_id_id",
        "encryption_bindings (account_id, repository_id, id)",
    )
    _index("ix_encryption_bindings_kms_key_id", "encryption_bindings (kms_key_id)")
    _unique_index(
        "uq_encryption_bindings_account",
        "encryption_bindings (account_id)",
        "ended_at IS NULL AND repository_id IS NULL",
    )
    _unique_index(
        "uq_encryption_bindings_repository",
        "encryption_bindings (repository_id)",
        "ended_at IS NULL AND repository_id IS NOT NULL",
    )
    op.create_table(
        "group_assignments",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "role_id", "provider_id"),
        sa.Column("group_name", ByteOrdered, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        _foreign_key("provider_id", "identity_providers (id)", ondelete="CASCADE"),
        _foreign_key("role_id", "roles (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("role_id", "provider_id", "group_name"),
    )
    _index(
        "ix_group_assignments_provider_id_group_name", "group_assignments (provider_id, group_name)"
    )
    _resource_table(
        "instances",
        sa.Column("pool_id", Id, nullable=False),
        sa.Column("node", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        *_nullable(sa.Text, "address", "address_ipv6"),
        *_columns(sa.Text, "image", "image_digest"),
        sa.Column("started_at", Moment),
        sa.Column("restarts", sa.BigInteger, nullable=False),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("version", sa.Text, nullable=False),
        *_columns(sa.BigInteger, "memory_mb", "cpu_millis"),
        sa.Column("ports", sa.Text, nullable=False),
        sa.Column("interface_id", Id),
        sa.Column("exits", sa.Text, nullable=False),
        sa.Column("not_before", sa.BigInteger),
        _foreign_key(
            "pool_id, account_id", "instance_pools (id, account_id)", name="fk_instances_pool"
        ),
        _check("status", "status IN ('starting', 'running', 'unhealthy', 'stopping', 'stopped')"),
    )
    _index("ix_instances_node_id", "instances (node, id)")
    _index("ix_instances_pool_id", "instances (pool_id)")
    _unique_index(
        "uq_instances_interface_id", "instances (interface_id)", "interface_id IS NOT NULL"
    )
    _resource_table(
        "internet_gateways",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("vpc_id", Id),
        sa.Column("tags", sa.Text, nullable=False),
        _foreign_key(
            "vpc_id, account_id", "vpcs (id, account_id)", name="fk_internet_gateways_vpc"
        ),
    )
    _unique_index("uq_internet_gateways_name", "internet_gateways (account_id, region, name)")
    _unique_index("uq_internet_gateways_vpc_id", "internet_gateways (vpc_id)")
    op.create_table(
        "kms_key_versions",
        sa.Column("key_id", Id, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("key_name", ByteOrdered, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("provider", sa.String(16), nullable=False),
        sa.Column("wrapped_material", sa.LargeBinary, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("key_id", "version"),
        _foreign_key(
            "key_id, account_id",
            "kms_keys (id, account_id)",
            name="fk_kms_key_versions_key_account",
        ),
        _foreign_key(
            "key_id, key_name", "kms_keys (id, name)", name="fk_kms_key_versions_key_name"
        ),
        _check("provider", "provider IN ('embedded', 'aws')"),
        _check("version", "version > 0"),
    )
    op.create_table(
        "lifecycle_policies",
        sa.Column("repository_id", Id, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        *_columns(Moment, "next_run_at", "updated_at"),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
    )
    _index("ix_lifecycle_policies_next_run_at", "lifecycle_policies (next_run_at)")
    op.create_table(
        "load_balancer_metrics",
        sa.Column("load_balancer_id", Id, nullable=False),
        sa.Column("replica", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        *_columns(sa.Text, "served", "last"),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("load_balancer_id", "replica"),
        _foreign_key(
            "load_balancer_id, account_id",
            "load_balancers (id, account_id)",
            name="fk_load_balancer_metrics_load_balancer",
        ),
    )
    op.create_table(
        "load_balancer_pools",
        *_columns(Id, "pool_id", "load_balancer_id", "account_id"),
        sa.PrimaryKeyConstraint("pool_id", "load_balancer_id"),
        _foreign_key(
            "load_balancer_id, account_id",
            "load_balancers (id, account_id)",
            name="fk_load_balancer_pools_load_balancer",
        ),
    )
    _index("ix_load_balancer_pools_load_balancer_id", "load_balancer_pools (load_balancer_id)")
    op.create_table(
        "load_balancer_vips",
        sa.Column("vip", ByteOrdered, primary_key=True),
        *_columns(Id, "account_id", "load_balancer_id"),
        _foreign_key(
            "load_balancer_id, account_id",
            "load_balancers (id, account_id)",
            name="fk_load_balancer_vips_load_balancer",
        ),
        sa.UniqueConstraint("load_balancer_id"),
    )
    op.create_table(
        "manifests",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "repository_id", "account_id"),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("artifact_type", sa.Text),
        *_nullable(DigestText, "config_digest", "subject_digest"),
        sa.Column("is_index", sa.Boolean, nullable=False),
        *_columns(sa.BigInteger, "manifest_size_bytes", "size_bytes"),
        sa.Column("tag_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("annotations", sa.Text, nullable=False),
        sa.Column("pushed_at", Moment, nullable=False),
        *_nullable(Moment, "restored_at", "last_pulled_at"),
        _foreign_key("account_id, digest", "manifest_bodies (account_id, digest)"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
        sa.UniqueConstraint("id", "repository_id"),
        sa.UniqueConstraint("repository_id", "digest"),
        _check("tag_count", "tag_count >= 0"),
    )
    _index("ix_manifests_account_id_digest", "manifests (account_id, digest)")
    _index(
        "ix_manifests_last_pulled_at",
        "manifests (repository_id, last_pulled_at)",
        "last_pulled_at IS NOT NULL",
    )
    _index("ix_manifests_repository_id_id", "manifests (repository_id, id)")
    _index(
        "ix_manifests_subject",
        "manifests (repository_id, subject_digest, id)",
        "subject_digest IS NOT NULL",
    )
    _index("ix_manifests_tagged", "manifests (repository_id, id)", "tag_count > 0")
    _index("ix_manifests_untagged", "manifests (repository_id, id)", "tag_count = 0")
    op.create_table(
        "policy_attachments",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "account_id", "policy_id"),
        *_nullable(Id, "service_account_id", "role_id"),
        sa.Column("created_at", Moment, nullable=False),
        _foreign_key("policy_id, account_id", "policies (id, account_id)"),
        _foreign_key("role_id, account_id", "roles (id, account_id)", ondelete="CASCADE"),
        _foreign_key(
            "service_account_id, account_id",
            "service_accounts (id, account_id)",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("policy_id", "role_id"),
        sa.UniqueConstraint("policy_id", "service_account_id"),
        _check("one_principal", "(service_account_id IS NULL) <> (role_id IS NULL)"),
    )
    _index("ix_policy_attachments_role_id", "policy_attachments (role_id)")
    _index("ix_policy_attachments_service_account_id", "policy_attachments (service_account_id)")
    op.create_table(
        "policy_revisions",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "kind"),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
        _check("kind", "kind IN ('resource', 'lifecycle')"),
    )
    op.create_table(
        "publications",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "topic_id", "account_id"),
        sa.Column("subject", sa.Text),
        *_columns(sa.Text, "message", "attributes"),
        sa.Column("published_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.Column("content_type", sa.Text),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key("topic_id", "topics (id)", ondelete="CASCADE"),
    )
    _index("ix_publications_ended_at", "publications (ended_at)")
    _index("ix_publications_topic_id", "publications (topic_id)")
    op.create_table(
        "pull_through_stats",
        sa.Column("rule_id", Id, primary_key=True),
        *_columns(sa.BigInteger, "pulls", "misses", "fetched_bytes", "served_bytes"),
        _foreign_key("rule_id", "pull_through_cache_rules (id)", ondelete="CASCADE"),
    )
    op.create_table(
        "quarantined_object_keys",
        *_columns(Id, "quarantined_id", "kms_key_id", "account_id"),
        sa.Column("wrapped_data_key", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("quarantined_id", "kms_key_id"),
        _foreign_key("kms_key_id, account_id", "kms_keys (id, account_id)"),
        _foreign_key("quarantined_id", "quarantined_objects (id)", ondelete="CASCADE"),
    )
    _index(
        "ix_quarantined_object_keys_kms_key_id_quarantined_id",
        "quarantined_object_keys (kms_key_id, quarantined_id)",
    )
    op.create_table(
        "queue_messages",
        sa.Column("position", _Sequence, primary_key=True),
        *_columns(Id, "id", "queue_id", "account_id"),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("queued_at", Moment, nullable=False),
        sa.Column("hidden_until", Moment),
        sa.Column("lease_token", sa.String(22)),
        sa.Column("lease_count", sa.Integer, nullable=False),
        sa.Column("sent_at", Moment, nullable=False),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        _foreign_key(
            "queue_id, account_id", "queues (id, account_id)", name="fk_queue_messages_queue"
        ),
        _check("lease_count", "lease_count >= 0"),
        _check("lease_token", "lease_token IS NULL OR hidden_until IS NOT NULL"),
        sqlite_autoincrement=True,
    )
    _index("ix_queue_messages_all", "queue_messages (queue_id, position, size)")
    _index(
        "ix_queue_messages_hidden",
        "queue_messages (queue_id, hidden_until, position)",
        "hidden_until IS NOT NULL",
    )
    _index(
        "ix_queue_messages_visible", "queue_messages (queue_id, position)", "hidden_until IS NULL"
    )
    _unique_index("uq_queue_messages_id", "queue_messages (id)")
    op.create_table(
        "repository_activity",
        sa.Column("repository_id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("used_at", Moment, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
    )
    _index(
        "ix_repository_activity_used_at",
        "repository_activity (account_id, used_at, repository_id)",
        "size_bytes > 0",
    )
    op.create_table(
        "repository_days",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        *_columns(sa.BigInteger, "size_bytes", "pulls"),
        sa.PrimaryKeyConstraint("repository_id", "day"),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
    )
    _index("ix_repository_days_account_id_day", "repository_days (account_id, day)")
    _index("ix_repository_days_day", "repository_days (day)")
    op.create_table(
        "repository_growth",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("span", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        *_columns(sa.BigInteger, "size_before", "size_bytes", "change_bytes"),
        sa.PrimaryKeyConstraint("repository_id", "span"),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
    )
    _index(
        "ix_repository_growth_account_id_span_change_bytes_repository_id",
        "repository_growth (account_id, span, change_bytes, repository_id)",
    )
    op.create_table(
        "resource_policies",
        sa.Column("repository_id", Id, primary_key=True),
        *_columns(sa.Text, "document", "principal_ids"),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
        _check("visibility", "visibility IN ('private', 'shared', 'public')"),
    )
    op.create_table(
        "role_assignments",
        *_columns(Id, "role_id", "user_id"),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("identity_provider_id", Id),
        sa.PrimaryKeyConstraint("role_id", "user_id"),
        _foreign_key("identity_provider_id", "identity_providers (id)", ondelete="CASCADE"),
        _foreign_key("role_id", "roles (id)", ondelete="CASCADE"),
        _foreign_key("user_id", "users (id)", ondelete="CASCADE"),
    )
    _index("ix_role_assignments_identity_provider_id", "role_assignments (identity_provider_id)")
    _index("ix_role_assignments_user_id", "role_assignments (user_id)")
    _resource_table(
        "security_groups",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_default", sa.Boolean, nullable=False),
        *_columns(sa.Text, "tags", "rules"),
        _foreign_key("vpc_id, account_id", "vpcs (id, account_id)", name="fk_security_groups_vpc"),
    )
    _unique_index("uq_security_groups_name", "security_groups (account_id, region, name)")
    _index("ix_security_groups_vpc_id", "security_groups (vpc_id)")
    _unique_index("uq_security_groups_default", "security_groups (vpc_id)", "is_default")
    _resource_table(
        "storage_buckets",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.Column("cors", sa.Text),
        sa.Column("tags", sa.Text, nullable=False),
        _foreign_key(
            "kms_key_id, account_id", "kms_keys (id, account_id)", name="fk_storage_buckets_kms_key"
        ),
        sa.UniqueConstraint("region", "name"),
    )
    _index(
        "ix_storage_buckets_account_id_region_name", "storage_buckets (account_id, region, name)"
    )
    _index("ix_storage_buckets_kms_key_id", "storage_buckets (kms_key_id)")
    _resource_table(
        "subscriptions",
        sa.Column("topic_id", Id, nullable=False),
        sa.Column("protocol", sa.String(8), nullable=False),
        sa.Column("endpoint", ByteOrdered, nullable=False),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("filter_policy", sa.Text, nullable=False),
        sa.Column("raw_message_delivery", sa.Boolean, nullable=False),
        sa.Column("confirmation_expires_at", Moment),
        *_columns(sa.Text, "faults", "delivery_policy"),
        sa.Column("dead_letter_queue", ByteOrdered),
        *_nullable(sa.LargeBinary, "signing_secret", "previous_secret"),
        sa.Column("previous_until", Moment),
        sa.Column("confirmation_nonce", ByteOrdered),
        sa.Column("confirmation_hash", sa.LargeBinary),
        sa.Column("active_since", Moment),
        _foreign_key("topic_id", "topics (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("confirmation_hash"),
        sa.UniqueConstraint("topic_id", "protocol", "endpoint"),
        _check("active_since", "(active_since IS NULL) = (status <> 'confirmed')"),
        _check(
            "confirmation_expires_at",
            "(confirmation_hash IS NULL) = (confirmation_expires_at IS NULL)",
        ),
        _check("confirmation_hash", "(confirmation_hash IS NULL) = (status = 'confirmed')"),
        _check("previous_secret", "(previous_secret IS NULL) = (previous_until IS NULL)"),
        _check("protocol", "protocol IN ('email', 'http', 'https', 'queue')"),
        _check("queue_status", "status = 'confirmed' OR protocol <> 'queue'"),
        _check("signing_secret", "(protocol IN ('http', 'https')) = (signing_secret IS NOT NULL)"),
        _check("status", "status IN ('pending_confirmation', 'confirmed')"),
    )
    _index("ix_subscriptions_topic_id_id", "subscriptions (topic_id, id)")
    op.create_table(
        "tag_events",
        sa.Column("sequence", _Sequence, primary_key=True),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("tag", ByteOrdered, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        *_nullable(DigestText, "digest", "previous_digest"),
        *_nullable(Id, "manifest_id", "previous_manifest_id"),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("source", sa.Text),
        sa.Column("occurred_at", Moment, nullable=False),
        _foreign_key("repository_id", "repositories (id)", ondelete="CASCADE"),
        _check("action", "action IN ('created', 'moved', 'deleted', 'restored')"),
        _check("digest", "(digest IS NULL) = (action = 'deleted')"),
    )
    _index(
        "ix_tag_events_previous_digest",
        "tag_events (repository_id, previous_digest, occurred_at)",
        "previous_digest IS NOT NULL",
    )
    _index("ix_tag_events_repository_id_sequence", "tag_events (repository_id, sequence)")
    _index("ix_tag_events_repository_id_tag_sequence", "tag_events (repository_id, tag, sequence)")
    op.create_table(
        "uploads",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "repository_id", "account_id"),
        sa.Column("algorithm", sa.String(16)),
        sa.Column("received_bytes", sa.BigInteger, nullable=False),
        sa.Column("digests", sa.Text),
        sa.Column("stage_id", Id),
        sa.Column("stage_shared", sa.Boolean, nullable=False),
        sa.Column("lease_holder", Id),
        sa.Column("lease_token", sa.BigInteger, nullable=False),
        sa.Column("leased_until", Moment),
        *_columns(Moment, "created_at", "expires_at"),
        sa.Column("kms_key_id", Id),
        *_nullable(sa.LargeBinary, "wrapped_data_key", "body"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
        _check("data_key", "(kms_key_id IS NULL) = (wrapped_data_key IS NULL)"),
        _check("lease", "(lease_holder IS NULL) = (leased_until IS NULL)"),
        _check("received_bytes", "received_bytes >= 0"),
    )
    _index("ix_uploads_account_id_expires_at", "uploads (account_id, expires_at)")
    _index("ix_uploads_expires_at", "uploads (expires_at)")
    _index("ix_uploads_repository_id_expires_at", "uploads (repository_id, expires_at)")
    _unique_index("uq_uploads_stage_id", "uploads (stage_id)", "stage_id IS NOT NULL")
    op.create_table(
        "upstream_faults",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("code", sa.String(32), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("http_status", sa.Integer),
        *_columns(Moment, "first_at", "last_at"),
        sa.Column("occurrences", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "code"),
        _foreign_key("rule_id", "pull_through_cache_rules (id)", ondelete="CASCADE"),
    )
    op.create_table(
        "upstream_lookups",
        sa.Column("rule_id", Id, nullable=False),
        *_columns(ByteOrdered, "repository", "reference"),
        *_nullable(Moment, "fetching_until", "absent_until"),
        sa.Column("ends_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "repository", "reference"),
        _foreign_key("rule_id", "pull_through_cache_rules (id)", ondelete="CASCADE"),
    )
    _index("ix_upstream_lookups_ends_at", "upstream_lookups (ends_at)")
    op.create_table(
        "upstream_states",
        sa.Column("rule_id", Id, primary_key=True),
        sa.Column("paused_until", Moment),
        sa.Column("pause_code", sa.String(32)),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("failed_at", Moment),
        *_nullable(sa.BigInteger, "rate_limit", "rate_remaining", "rate_window_seconds"),
        sa.Column("rate_at", Moment),
        sa.Column("accepted_repository", ByteOrdered),
        sa.Column("accepted_at", Moment),
        _foreign_key("rule_id", "pull_through_cache_rules (id)", ondelete="CASCADE"),
    )
    op.create_table(
        "upstream_tag_lists",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("repository", ByteOrdered, nullable=False),
        sa.Column("names", sa.LargeBinary, nullable=False),
        sa.Column("is_whole", sa.Boolean, nullable=False),
        *_columns(Moment, "checked_at", "fresh_until"),
        sa.PrimaryKeyConstraint("rule_id", "repository"),
        _foreign_key("rule_id", "pull_through_cache_rules (id)", ondelete="CASCADE"),
    )
    _index("ix_upstream_tag_lists_fresh_until", "upstream_tag_lists (fresh_until)")
    op.create_table(
        "backup_turns",
        sa.Column("cluster_id", Id, primary_key=True),
        *_columns(Id, "account_id", "backup_id"),
        _foreign_key(
            "backup_id, account_id",
            "database_backups (id, account_id)",
            name="fk_backup_turns_backup",
        ),
    )
    _index("ix_backup_turns_backup_id", "backup_turns (backup_id)")
    op.create_table(
        "blob_fills",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("upload_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger),
        sa.PrimaryKeyConstraint("account_id", "digest"),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key("upload_id", "uploads (id)", ondelete="CASCADE"),
    )
    _unique_index("uq_blob_fills_upload_id", "blob_fills (upload_id)")
    op.create_table(
        "bucket_uses",
        *_columns(Id, "bucket_id", "user_id", "account_id"),
        sa.Column("words", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("bucket_id", "user_id"),
        _foreign_key(
            "bucket_id, account_id",
            "storage_buckets (id, account_id)",
            name="fk_bucket_uses_bucket",
        ),
    )
    _index("ix_bucket_uses_account_id_bucket_id", "bucket_uses (account_id, bucket_id)")
    op.create_table(
        "container_passwords",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "user_id", "role_id"),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("password_sha256", sa.String(64), nullable=False),
        *_columns(Moment, "created_at", "expires_at"),
        sa.Column("last_used_at", Moment),
        _foreign_key("role_id, user_id", "role_assignments (role_id, user_id)", ondelete="CASCADE"),
        sa.UniqueConstraint("user_id", "name"),
    )
    _index("ix_container_passwords_expires_at", "container_passwords (expires_at)")
    _index("ix_container_passwords_role_id_user_id", "container_passwords (role_id, user_id)")
    op.create_table(
        "deleted_manifest_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        *_columns(Id, "object_id", "account_id"),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        _foreign_key("manifest_id", "deleted_manifests (id)", ondelete="CASCADE"),
        _foreign_key(
            "object_id, account_id, digest, size", "blob_objects (id, account_id, digest, size)"
        ),
        _foreign_key("object_id, kms_key_id", "blob_object_keys (object_id, kms_key_id)"),
    )
    _index("ix_deleted_manifest_blobs_object_id", "deleted_manifest_blobs (object_id)")
    op.create_table(
        "deleted_manifest_children",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("child_digest", DigestText, nullable=False),
        sa.Column("is_missing", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.PrimaryKeyConstraint("manifest_id", "child_digest"),
        _foreign_key("manifest_id", "deleted_manifests (id)", ondelete="CASCADE"),
    )
    op.create_table(
        "deleted_missing_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        _foreign_key("manifest_id", "deleted_manifests (id)", ondelete="CASCADE"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "account_id", "subscription_id"),
        sa.Column("publication_id", Id),
        sa.Column("size", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("attempts", sa.Integer, nullable=False),
        *_columns(Moment, "due_at", "created_at"),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key("publication_id", "publications (id)", ondelete="CASCADE"),
        _foreign_key("subscription_id", "subscriptions (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("publication_id", "subscription_id"),
    )
    _index("ix_deliveries_due", "deliveries (subscription_id, due_at, size)")
    _resource_table(
        "egress_only_gateways",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        *_columns(sa.Text, "description", "tags"),
        _foreign_key("vpc_id", "internet_gateways (vpc_id)", name="fk_egress_only_gateways_uplink"),
        _foreign_key(
            "vpc_id, account_id", "vpcs (id, account_id)", name="fk_egress_only_gateways_vpc"
        ),
    )
    _unique_index("uq_egress_only_gateways_name", "egress_only_gateways (account_id, region, name)")
    _unique_index("uq_egress_only_gateways_vpc_id", "egress_only_gateways (vpc_id)")
    op.create_table(
        "image_pins",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("expires_at", Moment),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_by_source", sa.Text),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "name"),
        _foreign_key(
            "manifest_id, repository_id", "manifests (id, repository_id)", ondelete="CASCADE"
        ),
    )
    _index("ix_image_pins_expires_at", "image_pins (expires_at)", "expires_at IS NOT NULL")
    _index("ix_image_pins_repository_id_manifest_id", "image_pins (repository_id, manifest_id)")
    op.create_table(
        "manifest_children",
        sa.Column("parent_id", Id, nullable=False),
        sa.Column("child_digest", DigestText, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("child_id", Id),
        sa.PrimaryKeyConstraint("parent_id", "child_digest"),
        _foreign_key("child_id, repository_id", "manifests (id, repository_id)"),
        _foreign_key(
            "parent_id, repository_id", "manifests (id, repository_id)", ondelete="CASCADE"
        ),
    )
    _index("ix_manifest_children_child_id", "manifest_children (child_id)")
    _index(
        "ix_manifest_children_missing",
        "manifest_children (repository_id, child_digest)",
        "child_id IS NULL",
    )
    op.create_table(
        "missing_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        _foreign_key(
            "manifest_id, repository_id", "manifests (id, repository_id)", ondelete="CASCADE"
        ),
    )
    _index("ix_missing_blobs_digest_repository_id", "missing_blobs (digest, repository_id)")
    op.create_table(
        "repository_blobs",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        *_columns(Id, "account_id", "object_id"),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("manifest_refs", sa.Integer, nullable=False),
        sa.Column("touched_at", Moment, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.PrimaryKeyConstraint("repository_id", "digest"),
        _foreign_key(
            "object_id, account_id, digest, size", "blob_objects (id, account_id, digest, size)"
        ),
        _foreign_key("object_id, kms_key_id", "blob_object_keys (object_id, kms_key_id)"),
        _foreign_key("repository_id, account_id", "repositories (id, account_id)"),
        _check("manifest_refs", "manifest_refs >= 0"),
    )
    _index("ix_repository_blobs_object_id", "repository_blobs (object_id)")
    _index(
        "ix_repository_blobs_repository_id_kms_key_id",
        "repository_blobs (repository_id, kms_key_id)",
    )
    _index(
        "ix_repository_blobs_unreferenced",
        "repository_blobs (account_id, touched_at)",
        "manifest_refs = 0",
    )
    op.create_table(
        "sessions",
        sa.Column("id", Id, primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        *_nullable(Id, "user_id", "role_id", "parent_sid", "organization_id"),
        sa.Column("source_crn", sa.Text),
        sa.Column("source_access_key_id", Id),
        *_nullable(sa.Text, "session_name", "first_source"),
        sa.Column("access_key_id", sa.String(20)),
        sa.Column("secret_sealed", sa.LargeBinary),
        sa.Column("token_sha256", sa.String(64)),
        *_columns(Moment, "created_at", "expires_at"),
        *_nullable(Moment, "revoked_at", "ends_at"),
        _foreign_key("organization_id", "organizations (id)", ondelete="SET NULL"),
        _foreign_key("parent_sid", "sessions (id)", ondelete="CASCADE"),
        _foreign_key("role_id", "roles (id)", ondelete="CASCADE"),
        _foreign_key("source_access_key_id", "access_keys (id)", ondelete="CASCADE"),
        _foreign_key("user_id", "users (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("access_key_id"),
        _check(
            "kind",
            "(kind = 'user' AND user_id IS NOT NULL) OR (kind = 'role' AND role_id IS NOT NULL)",
        ),
    )
    _index("ix_sessions_expires_at", "sessions (expires_at)")
    _index("ix_sessions_organization_id", "sessions (organization_id)")
    _index("ix_sessions_parent_sid", "sessions (parent_sid)")
    _index(
        "ix_sessions_role_id_revoked_at_expires_at", "sessions (role_id, revoked_at, expires_at)"
    )
    _index("ix_sessions_source_access_key_id", "sessions (source_access_key_id)")
    _index("ix_sessions_user_id", "sessions (user_id)")
    op.create_table(
        "storage_counts",
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        *_columns(sa.BigInteger, "objects", "object_bytes", "upload_bytes"),
        sa.PrimaryKeyConstraint("bucket_id", "shard"),
        _foreign_key(
            "bucket_id, account_id",
            "storage_buckets (id, account_id)",
            name="fk_storage_counts_bucket",
        ),
    )
    _index("ix_storage_counts_account_id_bucket_id", "storage_counts (account_id, bucket_id)")
    op.create_table(
        "storage_objects",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "bucket_id", "account_id"),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("etag", sa.String(40), nullable=False),
        *_columns(sa.Text, "content_type", "headers", "metadata", "tags"),
        sa.Column("storage_class", sa.String(32), nullable=False),
        sa.Column("checksum", sa.Text),
        sa.Column("created_at", Moment, nullable=False),
        _foreign_key(
            "bucket_id, account_id",
            "storage_buckets (id, account_id)",
            name="fk_storage_objects_bucket",
        ),
        sa.UniqueConstraint("bucket_id", "key"),
        sa.UniqueConstraint("id", "account_id"),
        _check("size", "size >= 0"),
    )
    op.create_table(
        "storage_uploads",
        sa.Column("id", Id, primary_key=True),
        *_columns(Id, "bucket_id", "account_id"),
        sa.Column("key", sa.LargeBinary, nullable=False),
        *_columns(sa.Text, "content_type", "headers", "metadata", "tags"),
        sa.Column("storage_class", sa.String(32), nullable=False),
        *_nullable(sa.String(16), "checksum_algorithm", "checksum_type"),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.Column("completion", sa.Text),
        _foreign_key(
            "bucket_id, account_id",
            "storage_buckets (id, account_id)",
            name="fk_storage_uploads_bucket",
        ),
        sa.UniqueConstraint("id", "account_id"),
        _check("completion", "(ended_at IS NULL) = (completion IS NULL)"),
    )
    _index("ix_storage_uploads_bucket_id", "storage_uploads (bucket_id)")
    _index("ix_storage_uploads_created_at", "storage_uploads (created_at)")
    _index("ix_storage_uploads_ended_at", "storage_uploads (ended_at)", "ended_at IS NOT NULL")
    _index("ix_storage_uploads_open", "storage_uploads (bucket_id, key, id)", "ended_at IS NULL")
    op.create_table(
        "tags",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("pushed_digest", DigestText, nullable=False),
        *_columns(Moment, "created_at", "updated_at"),
        *_nullable(Moment, "fresh_until", "stale_since", "checked_at"),
        sa.Column("upstream_etag", sa.Text),
        sa.PrimaryKeyConstraint("repository_id", "name"),
        _foreign_key(
            "manifest_id, repository_id", "manifests (id, repository_id)", ondelete="CASCADE"
        ),
    )
    _index("ix_tags_manifest_id", "tags (manifest_id)")
    op.create_table(
        "login_credentials",
        sa.Column("id", Id, primary_key=True),
        sa.Column("password_sha256", sa.String(64), nullable=False),
        sa.Column("account_id", Id, nullable=False),
        *_nullable(Id, "service_account_id", "access_key_id", "sid"),
        *_columns(Moment, "created_at", "expires_at"),
        sa.Column("revoked_at", Moment),
        _foreign_key("access_key_id", "access_keys (id)", ondelete="CASCADE"),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key("service_account_id", "service_accounts (id)", ondelete="CASCADE"),
        _foreign_key("sid", "sessions (id)", ondelete="CASCADE"),
        sa.UniqueConstraint("password_sha256"),
    )
    _index(
        "ix_login_credentials_account_id_revoked_at_expires_at",
        "login_credentials (account_id, revoked_at, expires_at)",
    )
    _index("ix_login_credentials_expires_at", "login_credentials (expires_at)")
    _index("ix_login_credentials_service_account_id", "login_credentials (service_account_id)")
    _index("ix_login_credentials_sid", "login_credentials (sid)")
    op.create_table(
        "manifest_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        _foreign_key(
            "manifest_id, repository_id", "manifests (id, repository_id)", ondelete="CASCADE"
        ),
        _foreign_key("repository_id, digest", "repository_blobs (repository_id, digest)"),
    )
    _index("ix_manifest_blobs_digest_repository_id", "manifest_blobs (digest, repository_id)")
    op.create_table(
        "refresh_tokens",
        sa.Column("token_sha256", sa.String(64), primary_key=True),
        sa.Column("sid", Id, nullable=False),
        sa.Column("client_id", sa.String(64)),
        *_columns(Moment, "created_at", "expires_at"),
        sa.Column("spent_at", Moment),
        _foreign_key("sid", "sessions (id)", ondelete="CASCADE"),
    )
    _index("ix_refresh_tokens_expires_at", "refresh_tokens (expires_at)")
    _index("ix_refresh_tokens_sid", "refresh_tokens (sid)")
    _resource_table(
        "route_tables",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_main", sa.Boolean, nullable=False),
        *_columns(sa.Text, "tags", "routes"),
        *_nullable(Id, "internet_gateway_id", "egress_only_gateway_id"),
        _foreign_key(
            "egress_only_gateway_id, account_id",
            "egress_only_gateways (id, account_id)",
            name="fk_route_tables_egress_only_gateway",
        ),
        _foreign_key(
            "internet_gateway_id, account_id",
            "internet_gateways (id, account_id)",
            name="fk_route_tables_internet_gateway",
        ),
        _foreign_key("vpc_id, account_id", "vpcs (id, account_id)", name="fk_route_tables_vpc"),
    )
    _unique_index("uq_route_tables_name", "route_tables (account_id, region, name)")
    _index("ix_route_tables_egress_only_gateway_id", "route_tables (egress_only_gateway_id)")
    _index("ix_route_tables_internet_gateway_id", "route_tables (internet_gateway_id)")
    _index("ix_route_tables_vpc_id", "route_tables (vpc_id)")
    _unique_index("uq_route_tables_main", "route_tables (vpc_id)", "is_main")
    op.create_table(
        "search_names",
        sa.Column("id", _Sequence, primary_key=True),
        *_columns(Id, "account_id", "repository_id"),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.UniqueConstraint("repository_id", "kind", "name"),
        _check("kind", "kind IN ('repository', 'tag')"),
        _check("state", "state IN ('new', 'indexed', 'gone')"),
    )
    _index("ix_search_names_unsettled", "search_names (account_id, id)", "state <> 'indexed'")
    op.create_table(
        "storage_pieces",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        *_nullable(Id, "object_id", "upload_id"),
        sa.Column("number", sa.Integer, nullable=False),
        *_columns(sa.BigInteger, "size", "stored_size"),
        sa.Column("md5", sa.String(32), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("checksum", sa.Text),
        sa.Column("encoding", sa.String(16), nullable=False),
        sa.Column("stored_checksum", sa.String(64)),
        sa.Column("body", sa.LargeBinary),
        sa.Column("kms_key_id", Id),
        sa.Column("wrapped", sa.LargeBinary),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("condemned_at", Moment),
        sa.Column("damage", sa.String(16)),
        sa.Column("damaged_at", Moment),
        sa.Column("verified_at", Moment, nullable=False, server_default=sa.text("0")),
        _foreign_key("account_id", "accounts (id)"),
        _foreign_key(
            "object_id, account_id",
            "storage_objects (id, account_id)",
            name="fk_storage_pieces_object",
        ),
        _foreign_key(
            "upload_id, account_id",
            "storage_uploads (id, account_id)",
            name="fk_storage_pieces_upload",
        ),
        _check("number", "number BETWEEN 1 AND 10000"),
        _check(
            "owner",
            "(object_id IS NOT NULL AND upload_id IS NULL"
            " AND condemned_at IS NULL) OR (object_id IS NULL"
            " AND upload_id IS NOT NULL AND condemned_at IS NULL)"
            " OR (object_id IS NULL AND upload_id IS NULL"
            " AND condemned_at IS NOT NULL)",
        ),
        _check("wrapped", "(kms_key_id IS NULL) = (wrapped IS NULL)"),
    )
    _index(
        "ix_storage_pieces_condemned", "storage_pieces (condemned_at)", "condemned_at IS NOT NULL"
    )
    _index("ix_storage_pieces_damaged", "storage_pieces (account_id, id)", "damage IS NOT NULL")
    _index(
        "ix_storage_pieces_kms_key_id",
        "storage_pieces (kms_key_id, encoding)",
        "kms_key_id IS NOT NULL",
    )
    _index(
        "ix_storage_pieces_verified_at",
        "storage_pieces (verified_at, id)",
        "damage IS NULL AND condemned_at IS NULL AND encoding <> 'shredded'",
    )
    _unique_index(
        "uq_storage_pieces_object", "storage_pieces (object_id, number)", "object_id IS NOT NULL"
    )
    _unique_index(
        "uq_storage_pieces_upload", "storage_pieces (upload_id, number)", "upload_id IS NOT NULL"
    )
    _resource_table(
        "subnets",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        *_nullable(sa.Text, "cidr_ipv4", "cidr_ipv6"),
        sa.Column("route_table_id", Id),
        sa.Column("tags", sa.Text, nullable=False),
        *_columns(sa.BigInteger, "next_ipv4", "next_ipv6"),
        _foreign_key(
            "route_table_id, account_id",
            "route_tables (id, account_id)",
            name="fk_subnets_route_table",
        ),
        _foreign_key("vpc_id, account_id", "vpcs (id, account_id)", name="fk_subnets_vpc"),
        _check("cidr_ipv4", "cidr_ipv4 IS NOT NULL OR cidr_ipv6 IS NOT NULL"),
        _check("route_table_id", "route_table_id IS NOT NULL"),
    )
    _unique_index("uq_subnets_name", "subnets (account_id, region, name)")
    _index("ix_subnets_route_table_id", "subnets (route_table_id)")
    _index("ix_subnets_vpc_id", "subnets (vpc_id)")
    _resource_table(
        "network_interfaces",
        sa.Column("name", ByteOrdered, nullable=False),
        *_columns(Id, "vpc_id", "subnet_id"),
        *_nullable(sa.Text, "address_ipv4", "address_ipv6"),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("is_balancer", sa.Boolean, nullable=False),
        sa.Column("security_groups", sa.Text, nullable=False),
        _foreign_key(
            "subnet_id, account_id", "subnets (id, account_id)", name="fk_network_interfaces_subnet"
        ),
        _foreign_key(
            "vpc_id, account_id", "vpcs (id, account_id)", name="fk_network_interfaces_vpc"
        ),
        _check("address_ipv4", "address_ipv4 IS NOT NULL OR address_ipv6 IS NOT NULL"),
    )
    _unique_index("uq_network_interfaces_name", "network_interfaces (account_id, region, name)")
    _index("ix_network_interfaces_subnet_id", "network_interfaces (subnet_id)")
    _unique_index("uq_network_interfaces_address_ipv4", "network_interfaces (vpc_id, address_ipv4)")
    _unique_index("uq_network_interfaces_address_ipv6", "network_interfaces (vpc_id, address_ipv6)")
    op.create_table(
        "subnet_free_addresses",
        sa.Column("subnet_id", Id, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("freed_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("subnet_id", "position"),
        _foreign_key("subnet_id", "subnets (id)"),
    )
    _index(
        "ix_subnet_free_addresses_freed_at", "subnet_free_addresses (subnet_id, freed_at, position)"
    )
    op.create_table(
        "network_interface_groups",
        *_columns(Id, "interface_id", "group_id"),
        sa.PrimaryKeyConstraint("interface_id", "group_id"),
        _foreign_key("group_id", "security_groups (id)"),
        _foreign_key("interface_id", "network_interfaces (id)"),
    )
    _index("ix_network_interface_groups_group_id", "network_interface_groups (group_id)")
