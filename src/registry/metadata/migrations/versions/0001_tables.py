"""Create the tables of the first release."""

from __future__ import annotations

from typing import Final

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


def _index(
    table: str,
    *columns: str,
    name: str | None = None,
    where: str | None = None,
    is_unique: bool = False,
) -> None:
    """Create an index, which is partial if there is a condition; by default it has a usual name."""
    condition = None if where is None else sa.text(where)
    op.create_index(
        name,
        table,
        columns,
        unique=is_unique,
        sqlite_where=condition,
        postgresql_where=condition,
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
    op.create_table(
        "account_days",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("pulls", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "day"),
    )
    _index("account_days", "day")
    op.create_table(
        "audit_events",
        sa.Column("id", Id, primary_key=True),
        sa.Column("owner_id", Id, nullable=False),
        sa.Column("occurred_at", Moment, nullable=False),
        sa.Column("action", ByteOrdered, nullable=False),
        sa.Column("resource", ByteOrdered, nullable=False),
        sa.Column("resources", sa.Text),
        sa.Column("principal", ByteOrdered, nullable=False),
        sa.Column("source_crn", ByteOrdered),
        sa.Column("source_name", ByteOrdered),
        sa.Column("session_name", sa.Text),
        sa.Column("plane", sa.String(16)),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("source_ip", sa.Text),
        sa.Column("user_agent", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("refusal_key", sa.Text),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("last_at", Moment, nullable=False),
        sa.CheckConstraint("outcome IN ('succeeded', 'refused')", name="outcome"),
        sa.CheckConstraint("(outcome = 'refused') = (refusal_key IS NOT NULL)", name="refusal_key"),
        sa.CheckConstraint("times = 1 OR outcome = 'refused'", name="times"),
    )
    _index("audit_events", "occurred_at")
    _index("audit_events", "owner_id", "occurred_at", "id", name="ix_audit_events_owner")
    _index(
        "audit_events", "owner_id", "resource", "occurred_at", "id", name="ix_audit_events_resource"
    )
    _index(
        "audit_events",
        "refusal_key",
        name="uq_audit_events_refusal",
        is_unique=True,
        where="refusal_key IS NOT NULL",
    )
    op.create_table(
        "certificate_authorities",
        sa.Column("id", Id, primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("certificate", sa.LargeBinary, nullable=False),
        sa.Column("private_key", sa.LargeBinary, nullable=False),
        sa.Column("revocation_list", sa.LargeBinary, nullable=False),
        sa.Column("list_number", sa.Integer, nullable=False),
        sa.Column("listed_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.UniqueConstraint("role", "generation"),
        sa.CheckConstraint("role IN ('root', 'issuing')", name="role"),
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
    op.create_table(
        "ended_uploads",
        sa.Column("id", Id, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fleet_settings",
        sa.Column("name", ByteOrdered, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "idempotency_records",
        sa.Column("principal", Id, nullable=False),
        sa.Column("operation", ByteOrdered, nullable=False),
        sa.Column("key", ByteOrdered, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("lease_token", Id, nullable=False),
        sa.Column("lease_until", Moment, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("outcome_sealed", sa.LargeBinary),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("principal", "operation", "key"),
        sa.CheckConstraint(
            "(state = 'completed') = (outcome_sealed IS NOT NULL)", name="completed_outcome"
        ),
        sa.CheckConstraint("(state = 'completed') = (status IS NOT NULL)", name="completed_status"),
        sa.CheckConstraint("state IN ('in_progress', 'completed')", name="state"),
    )
    _index("idempotency_records", "created_at")
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
        sa.Column("is_lost", sa.Boolean, nullable=False),
        sa.Column("is_noted", sa.Boolean, nullable=False),
        sa.Column("stopped_at", Moment),
    )
    op.create_table(
        "organizations",
        sa.Column("id", Id, primary_key=True),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("is_personal", sa.Boolean, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
    )
    op.create_table(
        "quota_defaults",
        sa.Column("name", ByteOrdered, primary_key=True),
        sa.Column("maximum", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.CheckConstraint("maximum >= 0", name="maximum"),
    )
    op.create_table(
        "rate_windows",
        sa.Column("endpoint", ByteOrdered, nullable=False),
        sa.Column("subject", ByteOrdered, nullable=False),
        sa.Column("window_ends_at", Moment, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("refused", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "subject"),
    )
    _index("rate_windows", "window_ends_at")
    op.create_table(
        "revoked_tokens",
        sa.Column("jti", Id, primary_key=True),
        sa.Column("expires_at", Moment, nullable=False),
    )
    _index("revoked_tokens", "expires_at")
    op.create_table(
        "schedules",
        sa.Column("name", ByteOrdered, primary_key=True),
        sa.Column("due_at", Moment, nullable=False),
        sa.Column("lease_token", Id),
        sa.Column("lease_holder", Id),
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
        sa.Column("audience", sa.String(16), nullable=False),
        sa.Column("algorithm", sa.String(16), nullable=False),
        sa.Column("material_sealed", sa.LargeBinary, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("not_after", Moment, nullable=False),
    )
    _index("signing_keys", "audience", "not_after")
    op.create_table(
        "spent_states",
        sa.Column("state_sha256", sa.String(64), primary_key=True),
        sa.Column("expires_at", Moment, nullable=False),
    )
    _index("spent_states", "expires_at")
    op.create_table(
        "store_generations",
        sa.Column("id", Id, primary_key=True),
        sa.Column("noted_at", Moment, nullable=False),
        sa.Column("accepted_at", Moment),
    )
    _index("store_generations", "accepted_at")
    _index("store_generations", "noted_at")
    op.create_table(
        "usage_hours",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "hour", "sku", "region"),
        sa.CheckConstraint("quantity > 0", name="quantity"),
    )
    _index("usage_hours", "hour")
    op.create_table(
        "usage_reports",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("key", ByteOrdered, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "sku", "key"),
    )
    _index("usage_reports", "hour")
    op.create_table(
        "usage_samples",
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("sku", "hour"),
    )
    _index("usage_samples", "hour")
    op.create_table(
        "accounts",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id),
        sa.Column("handle", ByteOrdered, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("auto_create_repositories", sa.Boolean, nullable=False),
        sa.Column("iam_revision", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        sa.UniqueConstraint("handle"),
        sa.CheckConstraint("status IN ('active', 'suspended')", name="status"),
    )
    _index("accounts", "organization_id")
    op.create_table(
        "certificate_revocations",
        sa.Column("serial", ByteOrdered, nullable=False),
        sa.Column("authority_id", Id, nullable=False),
        sa.Column("revoked_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("serial", "authority_id"),
        sa.ForeignKeyConstraint(["authority_id"], ["certificate_authorities.id"]),
    )
    _index(
        "certificate_revocations",
        "authority_id",
        "expires_at",
        name="ix_certificate_revocations_authority_id",
    )
    op.create_table(
        "identity_providers",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("issuer", sa.Text, nullable=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("client_secret_sealed", sa.LargeBinary),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("groups_claim", sa.Text, nullable=False),
        sa.Column("email_verified_claim", sa.Text, nullable=False),
        sa.Column("email_domains", sa.Text, nullable=False),
        sa.Column("creates_people", sa.Boolean, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("session_hours", sa.BigInteger, nullable=False, server_default=sa.text("168")),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("organization_id", "name"),
        sa.CheckConstraint("status IN ('active', 'inactive')", name="status"),
    )
    _index("identity_providers", "name")
    op.create_table(
        "invitations",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("email", ByteOrdered, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("code_sha256", sa.String(64), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("organization_id", "email"),
        sa.CheckConstraint("role IN ('owner', 'member', 'billing')", name="role"),
    )
    _index("invitations", "expires_at")
    op.create_table(
        "invoices",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("period_start", Moment, nullable=False),
        sa.Column("period_end", Moment, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("total", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        sa.Column("charge_at", Moment),
        sa.Column("paid_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        sa.UniqueConstraint("organization_id", "period_start", "currency"),
        sa.CheckConstraint("(status = 'paid') = (paid_at IS NOT NULL)", name="paid_at"),
        sa.CheckConstraint("status IN ('open', 'paid', 'failed', 'void')", name="status"),
    )
    _index("invoices", "organization_id", "id")
    op.create_table(
        "payment_customers",
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("processor", sa.String(16), nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "processor"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "payment_methods",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("brand", sa.Text),
        sa.Column("last4", sa.String(4)),
        sa.Column("exp_month", sa.Integer),
        sa.Column("exp_year", sa.Integer),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("processor", sa.String(16), nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], ondelete="CASCADE"),
        sa.CheckConstraint("type IN ('card', 'sepa_debit')", name="type"),
    )
    _index("payment_methods", "organization_id", "id")
    _index(
        "payment_methods",
        "organization_id",
        name="uq_payment_methods_default",
        is_unique=True,
        where="is_default",
    )
    op.create_table(
        "users",
        sa.Column("id", Id, primary_key=True),
        sa.Column("email", ByteOrdered, nullable=False),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("must_change_password", sa.Boolean, nullable=False),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("home_organization_id", Id),
        sa.ForeignKeyConstraint(
            ["home_organization_id"], ["organizations.id"], ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        sa.UniqueConstraint("home_organization_id", "email"),
        sa.UniqueConstraint("id", "email"),
        sa.CheckConstraint("status IN ('active', 'suspended')", name="status"),
    )
    _index("users", "email")
    op.create_table(
        "auth_codes",
        sa.Column("code_sha256", sa.String(64), primary_key=True),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("client_id", sa.String(64), nullable=False),
        sa.Column("redirect_uri", sa.Text, nullable=False),
        sa.Column("code_challenge", sa.String(128), nullable=False),
        sa.Column("sid", Id),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.Column("spent_at", Moment),
        sa.Column("identity_provider_id", Id),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
    )
    _index("auth_codes", "expires_at")
    op.create_table(
        "billed_usage",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("month", Moment, nullable=False),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "region", "sku", "month"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    op.create_table(
        "blob_objects",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stored_size", sa.BigInteger, nullable=False),
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
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id", "digest", "size"),
        sa.CheckConstraint("encoding IN ('plain', 'sealed')", name="encoding"),
        sa.CheckConstraint("size >= 0", name="size"),
        sa.CheckConstraint("state IN ('live', 'condemned', 'shredded')", name="state"),
    )
    _index(
        "blob_objects",
        "account_id",
        "condemned_at",
        name="ix_blob_objects_condemned",
        where="state = 'condemned'",
    )
    _index(
        "blob_objects",
        "account_id",
        "digest",
        name="ix_blob_objects_damaged",
        where="damage IS NOT NULL",
    )
    _index(
        "blob_objects", "account_id", "id", name="ix_blob_objects_plain", where="encoding = 'plain'"
    )
    _index(
        "blob_objects", "account_id", "id", name="ix_blob_objects_replaced", where="NOT is_current"
    )
    _index(
        "blob_objects",
        "verified_at",
        "id",
        name="ix_blob_objects_verified_at",
        where="damage IS NULL AND state <> 'shredded'",
    )
    _index(
        "blob_objects",
        "account_id",
        "digest",
        name="uq_blob_objects_current_digest",
        is_unique=True,
        where="is_current",
    )
    _index("blob_objects", "stored_id", name="uq_blob_objects_stored_id", is_unique=True)
    op.create_table(
        "certificate_settings",
        sa.Column("account_id", Id, primary_key=True),
        sa.Column("private_key_export", sa.Boolean, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    op.create_table(
        "certificates",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("domains", sa.Text, nullable=False),
        sa.Column("source", sa.String(8), nullable=False),
        sa.Column("issuer", sa.String(16), nullable=False),
        sa.Column("key_algorithm", sa.String(10), nullable=False),
        sa.Column("challenges", sa.Text, nullable=False),
        sa.Column("certificate_pem", sa.Text),
        sa.Column("chain_pem", sa.Text),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("private_key", sa.LargeBinary),
        sa.Column("csr", sa.LargeBinary),
        sa.Column("private_key_exported_at", Moment),
        sa.Column("kms_key_id", Id),
        sa.Column("issued_at", Moment),
        sa.Column("expires_at", Moment),
        sa.Column("renew_at", Moment),
        sa.Column("warned_days", sa.Integer),
        sa.Column("revocation_asked_at", Moment),
        sa.Column("is_recheck_asked", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("account_id", "region", "name"),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            ("(certificate_pem IS NULL) = (status IN ('pending_validation', 'issuing', 'failed'))"),
            name="certificate_pem",
        ),
        sa.CheckConstraint("csr IS NULL OR source = 'acme'", name="csr"),
        sa.CheckConstraint("(certificate_pem IS NULL) = (expires_at IS NULL)", name="expires_at"),
        sa.CheckConstraint("(source = 'uploaded') = (issuer = '')", name="issuer"),
        sa.CheckConstraint(
            ("(private_key IS NOT NULL) = (certificate_pem IS NOT NULL AND csr IS NULL)"),
            name="private_key",
        ),
        sa.CheckConstraint(
            ("private_key_exported_at IS NULL OR (private_key IS NOT NULL AND source = 'acme')"),
            name="private_key_exported_at",
        ),
        sa.CheckConstraint(
            ("renew_at IS NULL OR (source = 'acme' AND status IN ('active', 'expired'))"),
            name="renew_at",
        ),
        sa.CheckConstraint("source IN ('acme', 'uploaded')", name="source"),
        sa.CheckConstraint(
            (
                "status IN ('pending_validation', 'issuing', 'active', 'expired',"
                " 'revoked', 'failed')"
            ),
            name="status",
        ),
    )
    _index("certificates", "account_id", "id", name="ix_certificates_account_id_id")
    _index(
        "certificates", "expires_at", name="ix_certificates_expires_at", where="status = 'active'"
    )
    _index(
        "certificates", "renew_at", name="ix_certificates_renew_at", where="renew_at IS NOT NULL"
    )
    op.create_table(
        "database_clusters",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("bucket", Id),
        sa.Column("schedule", sa.Text),
        sa.Column("retention", sa.Text),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("checked_at", Moment),
        sa.Column("bucket_name", sa.Text, nullable=False),
        sa.Column("endpoint", sa.Text),
        sa.Column("secret", sa.LargeBinary),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("cpu_millis", sa.Integer, nullable=False),
        sa.Column("disk_mb", sa.Integer, nullable=False),
        sa.Column("port", sa.Integer),
        sa.Column("host", sa.Text),
        sa.Column("ca", sa.Text),
        sa.Column("source", sa.Text),
        sa.Column("has_data", sa.Boolean, nullable=False),
        sa.Column("is_wanted", sa.Boolean, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.Column("check_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("applied <= generation", name="applied"),
        sa.CheckConstraint("(type = 'registered') = (endpoint IS NOT NULL)", name="endpoint"),
        sa.CheckConstraint("(type = 'managed') = (port IS NOT NULL)", name="port"),
        sa.CheckConstraint(
            (
                "status IN ('provisioning', 'active', 'updating', 'stopped',"
                " 'unavailable', 'deleting')"
            ),
            name="status",
        ),
        sa.CheckConstraint("type IN ('managed', 'registered')", name="type"),
    )
    _index("database_clusters", "account_id", "id", name="ix_database_clusters_account_id_id")
    _index(
        "database_clusters",
        "check_at",
        "id",
        name="ix_database_clusters_check_at",
        where="check_at IS NOT NULL",
    )
    _index("database_clusters", "node", "id", name="ix_database_clusters_node_id")
    _index(
        "database_clusters",
        "account_id",
        "region",
        "name",
        name="uq_database_clusters_name",
        is_unique=True,
    )
    _index(
        "database_clusters",
        "node",
        "port",
        name="uq_database_clusters_node_port",
        is_unique=True,
        where="port IS NOT NULL",
    )
    op.create_table(
        "digest_aliases",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("alias", DigestText, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "alias"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    _index("digest_aliases", "account_id", "digest")
    op.create_table(
        "email_messages",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("to", sa.Text, nullable=False),
        sa.Column("cc", sa.Text, nullable=False),
        sa.Column("bcc", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("identity", ByteOrdered, nullable=False),
        sa.Column("identity_id", Id, nullable=False),
        sa.Column("template_id", Id),
        sa.Column("template_name", sa.Text),
        sa.Column("ended_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            "(status IN ('queued', 'deferred')) = (ended_at IS NULL)", name="ended_at"
        ),
        sa.CheckConstraint(
            ("status IN ('queued', 'deferred', 'complained', 'bounced', 'sent', 'suppressed')"),
            name="status",
        ),
    )
    _index("email_messages", "account_id", "id", name="ix_email_messages_account_id_id")
    _index(
        "email_messages",
        "ended_at",
        name="ix_email_messages_ended_at",
        where="ended_at IS NOT NULL",
    )
    _index("email_messages", "account_id", "identity_id", "id", name="ix_email_messages_identity")
    _index(
        "email_messages",
        "account_id",
        name="ix_email_messages_waiting",
        where="status IN ('queued', 'deferred')",
    )
    op.create_table(
        "email_rates",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("identity_id", Id, nullable=False),
        sa.Column("second", sa.BigInteger, nullable=False),
        sa.Column("accepted", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "identity_id"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    _index("email_rates", "second", name="ix_email_rates_second")
    op.create_table(
        "email_templates",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("html", sa.Text),
        sa.Column("text", sa.Text),
        sa.Column("variables", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
    )
    _index("email_templates", "account_id", "id", name="ix_email_templates_account_id_id")
    _index(
        "email_templates",
        "account_id",
        "region",
        "name",
        name="uq_email_templates_name",
        is_unique=True,
    )
    op.create_table(
        "event_rules",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("topic", ByteOrdered, nullable=False),
        sa.Column("event_types", sa.Text, nullable=False),
        sa.Column("repository_prefix", ByteOrdered, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    _index("event_rules", "account_id", "id")
    op.create_table(
        "instance_pools",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("cpu_millis", sa.Integer, nullable=False),
        sa.Column("ports", sa.Text, nullable=False),
        sa.Column("role", Id),
        sa.Column("subnet", Id),
        sa.Column("security_groups", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("image_digest", sa.Text),
        sa.Column("names", sa.Text, nullable=False),
        sa.Column("vpc_id", Id),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("fetched", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("deleted_at", Moment),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("fetched <= generation", name="fetched"),
        sa.CheckConstraint("size >= 0 AND size <= 20", name="size"),
        sa.CheckConstraint(
            "status IN ('provisioning', 'active', 'scaling', 'degraded', 'deleting')", name="status"
        ),
    )
    _index("instance_pools", "account_id", "id", name="ix_instance_pools_account_id_id")
    _index(
        "instance_pools",
        "deleted_at",
        name="ix_instance_pools_deleted_at",
        where="deleted_at IS NOT NULL",
    )
    _index("instance_pools", "node", "id", name="ix_instance_pools_node_id")
    _index(
        "instance_pools",
        "account_id",
        "region",
        "name",
        name="uq_instance_pools_name",
        is_unique=True,
        where="deleted_at IS NULL",
    )
    op.create_table(
        "invoice_charges",
        sa.Column("id", Id, primary_key=True),
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("invoice_id", Id, nullable=False),
        sa.Column("payment_method_id", Id, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("processor", sa.String(16), nullable=False),
        sa.Column("method_reference", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reference", sa.Text),
        sa.Column("code", sa.Text),
        sa.Column("message", sa.Text),
        sa.Column("request_key", sa.String(64)),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.ForeignKeyConstraint(["invoice_id"], ["invoices.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("invoice_id", "request_key"),
        sa.CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name="ended_at"),
        sa.CheckConstraint("state IN ('pending', 'succeeded', 'declined')", name="state"),
    )
    _index(
        "invoice_charges",
        "payment_method_id",
        name="ix_invoice_charges_pending",
        where="state = 'pending'",
    )
    _index(
        "invoice_charges",
        "invoice_id",
        name="uq_invoice_charges_live",
        is_unique=True,
        where="state IN ('pending', 'succeeded')",
    )
    op.create_table(
        "invoice_lines",
        sa.Column("invoice_id", Id, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("sku", ByteOrdered, nullable=False),
        sa.Column("month", Moment, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("quantity", sa.Text, nullable=False),
        sa.Column("unit_amount", sa.Text, nullable=False),
        sa.Column("amount", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("invoice_id", "position"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["invoice_id"], ["invoices.id"], ondelete="CASCADE"),
    )
    _index("invoice_lines", "account_id")
    op.create_table(
        "ip_pools",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
    )
    _index("ip_pools", "account_id", "id", name="ix_ip_pools_account_id_id")
    _index("ip_pools", "account_id", "region", "name", name="uq_ip_pools_name", is_unique=True)
    op.create_table(
        "jobs",
        sa.Column("id", Id, primary_key=True),
        sa.Column("kind", ByteOrdered, nullable=False),
        sa.Column("dedup_key", ByteOrdered),
        sa.Column("account_id", Id),
        sa.Column("resource", ByteOrdered),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("cursor", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", Moment),
        sa.Column("lease_token", Id),
        sa.Column("lease_holder", Id),
        sa.Column("fault", sa.Text),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("finished_at", Moment),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.CheckConstraint(
            "(state IN ('queued', 'running')) = (due_at IS NOT NULL)", name="due_at"
        ),
        sa.CheckConstraint("state <> 'failed' OR fault IS NOT NULL", name="fault"),
        sa.CheckConstraint("(due_at IS NULL) = (finished_at IS NOT NULL)", name="finished_at"),
        sa.CheckConstraint("lease_token IS NULL OR state = 'running'", name="lease_token"),
        sa.CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed')", name="state"),
    )
    _index("jobs", "due_at", name="ix_jobs_due", where="due_at IS NOT NULL")
    _index("jobs", "finished_at", name="ix_jobs_finished", where="finished_at IS NOT NULL")
    _index("jobs", "lease_holder", name="ix_jobs_held", where="lease_holder IS NOT NULL")
    _index(
        "jobs",
        "kind",
        "dedup_key",
        name="uq_jobs_unfinished",
        is_unique=True,
        where="state IN ('queued', 'running')",
    )
    op.create_table(
        "kms_keys",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered),
        sa.Column("state", sa.String(24), nullable=False),
        sa.Column("key_spec", sa.String(16), nullable=False),
        sa.Column("key_usage", sa.String(24), nullable=False),
        sa.Column("current_version", sa.Integer, nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("deletion_at", Moment),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.UniqueConstraint("id", "name"),
        sa.CheckConstraint("current_version > 0", name="current_version"),
        sa.CheckConstraint("(state = 'deleted') = (name IS NULL)", name="deleted_name"),
        sa.CheckConstraint(
            "(state IN ('pending_deletion', 'deleted')) = (deletion_at IS NOT NULL)",
            name="deletion_at",
        ),
        sa.CheckConstraint(
            ("key_spec IN ('aes-256', 'hmac-256', 'rsa-2048', 'rsa-4096', 'ecdsa-p256')"),
            name="key_spec",
        ),
        sa.CheckConstraint(
            "key_usage IN ('encrypt_decrypt', 'generate_verify_mac', 'sign_verify')",
            name="key_usage",
        ),
        sa.CheckConstraint("origin IN ('customer', 'platform')", name="origin"),
        sa.CheckConstraint("origin = 'customer' OR state = 'enabled'", name="platform_state"),
        sa.CheckConstraint(
            "state IN ('enabled', 'disabled', 'pending_deletion', 'deleted')", name="state"
        ),
    )
    _index("kms_keys", "account_id", "id", name="ix_kms_keys_account_id_id")
    _index("kms_keys", "id", name="ix_kms_keys_deleted", where="state = 'deleted'")
    _index(
        "kms_keys",
        "deletion_at",
        name="ix_kms_keys_deletion_at",
        where="state = 'pending_deletion'",
    )
    _index(
        "kms_keys",
        "account_id",
        "region",
        "name",
        name="uq_kms_keys_name",
        is_unique=True,
        where="name IS NOT NULL",
    )
    _index(
        "kms_keys",
        "account_id",
        name="uq_kms_keys_platform",
        is_unique=True,
        where="origin = 'platform'",
    )
    op.create_table(
        "load_balancers",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("vip", sa.Text, nullable=False),
        sa.Column("replica_count", sa.Integer, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("vpc", sa.Text, nullable=False),
        sa.Column("subnet", sa.Text, nullable=False),
        sa.Column("interface_id", Id),
        sa.Column("security_groups", sa.Text, nullable=False),
        sa.Column("listeners", sa.Text, nullable=False),
        sa.Column("backends", sa.Text, nullable=False),
        sa.Column("role_id", Id),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.Column("fingerprints", sa.Text, nullable=False),
        sa.Column("replicas", sa.Text, nullable=False),
        sa.Column("targets", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("replica_count BETWEEN 1 AND 4", name="replica_count"),
        sa.CheckConstraint(
            ("status IN ('provisioning', 'active', 'updating', 'degraded', 'failed', 'deleting')"),
            name="status",
        ),
    )
    _index("load_balancers", "account_id", "id", name="ix_load_balancers_account_id_id")
    _index("load_balancers", "node", "id", name="ix_load_balancers_node")
    _index(
        "load_balancers",
        "account_id",
        "region",
        "name",
        name="uq_load_balancers_name",
        is_unique=True,
    )
    op.create_table(
        "manifest_bodies",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "digest"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    op.create_table(
        "memberships",
        sa.Column("organization_id", Id, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("email", ByteOrdered, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "user_id"),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        sa.ForeignKeyConstraint(["user_id", "email"], ["users.id", "users.email"]),
        sa.UniqueConstraint("organization_id", "email"),
        sa.CheckConstraint("role IN ('owner', 'member', 'billing')", name="role"),
    )
    _index("memberships", "user_id")
    op.create_table(
        "missing_topics",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("crn", ByteOrdered, nullable=False),
        sa.Column("first_at", Moment, nullable=False),
        sa.Column("last_at", Moment, nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "crn"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    _index("missing_topics", "last_at", name="ix_missing_topics_last_at")
    op.create_table(
        "outbox",
        sa.Column("sequence", _Sequence, primary_key=True),
        sa.Column("id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("type", ByteOrdered, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("delivered_at", Moment),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id"),
    )
    _index("outbox", "delivered_at", name="ix_outbox_delivered", where="delivered_at IS NOT NULL")
    _index(
        "outbox", "account_id", "sequence", name="ix_outbox_pending", where="delivered_at IS NULL"
    )
    _index("outbox", "created_at", name="ix_outbox_undelivered", where="delivered_at IS NULL")
    op.create_table(
        "policies",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("account_ids", sa.Text, nullable=False, server_default=sa.text("'{}'")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
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
        sa.ForeignKeyConstraint(["provider_id"], ["identity_providers.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("provider_id", "user_id"),
    )
    _index("provider_subjects", "user_id")
    op.create_table(
        "pull_through_cache_rules",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("prefix", ByteOrdered, nullable=False),
        sa.Column("upstream_url", sa.Text, nullable=False),
        sa.Column("upstream_prefix", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("username", sa.Text),
        sa.Column("secret_sealed", sa.LargeBinary),
        sa.Column("tag_ttl_seconds", sa.BigInteger, nullable=False),
        sa.Column("negative_ttl_seconds", sa.BigInteger, nullable=False),
        sa.Column("keep_unpulled_days", sa.BigInteger),
        sa.Column("max_bytes", sa.BigInteger),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("last_success_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("account_id", "prefix"),
        sa.CheckConstraint("(username IS NULL) = (secret_sealed IS NULL)", name="credential"),
    )
    op.create_table(
        "quarantined_objects",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stored_size", sa.BigInteger, nullable=False),
        sa.Column("encoding", sa.String(16), nullable=False),
        sa.Column("swept_at", Moment, nullable=False),
        sa.Column("removal_began_at", Moment),
        sa.Column("stored_id", Id, nullable=False),
        sa.Column("is_inline", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("checksum", sa.String(64)),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    _index("quarantined_objects", "account_id", "digest")
    _index("quarantined_objects", "account_id", "swept_at")
    _index(
        "quarantined_objects", "stored_id", name="uq_quarantined_objects_stored_id", is_unique=True
    )
    op.create_table(
        "queues",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("retention_seconds", sa.Integer, nullable=False),
        sa.Column("lease_seconds", sa.Integer, nullable=False),
        sa.Column("delay_seconds", sa.Integer, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("dead_letter_queue_id", Id),
        sa.Column("max_leases", sa.Integer),
        sa.Column("purged_through", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("deleted_at", Moment),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["dead_letter_queue_id", "account_id"],
            ["queues.id", "queues.account_id"],
            name="fk_queues_dead_letter_queue",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("dead_letter_queue_id <> id", name="dead_letter_queue_id"),
        sa.CheckConstraint("delay_seconds >= 0", name="delay_seconds"),
        sa.CheckConstraint("lease_seconds > 0", name="lease_seconds"),
        sa.CheckConstraint("max_leases > 0", name="max_leases"),
        sa.CheckConstraint(
            "(dead_letter_queue_id IS NULL) = (max_leases IS NULL)", name="redrive_policy"
        ),
        sa.CheckConstraint("retention_seconds > 0", name="retention_seconds"),
    )
    _index("queues", "account_id", "id", name="ix_queues_account_id_id")
    _index(
        "queues",
        "dead_letter_queue_id",
        name="ix_queues_dead_letter_queue_id",
        where="dead_letter_queue_id IS NOT NULL",
    )
    _index("queues", "id", name="ix_queues_deleted", where="deleted_at IS NOT NULL")
    _index(
        "queues",
        "account_id",
        "region",
        "name",
        name="uq_queues_name",
        is_unique=True,
        where="deleted_at IS NULL",
    )
    op.create_table(
        "quota_levels",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("percent", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.CheckConstraint("percent IN (0, 80, 100)", name="percent"),
    )
    op.create_table(
        "quotas",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("maximum", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.CheckConstraint("maximum >= 0", name="maximum"),
    )
    op.create_table(
        "registry_settings",
        sa.Column("account_id", Id, primary_key=True),
        sa.Column("undelete_days", sa.Integer, nullable=False),
        sa.Column("uncounted_pullers", sa.Text, nullable=False),
        sa.Column("access_key_login", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.CheckConstraint("undelete_days BETWEEN 0 AND 90", name="undelete_days"),
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
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("deleted_at", Moment),
        sa.Column("deleted_by", sa.Text),
        sa.Column("deleted_by_source", sa.Text),
        sa.Column("restorable_until", Moment),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("is_sparse", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("deleted_image_count >= 0", name="deleted_image_count"),
        sa.CheckConstraint("deleted_tag_count >= 0", name="deleted_tag_count"),
        sa.CheckConstraint("image_count >= 0", name="image_count"),
        sa.CheckConstraint("size_bytes >= 0", name="size_bytes"),
        sa.CheckConstraint("source IN ('user', 'push', 'pull_through_cache')", name="source"),
        sa.CheckConstraint("tag_count >= 0", name="tag_count"),
        sa.CheckConstraint("tag_mutability IN ('mutable', 'immutable')", name="tag_mutability"),
        sa.CheckConstraint("tagged_image_count >= 0", name="tagged_image_count"),
    )
    _index(
        "repositories",
        "account_id",
        "id",
        name="ix_repositories_deleted",
        where="deleted_at IS NOT NULL",
    )
    _index(
        "repositories",
        "account_id",
        "restorable_until",
        name="ix_repositories_restorable",
        where="restorable_until IS NOT NULL",
    )
    _index(
        "repositories",
        "restorable_until",
        name="ix_repositories_restorable_until",
        where="restorable_until IS NOT NULL",
    )
    _index(
        "repositories",
        "account_id",
        "name",
        name="uq_repositories_live_name",
        is_unique=True,
        where="deleted_at IS NULL",
    )
    op.create_table(
        "repository_folders",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("folder", ByteOrdered, nullable=False),
        sa.Column("repository_count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "folder"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.CheckConstraint("repository_count >= 0", name="repository_count"),
    )
    op.create_table(
        "roles",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("trust_policy", sa.Text, nullable=False),
        sa.Column("max_session_seconds", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("trust_ids", sa.Text, nullable=False, server_default=sa.text("'{}'")),
        sa.Column("last_used_at", Moment),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("account_id", "name"),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            "max_session_seconds BETWEEN 3600 AND 43200", name="max_session_seconds"
        ),
    )
    op.create_table(
        "runs",
        sa.Column("id", Id, primary_key=True),
        sa.Column("kind", ByteOrdered, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("scope_id", Id, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger),
        sa.Column("counts", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("fault", sa.Text),
        sa.Column("started_by", sa.Text, nullable=False),
        sa.Column("started_by_source", sa.Text),
        sa.Column("started_at", Moment, nullable=False),
        sa.Column("finished_at", Moment),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.CheckConstraint("(state = 'running') = (finished_at IS NULL)", name="finished_at"),
        sa.CheckConstraint("state IN ('running', 'succeeded', 'failed')", name="state"),
    )
    _index("runs", "scope_id", "kind", "id")
    _index(
        "runs",
        "scope_id",
        "kind",
        name="uq_runs_running",
        is_unique=True,
        where="state = 'running'",
    )
    op.create_table(
        "service_accounts",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("account_id", "name"),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("status IN ('active', 'suspended')", name="status"),
    )
    op.create_table(
        "storage_account_bytes",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "shard"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    op.create_table(
        "stored_bytes",
        sa.Column("account_id", Id, primary_key=True),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.CheckConstraint("bytes >= 0", name="bytes"),
    )
    op.create_table(
        "suppressions",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("expires_at", Moment),
        sa.Column("reason", ByteOrdered, nullable=False),
        sa.Column("source_message_id", sa.Text),
        sa.Column("folded", ByteOrdered, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            "reason IN ('auto_bounce', 'auto_complaint', 'unsubscribe', 'manual')", name="reason"
        ),
    )
    _index("suppressions", "account_id", "id", name="ix_suppressions_account_id_id")
    _index(
        "suppressions",
        "account_id",
        "region",
        "folded",
        name="uq_suppressions_folded",
        is_unique=True,
    )
    op.create_table(
        "topics",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("delivery_policy", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("account_id", "region", "name"),
        sa.UniqueConstraint("id", "account_id"),
    )
    _index("topics", "account_id", "id", name="ix_topics_account_id_id")
    op.create_table(
        "vpcs",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("cidr_ipv4", sa.Text, nullable=False),
        sa.Column("cidr_ipv6", ByteOrdered),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("checked", sa.BigInteger, nullable=False),
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            "status IN ('provisioning', 'active', 'degraded', 'deleting')", name="status"
        ),
    )
    _index("vpcs", "account_id", "id", name="ix_vpcs_account_id_id")
    _index("vpcs", "node", "id", name="ix_vpcs_node_id")
    _index("vpcs", "cidr_ipv6", name="uq_vpcs_cidr_ipv6", is_unique=True, where="cidr_ipv6 < 'f'")
    _index("vpcs", "account_id", "region", "name", name="uq_vpcs_name", is_unique=True)
    op.create_table(
        "waiting_events",
        sa.Column("event_id", Id, nullable=False),
        sa.Column("crn", ByteOrdered, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("type", ByteOrdered, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "crn"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
    )
    _index("waiting_events", "created_at", name="ix_waiting_events_created_at")
    _index("waiting_events", "account_id", "crn", "event_id", name="ix_waiting_events_topic")
    op.create_table(
        "access_keys",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("service_account_id", Id, nullable=False),
        sa.Column("access_key_id", sa.String(20), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("secret_sealed", sa.LargeBinary, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("last_used_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("description", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("expires_at", Moment),
        sa.ForeignKeyConstraint(
            ["service_account_id", "account_id"],
            ["service_accounts.id", "service_accounts.account_id"],
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("access_key_id"),
        sa.CheckConstraint("status IN ('active', 'inactive')", name="status"),
    )
    _index("access_keys", "service_account_id")
    op.create_table(
        "backup_schedules",
        sa.Column("cluster_id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id", "account_id"],
            ["database_clusters.id", "database_clusters.account_id"],
            name="fk_backup_schedules_cluster",
            ondelete="CASCADE",
        ),
    )
    _index("backup_schedules", "due_at", name="ix_backup_schedules_due_at")
    op.create_table(
        "blob_object_keys",
        sa.Column("object_id", Id, nullable=False),
        sa.Column("kms_key_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("wrapped_data_key", sa.LargeBinary),
        sa.PrimaryKeyConstraint("object_id", "kms_key_id"),
        sa.ForeignKeyConstraint(
            ["kms_key_id", "account_id"], ["kms_keys.id", "kms_keys.account_id"]
        ),
        sa.ForeignKeyConstraint(["object_id"], ["blob_objects.id"], ondelete="CASCADE"),
    )
    _index(
        "blob_object_keys",
        "kms_key_id",
        "object_id",
        name="ix_blob_object_keys_erasable",
        where="wrapped_data_key IS NOT NULL",
    )
    op.create_table(
        "cached_referrers",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("subject", DigestText, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("checked_at", Moment, nullable=False),
        sa.Column("fresh_until", Moment, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "subject"),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
    )
    _index("cached_referrers", "fresh_until")
    op.create_table(
        "certificate_issues",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("certificate_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("issuer", sa.String(16), nullable=False),
        sa.Column("certificate", sa.LargeBinary, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["certificate_id"], ["certificates.id"], ondelete="CASCADE"),
    )
    _index("certificate_issues", "certificate_id", name="ix_certificate_issues_certificate_id")
    op.create_table(
        "certificate_texts",
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("value", ByteOrdered, nullable=False),
        sa.Column("certificate_id", Id, nullable=False),
        sa.PrimaryKeyConstraint("name", "value"),
        sa.ForeignKeyConstraint(["certificate_id"], ["certificates.id"], ondelete="CASCADE"),
    )
    _index("certificate_texts", "certificate_id", name="ix_certificate_texts_certificate_id")
    op.create_table(
        "certificate_users",
        sa.Column("certificate_id", Id, nullable=False),
        sa.Column("used_by", ByteOrdered, nullable=False),
        sa.PrimaryKeyConstraint("certificate_id", "used_by"),
        sa.ForeignKeyConstraint(["certificate_id"], ["certificates.id"]),
    )
    op.create_table(
        "database_backups",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("cluster_id", Id, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("trigger", sa.Text, nullable=False),
        sa.Column("progress", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("stored_bytes", sa.BigInteger),
        sa.Column("started_at", Moment),
        sa.Column("completed_at", Moment),
        sa.Column("verification", sa.Text, nullable=False),
        sa.Column("verified_at", Moment),
        sa.Column("verified_by", sa.Text),
        sa.Column("base_id", Id),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["base_id", "account_id"],
            ["database_backups.id", "database_backups.account_id"],
            name="fk_database_backups_base",
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id", "account_id"],
            ["database_clusters.id", "database_clusters.account_id"],
            name="fk_database_backups_cluster",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("kind = 'incremental' OR base_id IS NULL", name="base_id"),
        sa.CheckConstraint("kind IN ('base', 'incremental')", name="kind"),
        sa.CheckConstraint("progress BETWEEN 0 AND 100", name="progress"),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'succeeded', 'failed', 'deleting')", name="status"
        ),
        sa.CheckConstraint("trigger IN ('manual', 'schedule')", name="trigger"),
        sa.CheckConstraint(
            "verification IN ('never', 'pending', 'running', 'succeeded', 'failed')",
            name="verification",
        ),
    )
    _index("database_backups", "account_id", "id", name="ix_database_backups_account_id_id")
    _index("database_backups", "base_id", name="ix_database_backups_base_id")
    _index("database_backups", "cluster_id", "id", name="ix_database_backups_cluster_id_id")
    _index(
        "database_backups",
        "node",
        name="ix_database_backups_verifying",
        where="verification = 'running'",
    )
    op.create_table(
        "dedicated_ips",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("address", ByteOrdered, nullable=False),
        sa.Column("warmup_status", sa.Text, nullable=False),
        sa.Column("warmup_percentage", sa.Integer, nullable=False),
        sa.Column("warmup_started_at", Moment),
        sa.Column("ip_pool_id", Id),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("sent", sa.BigInteger, nullable=False),
        sa.Column("outcomes", sa.LargeBinary, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["ip_pool_id", "account_id"],
            ["ip_pools.id", "ip_pools.account_id"],
            name="fk_dedicated_ips_ip_pool",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("sent >= 0", name="sent"),
        sa.CheckConstraint(
            "warmup_status IN ('new', 'warming', 'warmed', 'paused')", name="warmup_status"
        ),
    )
    _index("dedicated_ips", "account_id", "id", name="ix_dedicated_ips_account_id_id")
    _index("dedicated_ips", "ip_pool_id", name="ix_dedicated_ips_ip_pool_id")
    _index("dedicated_ips", "address", name="uq_dedicated_ips_address", is_unique=True)
    op.create_table(
        "deleted_manifests",
        sa.Column("id", Id, primary_key=True),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("artifact_type", sa.Text),
        sa.Column("config_digest", DigestText),
        sa.Column("subject_digest", DigestText),
        sa.Column("is_index", sa.Boolean, nullable=False),
        sa.Column("manifest_size_bytes", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("annotations", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("pushed_at", Moment, nullable=False),
        sa.Column("last_pulled_at", Moment),
        sa.Column("deleted_at", Moment, nullable=False),
        sa.Column("deleted_by", sa.Text, nullable=False),
        sa.Column("deleted_by_source", sa.Text),
        sa.Column("restorable_until", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id", "digest"], ["manifest_bodies.account_id", "manifest_bodies.digest"]
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"], ["repositories.id", "repositories.account_id"]
        ),
    )
    _index(
        "deleted_manifests",
        "repository_id",
        "deleted_at",
        "id",
        name="ix_deleted_manifests_deleted_at",
    )
    _index(
        "deleted_manifests",
        "repository_id",
        "restorable_until",
        name="ix_deleted_manifests_restorable",
    )
    _index("deleted_manifests", "restorable_until")
    _index(
        "deleted_manifests",
        "digest",
        "repository_id",
        name="uq_deleted_manifests_digest",
        is_unique=True,
    )
    op.create_table(
        "deleted_tags",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("pushed_digest", DigestText, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("has_image", sa.Boolean, nullable=False),
        sa.Column("deleted_at", Moment, nullable=False),
        sa.Column("deleted_by", sa.Text, nullable=False),
        sa.Column("deleted_by_source", sa.Text),
        sa.Column("restorable_until", Moment, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "name"),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
    )
    _index("deleted_tags", "repository_id", "digest")
    _index(
        "deleted_tags",
        "repository_id",
        "restorable_until",
        name="ix_deleted_tags_restorable",
        where="has_image",
    )
    _index("deleted_tags", "restorable_until")
    _index(
        "deleted_tags",
        "repository_id",
        "sequence",
        name="ix_deleted_tags_sequence",
        where="has_image",
    )
    op.create_table(
        "email_contents",
        sa.Column("message_id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("ended_at", Moment),
        sa.ForeignKeyConstraint(
            ["message_id", "account_id"],
            ["email_messages.id", "email_messages.account_id"],
            name="fk_email_contents_message",
            ondelete="CASCADE",
        ),
    )
    _index(
        "email_contents",
        "ended_at",
        name="ix_email_contents_ended_at",
        where="ended_at IS NOT NULL",
    )
    op.create_table(
        "email_identities",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("status", ByteOrdered, nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("value", ByteOrdered, nullable=False),
        sa.Column("kind", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("ip_pool_id", Id),
        sa.Column("verified_at", Moment),
        sa.Column("checked_at", Moment),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("dkim_selector", sa.Text),
        sa.Column("dkim_public", sa.Text),
        sa.Column("dkim_key", sa.LargeBinary),
        sa.Column("check_at", Moment),
        sa.Column("asked", sa.BigInteger, nullable=False),
        sa.Column("confirmation_nonce", sa.Text),
        sa.Column("confirmation_hash", sa.LargeBinary),
        sa.Column("confirmation_expires_at", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["ip_pool_id", "account_id"],
            ["ip_pools.id", "ip_pools.account_id"],
            name="fk_email_identities_ip_pool",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            "kind = 'address' OR confirmation_hash IS NULL", name="confirmation_hash"
        ),
        sa.CheckConstraint(
            (
                "(kind = 'domain') = (dkim_key IS NOT NULL)"
                " AND (dkim_key IS NULL) = (dkim_public IS NULL)"
                " AND (dkim_key IS NULL) = (dkim_selector IS NULL)"
            ),
            name="dkim_key",
        ),
        sa.CheckConstraint("kind IN ('domain', 'address')", name="kind"),
        sa.CheckConstraint("status IN ('pending', 'verified', 'failed')", name="status"),
        sa.CheckConstraint("status <> 'verified' OR verified_at IS NOT NULL", name="verified_at"),
    )
    _index("email_identities", "account_id", "id", name="ix_email_identities_account_id_id")
    _index(
        "email_identities",
        "check_at",
        name="ix_email_identities_check_at",
        where="check_at IS NOT NULL",
    )
    _index("email_identities", "ip_pool_id", name="ix_email_identities_ip_pool_id")
    _index(
        "email_identities",
        "confirmation_hash",
        name="uq_email_identities_confirmation_hash",
        is_unique=True,
        where="confirmation_hash IS NOT NULL",
    )
    _index(
        "email_identities",
        "account_id",
        "region",
        "value",
        name="uq_email_identities_value",
        is_unique=True,
    )
    op.create_table(
        "email_recipients",
        sa.Column("message_id", Id, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("folded", ByteOrdered, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("last_attempt_at", Moment),
        sa.Column("source_ip", sa.Text),
        sa.Column("next_attempt_at", Moment),
        sa.PrimaryKeyConstraint("message_id", "position"),
        sa.ForeignKeyConstraint(
            ["message_id", "account_id"],
            ["email_messages.id", "email_messages.account_id"],
            name="fk_email_recipients_message",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("attempts >= 0", name="attempts"),
        sa.CheckConstraint("kind IN ('to', 'cc', 'bcc')", name="kind"),
        sa.CheckConstraint(
            "(status IN ('queued', 'deferred')) = (next_attempt_at IS NOT NULL)",
            name="next_attempt_at",
        ),
        sa.CheckConstraint(
            ("status IN ('queued', 'deferred', 'complained', 'bounced', 'sent', 'suppressed')"),
            name="status",
        ),
    )
    _index(
        "email_recipients", "account_id", "folded", "message_id", name="ix_email_recipients_folded"
    )
    _index(
        "email_recipients",
        "account_id",
        "source_ip",
        name="ix_email_recipients_source_ip",
        where="status IN ('queued', 'deferred')",
    )
    op.create_table(
        "encryption_bindings",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("repository_id", Id),
        sa.Column("kms_key_id", Id, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["kms_key_id", "account_id"], ["kms_keys.id", "kms_keys.account_id"]
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"],
            ["repositories.id", "repositories.account_id"],
            ondelete="CASCADE",
        ),
    )
    _index("encryption_bindings", "account_id", "repository_id", "id")
    _index("encryption_bindings", "kms_key_id")
    _index(
        "encryption_bindings",
        "account_id",
        name="uq_encryption_bindings_account",
        is_unique=True,
        where="ended_at IS NULL AND repository_id IS NULL",
    )
    _index(
        "encryption_bindings",
        "repository_id",
        name="uq_encryption_bindings_repository",
        is_unique=True,
        where="ended_at IS NULL AND repository_id IS NOT NULL",
    )
    op.create_table(
        "group_assignments",
        sa.Column("id", Id, primary_key=True),
        sa.Column("role_id", Id, nullable=False),
        sa.Column("provider_id", Id, nullable=False),
        sa.Column("group_name", ByteOrdered, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["provider_id"], ["identity_providers.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["role_id"], ["roles.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("role_id", "provider_id", "group_name"),
    )
    _index("group_assignments", "provider_id", "group_name")
    op.create_table(
        "instances",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("pool_id", Id, nullable=False),
        sa.Column("node", ByteOrdered, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("address", sa.Text),
        sa.Column("address_ipv6", sa.Text),
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("image_digest", sa.Text, nullable=False),
        sa.Column("started_at", Moment),
        sa.Column("restarts", sa.BigInteger, nullable=False),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("memory_mb", sa.BigInteger, nullable=False),
        sa.Column("cpu_millis", sa.BigInteger, nullable=False),
        sa.Column("ports", sa.Text, nullable=False),
        sa.Column("interface_id", Id),
        sa.Column("exits", sa.Text, nullable=False),
        sa.Column("not_before", sa.BigInteger),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["pool_id", "account_id"],
            ["instance_pools.id", "instance_pools.account_id"],
            name="fk_instances_pool",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            "status IN ('starting', 'running', 'unhealthy', 'stopping', 'stopped')", name="status"
        ),
    )
    _index("instances", "account_id", "id", name="ix_instances_account_id_id")
    _index("instances", "node", "id", name="ix_instances_node_id")
    _index("instances", "pool_id", name="ix_instances_pool_id")
    _index(
        "instances",
        "interface_id",
        name="uq_instances_interface_id",
        is_unique=True,
        where="interface_id IS NOT NULL",
    )
    op.create_table(
        "internet_gateways",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("vpc_id", Id),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["vpc_id", "account_id"],
            ["vpcs.id", "vpcs.account_id"],
            name="fk_internet_gateways_vpc",
        ),
        sa.UniqueConstraint("id", "account_id"),
    )
    _index("internet_gateways", "account_id", "id", name="ix_internet_gateways_account_id_id")
    _index(
        "internet_gateways",
        "account_id",
        "region",
        "name",
        name="uq_internet_gateways_name",
        is_unique=True,
    )
    _index("internet_gateways", "vpc_id", name="uq_internet_gateways_vpc_id", is_unique=True)
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
        sa.ForeignKeyConstraint(
            ["key_id", "account_id"],
            ["kms_keys.id", "kms_keys.account_id"],
            name="fk_kms_key_versions_key_account",
        ),
        sa.ForeignKeyConstraint(
            ["key_id", "key_name"],
            ["kms_keys.id", "kms_keys.name"],
            name="fk_kms_key_versions_key_name",
        ),
        sa.CheckConstraint("provider IN ('embedded', 'aws')", name="provider"),
        sa.CheckConstraint("version > 0", name="version"),
    )
    op.create_table(
        "lifecycle_policies",
        sa.Column("repository_id", Id, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("next_run_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
    )
    _index("lifecycle_policies", "next_run_at")
    op.create_table(
        "load_balancer_metrics",
        sa.Column("load_balancer_id", Id, nullable=False),
        sa.Column("replica", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("served", sa.Text, nullable=False),
        sa.Column("last", sa.Text, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("load_balancer_id", "replica"),
        sa.ForeignKeyConstraint(
            ["load_balancer_id", "account_id"],
            ["load_balancers.id", "load_balancers.account_id"],
            name="fk_load_balancer_metrics_load_balancer",
        ),
    )
    op.create_table(
        "load_balancer_pools",
        sa.Column("pool_id", Id, nullable=False),
        sa.Column("load_balancer_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.PrimaryKeyConstraint("pool_id", "load_balancer_id"),
        sa.ForeignKeyConstraint(
            ["load_balancer_id", "account_id"],
            ["load_balancers.id", "load_balancers.account_id"],
            name="fk_load_balancer_pools_load_balancer",
        ),
    )
    _index(
        "load_balancer_pools", "load_balancer_id", name="ix_load_balancer_pools_load_balancer_id"
    )
    op.create_table(
        "load_balancer_vips",
        sa.Column("vip", ByteOrdered, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("load_balancer_id", Id, nullable=False),
        sa.ForeignKeyConstraint(
            ["load_balancer_id", "account_id"],
            ["load_balancers.id", "load_balancers.account_id"],
            name="fk_load_balancer_vips_load_balancer",
        ),
        sa.UniqueConstraint("load_balancer_id"),
    )
    op.create_table(
        "manifests",
        sa.Column("id", Id, primary_key=True),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("artifact_type", sa.Text),
        sa.Column("config_digest", DigestText),
        sa.Column("subject_digest", DigestText),
        sa.Column("is_index", sa.Boolean, nullable=False),
        sa.Column("manifest_size_bytes", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("tag_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("annotations", sa.Text, nullable=False),
        sa.Column("pushed_at", Moment, nullable=False),
        sa.Column("restored_at", Moment),
        sa.Column("last_pulled_at", Moment),
        sa.ForeignKeyConstraint(
            ["account_id", "digest"], ["manifest_bodies.account_id", "manifest_bodies.digest"]
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"], ["repositories.id", "repositories.account_id"]
        ),
        sa.UniqueConstraint("id", "repository_id"),
        sa.UniqueConstraint("repository_id", "digest"),
        sa.CheckConstraint("tag_count >= 0", name="tag_count"),
    )
    _index("manifests", "account_id", "digest")
    _index(
        "manifests",
        "repository_id",
        "last_pulled_at",
        name="ix_manifests_last_pulled_at",
        where="last_pulled_at IS NOT NULL",
    )
    _index("manifests", "repository_id", "id")
    _index(
        "manifests",
        "repository_id",
        "subject_digest",
        "id",
        name="ix_manifests_subject",
        where="subject_digest IS NOT NULL",
    )
    _index("manifests", "repository_id", "id", name="ix_manifests_tagged", where="tag_count > 0")
    _index("manifests", "repository_id", "id", name="ix_manifests_untagged", where="tag_count = 0")
    op.create_table(
        "policy_attachments",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("policy_id", Id, nullable=False),
        sa.Column("service_account_id", Id),
        sa.Column("role_id", Id),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["policy_id", "account_id"], ["policies.id", "policies.account_id"]
        ),
        sa.ForeignKeyConstraint(
            ["role_id", "account_id"], ["roles.id", "roles.account_id"], ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["service_account_id", "account_id"],
            ["service_accounts.id", "service_accounts.account_id"],
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("policy_id", "role_id"),
        sa.UniqueConstraint("policy_id", "service_account_id"),
        sa.CheckConstraint(
            "(service_account_id IS NULL) <> (role_id IS NULL)", name="one_principal"
        ),
    )
    _index("policy_attachments", "role_id")
    _index("policy_attachments", "service_account_id")
    op.create_table(
        "policy_revisions",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "kind"),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
        sa.CheckConstraint("kind IN ('resource', 'lifecycle')", name="kind"),
    )
    op.create_table(
        "publications",
        sa.Column("id", Id, primary_key=True),
        sa.Column("topic_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("published_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.Column("content_type", sa.Text),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], ondelete="CASCADE"),
    )
    _index("publications", "ended_at", name="ix_publications_ended_at")
    _index("publications", "topic_id", name="ix_publications_topic_id")
    op.create_table(
        "pull_through_stats",
        sa.Column("rule_id", Id, primary_key=True),
        sa.Column("pulls", sa.BigInteger, nullable=False),
        sa.Column("misses", sa.BigInteger, nullable=False),
        sa.Column("fetched_bytes", sa.BigInteger, nullable=False),
        sa.Column("served_bytes", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["rule_id"], ["pull_through_cache_rules.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "quarantined_object_keys",
        sa.Column("quarantined_id", Id, nullable=False),
        sa.Column("kms_key_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("wrapped_data_key", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("quarantined_id", "kms_key_id"),
        sa.ForeignKeyConstraint(
            ["kms_key_id", "account_id"], ["kms_keys.id", "kms_keys.account_id"]
        ),
        sa.ForeignKeyConstraint(["quarantined_id"], ["quarantined_objects.id"], ondelete="CASCADE"),
    )
    _index("quarantined_object_keys", "kms_key_id", "quarantined_id")
    op.create_table(
        "queue_messages",
        sa.Column("position", _Sequence, primary_key=True),
        sa.Column("id", Id, nullable=False),
        sa.Column("queue_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("queued_at", Moment, nullable=False),
        sa.Column("hidden_until", Moment),
        sa.Column("lease_token", sa.String(22)),
        sa.Column("lease_count", sa.Integer, nullable=False),
        sa.Column("sent_at", Moment, nullable=False),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["queue_id", "account_id"],
            ["queues.id", "queues.account_id"],
            name="fk_queue_messages_queue",
        ),
        sa.CheckConstraint("lease_count >= 0", name="lease_count"),
        sa.CheckConstraint("lease_token IS NULL OR hidden_until IS NOT NULL", name="lease_token"),
        sqlite_autoincrement=True,
    )
    _index("queue_messages", "queue_id", "position", "size", name="ix_queue_messages_all")
    _index(
        "queue_messages",
        "queue_id",
        "hidden_until",
        "position",
        name="ix_queue_messages_hidden",
        where="hidden_until IS NOT NULL",
    )
    _index(
        "queue_messages",
        "queue_id",
        "position",
        name="ix_queue_messages_visible",
        where="hidden_until IS NULL",
    )
    _index("queue_messages", "id", name="uq_queue_messages_id", is_unique=True)
    op.create_table(
        "repository_activity",
        sa.Column("repository_id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("used_at", Moment, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
    )
    _index(
        "repository_activity",
        "account_id",
        "used_at",
        "repository_id",
        name="ix_repository_activity_used_at",
        where="size_bytes > 0",
    )
    op.create_table(
        "repository_days",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("pulls", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "day"),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
    )
    _index("repository_days", "account_id", "day")
    _index("repository_days", "day")
    op.create_table(
        "repository_growth",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("span", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("size_before", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("change_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "span"),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
    )
    _index("repository_growth", "account_id", "span", "change_bytes", "repository_id")
    op.create_table(
        "resource_policies",
        sa.Column("repository_id", Id, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("principal_ids", sa.Text, nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
        sa.CheckConstraint("visibility IN ('private', 'shared', 'public')", name="visibility"),
    )
    op.create_table(
        "role_assignments",
        sa.Column("role_id", Id, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("identity_provider_id", Id),
        sa.PrimaryKeyConstraint("role_id", "user_id"),
        sa.ForeignKeyConstraint(
            ["identity_provider_id"], ["identity_providers.id"], ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["role_id"], ["roles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
    )
    _index("role_assignments", "identity_provider_id")
    _index("role_assignments", "user_id")
    op.create_table(
        "security_groups",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("rules", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["vpc_id", "account_id"], ["vpcs.id", "vpcs.account_id"], name="fk_security_groups_vpc"
        ),
        sa.UniqueConstraint("id", "account_id"),
    )
    _index("security_groups", "account_id", "id", name="ix_security_groups_account_id_id")
    _index("security_groups", "vpc_id", name="ix_security_groups_vpc_id")
    _index(
        "security_groups",
        "vpc_id",
        name="uq_security_groups_default",
        is_unique=True,
        where="is_default",
    )
    _index(
        "security_groups",
        "account_id",
        "region",
        "name",
        name="uq_security_groups_name",
        is_unique=True,
    )
    op.create_table(
        "storage_buckets",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.Column("cors", sa.Text),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["kms_key_id", "account_id"],
            ["kms_keys.id", "kms_keys.account_id"],
            name="fk_storage_buckets_kms_key",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.UniqueConstraint("region", "name"),
    )
    _index("storage_buckets", "account_id", "id", name="ix_storage_buckets_account_id_id")
    _index(
        "storage_buckets",
        "account_id",
        "region",
        "name",
        name="ix_storage_buckets_account_id_region_name",
    )
    _index("storage_buckets", "kms_key_id", name="ix_storage_buckets_kms_key_id")
    op.create_table(
        "subscriptions",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("topic_id", Id, nullable=False),
        sa.Column("protocol", sa.String(8), nullable=False),
        sa.Column("endpoint", ByteOrdered, nullable=False),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("filter_policy", sa.Text, nullable=False),
        sa.Column("raw_message_delivery", sa.Boolean, nullable=False),
        sa.Column("confirmation_expires_at", Moment),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("delivery_policy", sa.Text, nullable=False),
        sa.Column("dead_letter_queue", ByteOrdered),
        sa.Column("signing_secret", sa.LargeBinary),
        sa.Column("previous_secret", sa.LargeBinary),
        sa.Column("previous_until", Moment),
        sa.Column("confirmation_nonce", ByteOrdered),
        sa.Column("confirmation_hash", sa.LargeBinary),
        sa.Column("active_since", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("confirmation_hash"),
        sa.UniqueConstraint("id", "account_id"),
        sa.UniqueConstraint("topic_id", "protocol", "endpoint"),
        sa.CheckConstraint("(active_since IS NULL) = (status <> 'confirmed')", name="active_since"),
        sa.CheckConstraint(
            "(confirmation_hash IS NULL) = (confirmation_expires_at IS NULL)",
            name="confirmation_expires_at",
        ),
        sa.CheckConstraint(
            "(confirmation_hash IS NULL) = (status = 'confirmed')", name="confirmation_hash"
        ),
        sa.CheckConstraint(
            "(previous_secret IS NULL) = (previous_until IS NULL)", name="previous_secret"
        ),
        sa.CheckConstraint("protocol IN ('email', 'http', 'https', 'queue')", name="protocol"),
        sa.CheckConstraint("status = 'confirmed' OR protocol <> 'queue'", name="queue_status"),
        sa.CheckConstraint(
            "(protocol IN ('http', 'https')) = (signing_secret IS NOT NULL)", name="signing_secret"
        ),
        sa.CheckConstraint("status IN ('pending_confirmation', 'confirmed')", name="status"),
    )
    _index("subscriptions", "account_id", "id", name="ix_subscriptions_account_id_id")
    _index("subscriptions", "topic_id", "id", name="ix_subscriptions_topic_id_id")
    op.create_table(
        "tag_events",
        sa.Column("sequence", _Sequence, primary_key=True),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("tag", ByteOrdered, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("digest", DigestText),
        sa.Column("previous_digest", DigestText),
        sa.Column("manifest_id", Id),
        sa.Column("previous_manifest_id", Id),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("source", sa.Text),
        sa.Column("occurred_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
        sa.CheckConstraint("action IN ('created', 'moved', 'deleted', 'restored')", name="action"),
        sa.CheckConstraint("(digest IS NULL) = (action = 'deleted')", name="digest"),
    )
    _index(
        "tag_events",
        "repository_id",
        "previous_digest",
        "occurred_at",
        name="ix_tag_events_previous_digest",
        where="previous_digest IS NOT NULL",
    )
    _index("tag_events", "repository_id", "sequence")
    _index("tag_events", "repository_id", "tag", "sequence")
    op.create_table(
        "uploads",
        sa.Column("id", Id, primary_key=True),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("algorithm", sa.String(16)),
        sa.Column("received_bytes", sa.BigInteger, nullable=False),
        sa.Column("digests", sa.Text),
        sa.Column("stage_id", Id),
        sa.Column("stage_shared", sa.Boolean, nullable=False),
        sa.Column("lease_holder", Id),
        sa.Column("lease_token", sa.BigInteger, nullable=False),
        sa.Column("leased_until", Moment),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.Column("wrapped_data_key", sa.LargeBinary),
        sa.Column("body", sa.LargeBinary),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"], ["repositories.id", "repositories.account_id"]
        ),
        sa.CheckConstraint("(kms_key_id IS NULL) = (wrapped_data_key IS NULL)", name="data_key"),
        sa.CheckConstraint("(lease_holder IS NULL) = (leased_until IS NULL)", name="lease"),
        sa.CheckConstraint("received_bytes >= 0", name="received_bytes"),
    )
    _index("uploads", "account_id", "expires_at")
    _index("uploads", "expires_at")
    _index("uploads", "repository_id", "expires_at")
    _index(
        "uploads",
        "stage_id",
        name="uq_uploads_stage_id",
        is_unique=True,
        where="stage_id IS NOT NULL",
    )
    op.create_table(
        "upstream_faults",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("code", sa.String(32), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("http_status", sa.Integer),
        sa.Column("first_at", Moment, nullable=False),
        sa.Column("last_at", Moment, nullable=False),
        sa.Column("occurrences", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "code"),
        sa.ForeignKeyConstraint(["rule_id"], ["pull_through_cache_rules.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "upstream_lookups",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("repository", ByteOrdered, nullable=False),
        sa.Column("reference", ByteOrdered, nullable=False),
        sa.Column("fetching_until", Moment),
        sa.Column("absent_until", Moment),
        sa.Column("ends_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "repository", "reference"),
        sa.ForeignKeyConstraint(["rule_id"], ["pull_through_cache_rules.id"], ondelete="CASCADE"),
    )
    _index("upstream_lookups", "ends_at")
    op.create_table(
        "upstream_states",
        sa.Column("rule_id", Id, primary_key=True),
        sa.Column("paused_until", Moment),
        sa.Column("pause_code", sa.String(32)),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("failed_at", Moment),
        sa.Column("rate_limit", sa.BigInteger),
        sa.Column("rate_remaining", sa.BigInteger),
        sa.Column("rate_window_seconds", sa.BigInteger),
        sa.Column("rate_at", Moment),
        sa.Column("accepted_repository", ByteOrdered),
        sa.Column("accepted_at", Moment),
        sa.ForeignKeyConstraint(["rule_id"], ["pull_through_cache_rules.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "upstream_tag_lists",
        sa.Column("rule_id", Id, nullable=False),
        sa.Column("repository", ByteOrdered, nullable=False),
        sa.Column("names", sa.LargeBinary, nullable=False),
        sa.Column("is_whole", sa.Boolean, nullable=False),
        sa.Column("checked_at", Moment, nullable=False),
        sa.Column("fresh_until", Moment, nullable=False),
        sa.PrimaryKeyConstraint("rule_id", "repository"),
        sa.ForeignKeyConstraint(["rule_id"], ["pull_through_cache_rules.id"], ondelete="CASCADE"),
    )
    _index("upstream_tag_lists", "fresh_until")
    op.create_table(
        "backup_turns",
        sa.Column("cluster_id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("backup_id", Id, nullable=False),
        sa.ForeignKeyConstraint(
            ["backup_id", "account_id"],
            ["database_backups.id", "database_backups.account_id"],
            name="fk_backup_turns_backup",
        ),
    )
    _index("backup_turns", "backup_id", name="ix_backup_turns_backup_id")
    op.create_table(
        "blob_fills",
        sa.Column("account_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("upload_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger),
        sa.PrimaryKeyConstraint("account_id", "digest"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["upload_id"], ["uploads.id"], ondelete="CASCADE"),
    )
    _index("blob_fills", "upload_id", name="uq_blob_fills_upload_id", is_unique=True)
    op.create_table(
        "bucket_uses",
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("bucket_id", "user_id"),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_bucket_uses_bucket",
        ),
    )
    _index("bucket_uses", "account_id", "bucket_id", name="ix_bucket_uses_account_id_bucket_id")
    op.create_table(
        "container_passwords",
        sa.Column("id", Id, primary_key=True),
        sa.Column("user_id", Id, nullable=False),
        sa.Column("role_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("password_sha256", sa.String(64), nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.Column("last_used_at", Moment),
        sa.ForeignKeyConstraint(
            ["role_id", "user_id"],
            ["role_assignments.role_id", "role_assignments.user_id"],
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("user_id", "name"),
    )
    _index("container_passwords", "expires_at")
    _index("container_passwords", "role_id", "user_id")
    op.create_table(
        "deleted_manifest_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("object_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        sa.ForeignKeyConstraint(["manifest_id"], ["deleted_manifests.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["object_id", "account_id", "digest", "size"],
            [
                "blob_objects.id",
                "blob_objects.account_id",
                "blob_objects.digest",
                "blob_objects.size",
            ],
        ),
        sa.ForeignKeyConstraint(
            ["object_id", "kms_key_id"],
            ["blob_object_keys.object_id", "blob_object_keys.kms_key_id"],
        ),
    )
    _index("deleted_manifest_blobs", "object_id")
    op.create_table(
        "deleted_manifest_children",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("child_digest", DigestText, nullable=False),
        sa.Column("is_missing", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.PrimaryKeyConstraint("manifest_id", "child_digest"),
        sa.ForeignKeyConstraint(["manifest_id"], ["deleted_manifests.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "deleted_missing_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        sa.ForeignKeyConstraint(["manifest_id"], ["deleted_manifests.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("subscription_id", Id, nullable=False),
        sa.Column("publication_id", Id),
        sa.Column("size", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", Moment, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["publication_id"], ["publications.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["subscription_id"], ["subscriptions.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("publication_id", "subscription_id"),
    )
    _index("deliveries", "subscription_id", "due_at", "size", name="ix_deliveries_due")
    op.create_table(
        "egress_only_gateways",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["vpc_id"], ["internet_gateways.vpc_id"], name="fk_egress_only_gateways_uplink"
        ),
        sa.ForeignKeyConstraint(
            ["vpc_id", "account_id"],
            ["vpcs.id", "vpcs.account_id"],
            name="fk_egress_only_gateways_vpc",
        ),
        sa.UniqueConstraint("id", "account_id"),
    )
    _index("egress_only_gateways", "account_id", "id", name="ix_egress_only_gateways_account_id_id")
    _index(
        "egress_only_gateways",
        "account_id",
        "region",
        "name",
        name="uq_egress_only_gateways_name",
        is_unique=True,
    )
    _index("egress_only_gateways", "vpc_id", name="uq_egress_only_gateways_vpc_id", is_unique=True)
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
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            ondelete="CASCADE",
        ),
    )
    _index(
        "image_pins", "expires_at", name="ix_image_pins_expires_at", where="expires_at IS NOT NULL"
    )
    _index("image_pins", "repository_id", "manifest_id")
    op.create_table(
        "manifest_children",
        sa.Column("parent_id", Id, nullable=False),
        sa.Column("child_digest", DigestText, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("child_id", Id),
        sa.PrimaryKeyConstraint("parent_id", "child_digest"),
        sa.ForeignKeyConstraint(
            ["child_id", "repository_id"], ["manifests.id", "manifests.repository_id"]
        ),
        sa.ForeignKeyConstraint(
            ["parent_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            ondelete="CASCADE",
        ),
    )
    _index("manifest_children", "child_id")
    _index(
        "manifest_children",
        "repository_id",
        "child_digest",
        name="ix_manifest_children_missing",
        where="child_id IS NULL",
    )
    op.create_table(
        "missing_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            ondelete="CASCADE",
        ),
    )
    _index("missing_blobs", "digest", "repository_id")
    op.create_table(
        "repository_blobs",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("object_id", Id, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("manifest_refs", sa.Integer, nullable=False),
        sa.Column("touched_at", Moment, nullable=False),
        sa.Column("kms_key_id", Id),
        sa.PrimaryKeyConstraint("repository_id", "digest"),
        sa.ForeignKeyConstraint(
            ["object_id", "account_id", "digest", "size"],
            [
                "blob_objects.id",
                "blob_objects.account_id",
                "blob_objects.digest",
                "blob_objects.size",
            ],
        ),
        sa.ForeignKeyConstraint(
            ["object_id", "kms_key_id"],
            ["blob_object_keys.object_id", "blob_object_keys.kms_key_id"],
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"], ["repositories.id", "repositories.account_id"]
        ),
        sa.CheckConstraint("manifest_refs >= 0", name="manifest_refs"),
    )
    _index("repository_blobs", "object_id")
    _index("repository_blobs", "repository_id", "kms_key_id")
    _index(
        "repository_blobs",
        "account_id",
        "touched_at",
        name="ix_repository_blobs_unreferenced",
        where="manifest_refs = 0",
    )
    op.create_table(
        "sessions",
        sa.Column("id", Id, primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("user_id", Id),
        sa.Column("role_id", Id),
        sa.Column("parent_sid", Id),
        sa.Column("organization_id", Id),
        sa.Column("source_crn", sa.Text),
        sa.Column("source_access_key_id", Id),
        sa.Column("session_name", sa.Text),
        sa.Column("first_source", sa.Text),
        sa.Column("access_key_id", sa.String(20)),
        sa.Column("secret_sealed", sa.LargeBinary),
        sa.Column("token_sha256", sa.String(64)),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.Column("revoked_at", Moment),
        sa.Column("ends_at", Moment),
        sa.ForeignKeyConstraint(["organization_id"], ["organizations.id"], ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["parent_sid"], ["sessions.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["role_id"], ["roles.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["source_access_key_id"], ["access_keys.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("access_key_id"),
        sa.CheckConstraint(
            ("(kind = 'user' AND user_id IS NOT NULL) OR (kind = 'role' AND role_id IS NOT NULL)"),
            name="kind",
        ),
    )
    _index("sessions", "expires_at")
    _index("sessions", "organization_id")
    _index("sessions", "parent_sid")
    _index("sessions", "role_id", "revoked_at", "expires_at")
    _index("sessions", "source_access_key_id")
    _index("sessions", "user_id")
    op.create_table(
        "storage_counts",
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("objects", sa.BigInteger, nullable=False),
        sa.Column("object_bytes", sa.BigInteger, nullable=False),
        sa.Column("upload_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("bucket_id", "shard"),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_storage_counts_bucket",
        ),
    )
    _index(
        "storage_counts", "account_id", "bucket_id", name="ix_storage_counts_account_id_bucket_id"
    )
    op.create_table(
        "storage_objects",
        sa.Column("id", Id, primary_key=True),
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("etag", sa.String(40), nullable=False),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("storage_class", sa.String(32), nullable=False),
        sa.Column("checksum", sa.Text),
        sa.Column("created_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_storage_objects_bucket",
        ),
        sa.UniqueConstraint("bucket_id", "key"),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("size >= 0", name="size"),
    )
    op.create_table(
        "storage_uploads",
        sa.Column("id", Id, primary_key=True),
        sa.Column("bucket_id", Id, nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("storage_class", sa.String(32), nullable=False),
        sa.Column("checksum_algorithm", sa.String(16)),
        sa.Column("checksum_type", sa.String(16)),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("ended_at", Moment),
        sa.Column("completion", sa.Text),
        sa.ForeignKeyConstraint(
            ["bucket_id", "account_id"],
            ["storage_buckets.id", "storage_buckets.account_id"],
            name="fk_storage_uploads_bucket",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("(ended_at IS NULL) = (completion IS NULL)", name="completion"),
    )
    _index("storage_uploads", "bucket_id", name="ix_storage_uploads_bucket_id")
    _index("storage_uploads", "created_at", name="ix_storage_uploads_created_at")
    _index(
        "storage_uploads",
        "ended_at",
        name="ix_storage_uploads_ended_at",
        where="ended_at IS NOT NULL",
    )
    _index(
        "storage_uploads",
        "bucket_id",
        "key",
        "id",
        name="ix_storage_uploads_open",
        where="ended_at IS NULL",
    )
    op.create_table(
        "tags",
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("pushed_digest", DigestText, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.Column("fresh_until", Moment),
        sa.Column("stale_since", Moment),
        sa.Column("checked_at", Moment),
        sa.Column("upstream_etag", sa.Text),
        sa.PrimaryKeyConstraint("repository_id", "name"),
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            ondelete="CASCADE",
        ),
    )
    _index("tags", "manifest_id")
    op.create_table(
        "login_credentials",
        sa.Column("id", Id, primary_key=True),
        sa.Column("password_sha256", sa.String(64), nullable=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("service_account_id", Id),
        sa.Column("access_key_id", Id),
        sa.Column("sid", Id),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.Column("revoked_at", Moment),
        sa.ForeignKeyConstraint(["access_key_id"], ["access_keys.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["service_account_id"], ["service_accounts.id"], ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sid"], ["sessions.id"], ondelete="CASCADE"),
        sa.UniqueConstraint("password_sha256"),
    )
    _index("login_credentials", "account_id", "revoked_at", "expires_at")
    _index("login_credentials", "expires_at")
    _index("login_credentials", "service_account_id")
    _index("login_credentials", "sid")
    op.create_table(
        "manifest_blobs",
        sa.Column("manifest_id", Id, nullable=False),
        sa.Column("digest", DigestText, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.PrimaryKeyConstraint("manifest_id", "digest"),
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "digest"],
            ["repository_blobs.repository_id", "repository_blobs.digest"],
        ),
    )
    _index("manifest_blobs", "digest", "repository_id")
    op.create_table(
        "refresh_tokens",
        sa.Column("token_sha256", sa.String(64), primary_key=True),
        sa.Column("sid", Id, nullable=False),
        sa.Column("client_id", sa.String(64)),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("expires_at", Moment, nullable=False),
        sa.Column("spent_at", Moment),
        sa.ForeignKeyConstraint(["sid"], ["sessions.id"], ondelete="CASCADE"),
    )
    _index("refresh_tokens", "expires_at")
    _index("refresh_tokens", "sid")
    op.create_table(
        "route_tables",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("is_main", sa.Boolean, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("routes", sa.Text, nullable=False),
        sa.Column("internet_gateway_id", Id),
        sa.Column("egress_only_gateway_id", Id),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["egress_only_gateway_id", "account_id"],
            ["egress_only_gateways.id", "egress_only_gateways.account_id"],
            name="fk_route_tables_egress_only_gateway",
        ),
        sa.ForeignKeyConstraint(
            ["internet_gateway_id", "account_id"],
            ["internet_gateways.id", "internet_gateways.account_id"],
            name="fk_route_tables_internet_gateway",
        ),
        sa.ForeignKeyConstraint(
            ["vpc_id", "account_id"], ["vpcs.id", "vpcs.account_id"], name="fk_route_tables_vpc"
        ),
        sa.UniqueConstraint("id", "account_id"),
    )
    _index("route_tables", "account_id", "id", name="ix_route_tables_account_id_id")
    _index("route_tables", "egress_only_gateway_id", name="ix_route_tables_egress_only_gateway_id")
    _index("route_tables", "internet_gateway_id", name="ix_route_tables_internet_gateway_id")
    _index("route_tables", "vpc_id", name="ix_route_tables_vpc_id")
    _index("route_tables", "vpc_id", name="uq_route_tables_main", is_unique=True, where="is_main")
    _index(
        "route_tables", "account_id", "region", "name", name="uq_route_tables_name", is_unique=True
    )
    op.create_table(
        "search_names",
        sa.Column("id", _Sequence, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("repository_id", Id, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.UniqueConstraint("repository_id", "kind", "name"),
        sa.CheckConstraint("kind IN ('repository', 'tag')", name="kind"),
        sa.CheckConstraint("state IN ('new', 'indexed', 'gone')", name="state"),
    )
    _index(
        "search_names",
        "account_id",
        "id",
        name="ix_search_names_unsettled",
        where="state <> 'indexed'",
    )
    op.create_table(
        "storage_pieces",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("object_id", Id),
        sa.Column("upload_id", Id),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("stored_size", sa.BigInteger, nullable=False),
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
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["object_id", "account_id"],
            ["storage_objects.id", "storage_objects.account_id"],
            name="fk_storage_pieces_object",
        ),
        sa.ForeignKeyConstraint(
            ["upload_id", "account_id"],
            ["storage_uploads.id", "storage_uploads.account_id"],
            name="fk_storage_pieces_upload",
        ),
        sa.CheckConstraint("number BETWEEN 1 AND 10000", name="number"),
        sa.CheckConstraint(
            (
                "(object_id IS NOT NULL AND upload_id IS NULL"
                " AND condemned_at IS NULL) OR (object_id IS NULL"
                " AND upload_id IS NOT NULL AND condemned_at IS NULL)"
                " OR (object_id IS NULL AND upload_id IS NULL"
                " AND condemned_at IS NOT NULL)"
            ),
            name="owner",
        ),
        sa.CheckConstraint("(kms_key_id IS NULL) = (wrapped IS NULL)", name="wrapped"),
    )
    _index(
        "storage_pieces",
        "condemned_at",
        name="ix_storage_pieces_condemned",
        where="condemned_at IS NOT NULL",
    )
    _index(
        "storage_pieces",
        "account_id",
        "id",
        name="ix_storage_pieces_damaged",
        where="damage IS NOT NULL",
    )
    _index(
        "storage_pieces",
        "kms_key_id",
        "encoding",
        name="ix_storage_pieces_kms_key_id",
        where="kms_key_id IS NOT NULL",
    )
    _index(
        "storage_pieces",
        "verified_at",
        "id",
        name="ix_storage_pieces_verified_at",
        where="damage IS NULL AND condemned_at IS NULL AND encoding <> 'shredded'",
    )
    _index(
        "storage_pieces",
        "object_id",
        "number",
        name="uq_storage_pieces_object",
        is_unique=True,
        where="object_id IS NOT NULL",
    )
    _index(
        "storage_pieces",
        "upload_id",
        "number",
        name="uq_storage_pieces_upload",
        is_unique=True,
        where="upload_id IS NOT NULL",
    )
    op.create_table(
        "subnets",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("cidr_ipv4", sa.Text),
        sa.Column("cidr_ipv6", sa.Text),
        sa.Column("route_table_id", Id),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("next_ipv4", sa.BigInteger, nullable=False),
        sa.Column("next_ipv6", sa.BigInteger, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["route_table_id", "account_id"],
            ["route_tables.id", "route_tables.account_id"],
            name="fk_subnets_route_table",
        ),
        sa.ForeignKeyConstraint(
            ["vpc_id", "account_id"], ["vpcs.id", "vpcs.account_id"], name="fk_subnets_vpc"
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint("cidr_ipv4 IS NOT NULL OR cidr_ipv6 IS NOT NULL", name="cidr_ipv4"),
        sa.CheckConstraint("route_table_id IS NOT NULL", name="route_table_id"),
    )
    _index("subnets", "account_id", "id", name="ix_subnets_account_id_id")
    _index("subnets", "route_table_id", name="ix_subnets_route_table_id")
    _index("subnets", "vpc_id", name="ix_subnets_vpc_id")
    _index("subnets", "account_id", "region", "name", name="uq_subnets_name", is_unique=True)
    op.create_table(
        "network_interfaces",
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        sa.Column("name", ByteOrdered, nullable=False),
        sa.Column("vpc_id", Id, nullable=False),
        sa.Column("subnet_id", Id, nullable=False),
        sa.Column("address_ipv4", sa.Text),
        sa.Column("address_ipv6", sa.Text),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("is_balancer", sa.Boolean, nullable=False),
        sa.Column("security_groups", sa.Text, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(
            ["subnet_id", "account_id"],
            ["subnets.id", "subnets.account_id"],
            name="fk_network_interfaces_subnet",
        ),
        sa.ForeignKeyConstraint(
            ["vpc_id", "account_id"],
            ["vpcs.id", "vpcs.account_id"],
            name="fk_network_interfaces_vpc",
        ),
        sa.UniqueConstraint("id", "account_id"),
        sa.CheckConstraint(
            "address_ipv4 IS NOT NULL OR address_ipv6 IS NOT NULL", name="address_ipv4"
        ),
    )
    _index("network_interfaces", "account_id", "id", name="ix_network_interfaces_account_id_id")
    _index("network_interfaces", "subnet_id", name="ix_network_interfaces_subnet_id")
    _index(
        "network_interfaces",
        "vpc_id",
        "address_ipv4",
        name="uq_network_interfaces_address_ipv4",
        is_unique=True,
    )
    _index(
        "network_interfaces",
        "vpc_id",
        "address_ipv6",
        name="uq_network_interfaces_address_ipv6",
        is_unique=True,
    )
    _index(
        "network_interfaces",
        "account_id",
        "region",
        "name",
        name="uq_network_interfaces_name",
        is_unique=True,
    )
    op.create_table(
        "subnet_free_addresses",
        sa.Column("subnet_id", Id, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("freed_at", Moment, nullable=False),
        sa.PrimaryKeyConstraint("subnet_id", "position"),
        sa.ForeignKeyConstraint(["subnet_id"], ["subnets.id"]),
    )
    _index(
        "subnet_free_addresses",
        "subnet_id",
        "freed_at",
        "position",
        name="ix_subnet_free_addresses_freed_at",
    )
    op.create_table(
        "network_interface_groups",
        sa.Column("interface_id", Id, nullable=False),
        sa.Column("group_id", Id, nullable=False),
        sa.PrimaryKeyConstraint("interface_id", "group_id"),
        sa.ForeignKeyConstraint(["group_id"], ["security_groups.id"]),
        sa.ForeignKeyConstraint(["interface_id"], ["network_interfaces.id"]),
    )
    _index("network_interface_groups", "group_id", name="ix_network_interface_groups_group_id")
