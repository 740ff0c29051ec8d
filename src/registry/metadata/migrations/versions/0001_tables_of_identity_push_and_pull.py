"""Tables of identity, push and pull."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "idempotency_records",
        sa.Column("principal", sa.String(length=36), nullable=False),
        sa.Column(
            "operation",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column(
            "key", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("lease_token", sa.String(length=36), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("outcome_sealed", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(state = 'completed') = (outcome_sealed IS NOT NULL)",
            name=op.f("ck_idempotency_records_completed_outcome"),
        ),
        sa.CheckConstraint(
            "(state = 'completed') = (status IS NOT NULL)",
            name=op.f("ck_idempotency_records_completed_status"),
        ),
        sa.CheckConstraint(
            "state IN ('in_progress', 'completed')", name=op.f("ck_idempotency_records_state")
        ),
        sa.PrimaryKeyConstraint(
            "principal", "operation", "key", name=op.f("pk_idempotency_records")
        ),
    )
    with op.batch_alter_table("idempotency_records", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_idempotency_records_created_at"), ["created_at"], unique=False
        )

    op.create_table(
        "organizations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("is_personal", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organizations")),
    )
    op.create_table(
        "rate_windows",
        sa.Column(
            "endpoint", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column(
            "subject", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("window_ends_at", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "subject", name=op.f("pk_rate_windows")),
    )
    with op.batch_alter_table("rate_windows", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_rate_windows_window_ends_at"), ["window_ends_at"], unique=False
        )

    op.create_table(
        "revoked_tokens",
        sa.Column("jti", sa.String(length=36), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("jti", name=op.f("pk_revoked_tokens")),
    )
    with op.batch_alter_table("revoked_tokens", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_revoked_tokens_expires_at"), ["expires_at"], unique=False
        )

    op.create_table(
        "signing_keys",
        sa.Column("kid", sa.String(length=64), nullable=False),
        sa.Column("audience", sa.String(length=16), nullable=False),
        sa.Column("algorithm", sa.String(length=16), nullable=False),
        sa.Column("material_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("not_after", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "audience IN ('api', 'registry')", name=op.f("ck_signing_keys_audience")
        ),
        sa.PrimaryKeyConstraint("kid", name=op.f("pk_signing_keys")),
    )
    with op.batch_alter_table("signing_keys", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_signing_keys_audience_not_after"),
            ["audience", "not_after"],
            unique=False,
        )

    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=True),
        sa.Column(
            "handle", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("auto_create_repositories", sa.Boolean(), nullable=False),
        sa.Column("iam_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("status IN ('active', 'suspended')", name=op.f("ck_accounts_status")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_accounts_organization_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("handle", name=op.f("uq_accounts_handle")),
    )
    with op.batch_alter_table("accounts", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_accounts_organization_id"), ["organization_id"], unique=False
        )

    op.create_table(
        "users",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column(
            "email", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("password", sa.Text(), nullable=False),
        sa.Column("must_change_password", sa.Boolean(), nullable=False),
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("status IN ('active', 'suspended')", name=op.f("ck_users_status")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_users_organization_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
    )
    op.create_table(
        "auth_codes",
        sa.Column("code_sha256", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.Column("client_id", sa.String(length=64), nullable=False),
        sa.Column("redirect_uri", sa.Text(), nullable=False),
        sa.Column("code_challenge", sa.String(length=128), nullable=False),
        sa.Column("sid", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("spent_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_auth_codes_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("code_sha256", name=op.f("pk_auth_codes")),
    )
    with op.batch_alter_table("auth_codes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_auth_codes_expires_at"), ["expires_at"], unique=False)

    op.create_table(
        "blob_objects",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stored_size", sa.BigInteger(), nullable=False),
        sa.Column("layout", sa.String(length=16), nullable=False),
        sa.Column("is_current", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("condemned_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("layout IN ('plain')", name=op.f("ck_blob_objects_layout")),
        sa.CheckConstraint("state IN ('live', 'condemned')", name=op.f("ck_blob_objects_state")),
        sa.CheckConstraint("size >= 0", name=op.f("ck_blob_objects_size")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_blob_objects_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blob_objects")),
        sa.UniqueConstraint(
            "id",
            "account_id",
            "digest",
            "size",
            name=op.f("uq_blob_objects_id_account_id_digest_size"),
        ),
    )
    with op.batch_alter_table("blob_objects", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_blob_objects_state_condemned_at"),
            ["state", "condemned_at"],
            unique=False,
        )
        batch_op.create_index(
            "uq_blob_objects_current_digest",
            ["account_id", "digest"],
            unique=True,
            sqlite_where=sa.text("is_current"),
            postgresql_where=sa.text("is_current"),
        )

    op.create_table(
        "digest_aliases",
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "alias",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_digest_aliases_account_id")
        ),
        sa.PrimaryKeyConstraint("account_id", "alias", name=op.f("pk_digest_aliases")),
    )
    with op.batch_alter_table("digest_aliases", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_digest_aliases_account_id_digest"),
            ["account_id", "digest"],
            unique=False,
        )

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column(
            "kind", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column(
            "dedup_key", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=True
        ),
        sa.Column("account_id", sa.String(length=36), nullable=True),
        sa.Column(
            "resource", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=True
        ),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_token", sa.String(length=36), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state IN ('queued', 'running')) = (due_at IS NOT NULL)", name=op.f("ck_jobs_due_at")
        ),
        sa.CheckConstraint(
            "lease_token IS NULL OR state = 'running'", name=op.f("ck_jobs_lease_token")
        ),
        sa.CheckConstraint("state <> 'failed' OR fault IS NOT NULL", name=op.f("ck_jobs_fault")),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed')", name=op.f("ck_jobs_state")
        ),
        sa.CheckConstraint(
            "(due_at IS NULL) = (finished_at IS NOT NULL)", name=op.f("ck_jobs_finished_at")
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_jobs_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(
            "ix_jobs_due",
            ["due_at"],
            unique=False,
            sqlite_where=sa.text("due_at IS NOT NULL"),
            postgresql_where=sa.text("due_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_jobs_finished",
            ["finished_at"],
            unique=False,
            sqlite_where=sa.text("finished_at IS NOT NULL"),
            postgresql_where=sa.text("finished_at IS NOT NULL"),
        )
        batch_op.create_index(
            "uq_jobs_unfinished",
            ["kind", "dedup_key"],
            unique=True,
            sqlite_where=sa.text("state IN ('queued', 'running')"),
            postgresql_where=sa.text("state IN ('queued', 'running')"),
        )

    op.create_table(
        "manifest_bodies",
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_manifest_bodies_account_id")
        ),
        sa.PrimaryKeyConstraint("account_id", "digest", name=op.f("pk_manifest_bodies")),
    )
    op.create_table(
        "memberships",
        sa.Column("organization_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "role IN ('owner', 'member', 'billing')", name=op.f("ck_memberships_role")
        ),
        sa.CheckConstraint("status IN ('invited', 'active')", name=op.f("ck_memberships_status")),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_memberships_organization_id")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_memberships_user_id")),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name=op.f("pk_memberships")),
    )
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_memberships_user_id"), ["user_id"], unique=False)

    op.create_table(
        "outbox",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "type", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_outbox_account_id")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_outbox")),
        sa.UniqueConstraint("id", name=op.f("uq_outbox_id")),
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(
            "ix_outbox_delivered",
            ["delivered_at"],
            unique=False,
            sqlite_where=sa.text("delivered_at IS NOT NULL"),
            postgresql_where=sa.text("delivered_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_outbox_pending",
            ["account_id", "sequence"],
            unique=False,
            sqlite_where=sa.text("delivered_at IS NULL"),
            postgresql_where=sa.text("delivered_at IS NULL"),
        )

    op.create_table(
        "policies",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_policies_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("account_id", "name", name=op.f("uq_policies_account_id_name")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_policies_id_account_id")),
    )
    op.create_table(
        "repositories",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("tag_mutability", sa.String(length=16), nullable=False),
        sa.Column(
            "immutable_tag_exclusions", sa.Text(), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("image_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("tag_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "source IN ('user', 'push', 'pull_through_cache')", name=op.f("ck_repositories_source")
        ),
        sa.CheckConstraint(
            "tag_mutability IN ('mutable', 'immutable')",
            name=op.f("ck_repositories_tag_mutability"),
        ),
        sa.CheckConstraint("image_count >= 0", name=op.f("ck_repositories_image_count")),
        sa.CheckConstraint("size_bytes >= 0", name=op.f("ck_repositories_size_bytes")),
        sa.CheckConstraint("tag_count >= 0", name=op.f("ck_repositories_tag_count")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_repositories_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repositories")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_repositories_id_account_id")),
    )
    with op.batch_alter_table("repositories", schema=None) as batch_op:
        batch_op.create_index(
            "uq_repositories_live_name",
            ["account_id", "name"],
            unique=True,
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.create_table(
        "roles",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("trust_policy", sa.Text(), nullable=False),
        sa.Column("max_session_seconds", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "max_session_seconds BETWEEN 3600 AND 43200", name=op.f("ck_roles_max_session_seconds")
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_roles_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_roles")),
        sa.UniqueConstraint("account_id", "name", name=op.f("uq_roles_account_id_name")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_roles_id_account_id")),
    )
    op.create_table(
        "service_accounts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "status IN ('active', 'suspended')", name=op.f("ck_service_accounts_status")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_service_accounts_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service_accounts")),
        sa.UniqueConstraint("account_id", "name", name=op.f("uq_service_accounts_account_id_name")),
        sa.UniqueConstraint("id", "account_id", name=op.f("uq_service_accounts_id_account_id")),
    )
    op.create_table(
        "access_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("service_account_id", sa.String(length=36), nullable=False),
        sa.Column("access_key_id", sa.String(length=20), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("secret_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("status IN ('active', 'inactive')", name=op.f("ck_access_keys_status")),
        sa.ForeignKeyConstraint(
            ["service_account_id", "account_id"],
            ["service_accounts.id", "service_accounts.account_id"],
            name=op.f("fk_access_keys_service_account_id_account_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_keys")),
        sa.UniqueConstraint("access_key_id", name=op.f("uq_access_keys_access_key_id")),
    )
    with op.batch_alter_table("access_keys", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_access_keys_service_account_id"), ["service_account_id"], unique=False
        )

    op.create_table(
        "manifests",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("artifact_type", sa.Text(), nullable=True),
        sa.Column(
            "config_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column(
            "subject_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column("is_index", sa.Boolean(), nullable=False),
        sa.Column("manifest_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("tag_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("annotations", sa.Text(), nullable=False),
        sa.Column("pushed_at", sa.BigInteger(), nullable=False),
        sa.Column("last_pulled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("tag_count >= 0", name=op.f("ck_manifests_tag_count")),
        sa.ForeignKeyConstraint(
            ["account_id", "digest"],
            ["manifest_bodies.account_id", "manifest_bodies.digest"],
            name=op.f("fk_manifests_account_id_digest"),
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"],
            ["repositories.id", "repositories.account_id"],
            name=op.f("fk_manifests_repository_id_account_id"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_manifests")),
        sa.UniqueConstraint("id", "repository_id", name=op.f("uq_manifests_id_repository_id")),
        sa.UniqueConstraint(
            "repository_id", "digest", name=op.f("uq_manifests_repository_id_digest")
        ),
    )
    with op.batch_alter_table("manifests", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_manifests_account_id_digest"), ["account_id", "digest"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_manifests_repository_id_id"), ["repository_id", "id"], unique=False
        )
        batch_op.create_index(
            "ix_manifests_subject",
            ["repository_id", "subject_digest", "id"],
            unique=False,
            sqlite_where=sa.text("subject_digest IS NOT NULL"),
            postgresql_where=sa.text("subject_digest IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_manifests_untagged",
            ["repository_id", "id"],
            unique=False,
            sqlite_where=sa.text("tag_count = 0"),
            postgresql_where=sa.text("tag_count = 0"),
        )

    op.create_table(
        "policy_attachments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("policy_id", sa.String(length=36), nullable=False),
        sa.Column("service_account_id", sa.String(length=36), nullable=True),
        sa.Column("role_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(service_account_id IS NULL) <> (role_id IS NULL)",
            name=op.f("ck_policy_attachments_one_principal"),
        ),
        sa.ForeignKeyConstraint(
            ["policy_id", "account_id"],
            ["policies.id", "policies.account_id"],
            name=op.f("fk_policy_attachments_policy_id_account_id"),
        ),
        sa.ForeignKeyConstraint(
            ["role_id", "account_id"],
            ["roles.id", "roles.account_id"],
            name=op.f("fk_policy_attachments_role_id_account_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["service_account_id", "account_id"],
            ["service_accounts.id", "service_accounts.account_id"],
            name=op.f("fk_policy_attachments_service_account_id_account_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_attachments")),
        sa.UniqueConstraint(
            "policy_id", "role_id", name=op.f("uq_policy_attachments_policy_id_role_id")
        ),
        sa.UniqueConstraint(
            "policy_id",
            "service_account_id",
            name=op.f("uq_policy_attachments_policy_id_service_account_id"),
        ),
    )
    with op.batch_alter_table("policy_attachments", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_policy_attachments_role_id"), ["role_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_policy_attachments_service_account_id"),
            ["service_account_id"],
            unique=False,
        )

    op.create_table(
        "repository_blobs",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("object_id", sa.String(length=36), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("manifest_refs", sa.Integer(), nullable=False),
        sa.Column("touched_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("manifest_refs >= 0", name=op.f("ck_repository_blobs_manifest_refs")),
        sa.ForeignKeyConstraint(
            ["object_id", "account_id", "digest", "size"],
            [
                "blob_objects.id",
                "blob_objects.account_id",
                "blob_objects.digest",
                "blob_objects.size",
            ],
            name=op.f("fk_repository_blobs_object_id_account_id_digest_size"),
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "account_id"],
            ["repositories.id", "repositories.account_id"],
            name=op.f("fk_repository_blobs_repository_id_account_id"),
        ),
        sa.PrimaryKeyConstraint("repository_id", "digest", name=op.f("pk_repository_blobs")),
    )
    with op.batch_alter_table("repository_blobs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_repository_blobs_object_id"), ["object_id"], unique=False
        )
        batch_op.create_index(
            "ix_repository_blobs_unreferenced",
            ["touched_at"],
            unique=False,
            sqlite_where=sa.text("manifest_refs = 0"),
            postgresql_where=sa.text("manifest_refs = 0"),
        )

    op.create_table(
        "resource_policies",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("principal_ids", sa.Text(), nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "visibility IN ('private', 'shared', 'public')",
            name=op.f("ck_resource_policies_visibility"),
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repositories.id"],
            name=op.f("fk_resource_policies_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", name=op.f("pk_resource_policies")),
    )
    op.create_table(
        "role_assignments",
        sa.Column("role_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["role_id"], ["roles.id"], name=op.f("fk_role_assignments_role_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_role_assignments_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("role_id", "user_id", name=op.f("pk_role_assignments")),
    )
    with op.batch_alter_table("role_assignments", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_role_assignments_user_id"), ["user_id"], unique=False)

    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("algorithm", sa.String(length=16), nullable=True),
        sa.Column("received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("digests", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("received_bytes >= 0", name=op.f("ck_uploads_received_bytes")),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repositories.id"], name=op.f("fk_uploads_repository_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_uploads_expires_at"), ["expires_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_uploads_repository_id"), ["repository_id"], unique=False
        )

    op.create_table(
        "manifest_blobs",
        sa.Column("manifest_id", sa.String(length=36), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            name=op.f("fk_manifest_blobs_manifest_id_repository_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["repository_id", "digest"],
            ["repository_blobs.repository_id", "repository_blobs.digest"],
            name=op.f("fk_manifest_blobs_repository_id_digest"),
        ),
        sa.PrimaryKeyConstraint("manifest_id", "digest", name=op.f("pk_manifest_blobs")),
    )
    with op.batch_alter_table("manifest_blobs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_manifest_blobs_repository_id_digest"),
            ["repository_id", "digest"],
            unique=False,
        )

    op.create_table(
        "manifest_children",
        sa.Column("parent_id", sa.String(length=36), nullable=False),
        sa.Column(
            "child_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column("child_id", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(
            ["child_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            name=op.f("fk_manifest_children_child_id_repository_id"),
        ),
        sa.ForeignKeyConstraint(
            ["parent_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            name=op.f("fk_manifest_children_parent_id_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("parent_id", "child_digest", name=op.f("pk_manifest_children")),
    )
    with op.batch_alter_table("manifest_children", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_manifest_children_child_id"), ["child_id"], unique=False
        )

    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=True),
        sa.Column("role_id", sa.String(length=36), nullable=True),
        sa.Column("parent_sid", sa.String(length=36), nullable=True),
        sa.Column("organization_id", sa.String(length=36), nullable=True),
        sa.Column("source_crn", sa.Text(), nullable=True),
        sa.Column("source_access_key_id", sa.String(length=36), nullable=True),
        sa.Column("session_name", sa.Text(), nullable=True),
        sa.Column("access_key_id", sa.String(length=20), nullable=True),
        sa.Column("secret_sealed", sa.LargeBinary(), nullable=True),
        sa.Column("token_sha256", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(kind = 'user' AND user_id IS NOT NULL) OR (kind = 'role' AND role_id IS NOT NULL)",
            name=op.f("ck_sessions_kind"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_sessions_organization_id"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["parent_sid"], ["sessions.id"], name=op.f("fk_sessions_parent_sid"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["role_id"], ["roles.id"], name=op.f("fk_sessions_role_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["source_access_key_id"],
            ["access_keys.id"],
            name=op.f("fk_sessions_source_access_key_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_sessions_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("access_key_id", name=op.f("uq_sessions_access_key_id")),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_expires_at"), ["expires_at"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_sessions_organization_id"), ["organization_id"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_sessions_parent_sid"), ["parent_sid"], unique=False)
        batch_op.create_index(batch_op.f("ix_sessions_role_id"), ["role_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_sessions_source_access_key_id"), ["source_access_key_id"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_sessions_user_id"), ["user_id"], unique=False)

    op.create_table(
        "tags",
        sa.Column("repository_id", sa.String(length=36), nullable=False),
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("manifest_id", sa.String(length=36), nullable=False),
        sa.Column(
            "pushed_digest",
            sa.String(length=135).with_variant(sa.String(length=135, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["manifest_id", "repository_id"],
            ["manifests.id", "manifests.repository_id"],
            name=op.f("fk_tags_manifest_id_repository_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("repository_id", "name", name=op.f("pk_tags")),
    )
    with op.batch_alter_table("tags", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tags_manifest_id"), ["manifest_id"], unique=False)

    op.create_table(
        "login_credentials",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("password_sha256", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=36), nullable=False),
        sa.Column("service_account_id", sa.String(length=36), nullable=True),
        sa.Column("access_key_id", sa.String(length=36), nullable=True),
        sa.Column("sid", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["access_key_id"],
            ["access_keys.id"],
            name=op.f("fk_login_credentials_access_key_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_login_credentials_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["service_account_id"],
            ["service_accounts.id"],
            name=op.f("fk_login_credentials_service_account_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["sid"], ["sessions.id"], name=op.f("fk_login_credentials_sid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_login_credentials")),
        sa.UniqueConstraint("password_sha256", name=op.f("uq_login_credentials_password_sha256")),
    )
    with op.batch_alter_table("login_credentials", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_login_credentials_expires_at"), ["expires_at"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_login_credentials_service_account_id"),
            ["service_account_id"],
            unique=False,
        )
        batch_op.create_index(batch_op.f("ix_login_credentials_sid"), ["sid"], unique=False)

    op.create_table(
        "refresh_tokens",
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("sid", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("spent_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["sid"], ["sessions.id"], name=op.f("fk_refresh_tokens_sid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_refresh_tokens")),
    )
    with op.batch_alter_table("refresh_tokens", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_refresh_tokens_expires_at"), ["expires_at"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_refresh_tokens_sid"), ["sid"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("refresh_tokens", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_refresh_tokens_sid"))
        batch_op.drop_index(batch_op.f("ix_refresh_tokens_expires_at"))

    op.drop_table("refresh_tokens")
    with op.batch_alter_table("login_credentials", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_login_credentials_sid"))
        batch_op.drop_index(batch_op.f("ix_login_credentials_service_account_id"))
        batch_op.drop_index(batch_op.f("ix_login_credentials_expires_at"))

    op.drop_table("login_credentials")
    with op.batch_alter_table("tags", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tags_manifest_id"))

    op.drop_table("tags")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_sessions_user_id"))
        batch_op.drop_index(batch_op.f("ix_sessions_source_access_key_id"))
        batch_op.drop_index(batch_op.f("ix_sessions_role_id"))
        batch_op.drop_index(batch_op.f("ix_sessions_parent_sid"))
        batch_op.drop_index(batch_op.f("ix_sessions_organization_id"))
        batch_op.drop_index(batch_op.f("ix_sessions_expires_at"))

    op.drop_table("sessions")
    with op.batch_alter_table("manifest_children", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_manifest_children_child_id"))

    op.drop_table("manifest_children")
    with op.batch_alter_table("manifest_blobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_manifest_blobs_repository_id_digest"))

    op.drop_table("manifest_blobs")
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_uploads_repository_id"))
        batch_op.drop_index(batch_op.f("ix_uploads_expires_at"))

    op.drop_table("uploads")
    with op.batch_alter_table("role_assignments", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_role_assignments_user_id"))

    op.drop_table("role_assignments")
    op.drop_table("resource_policies")
    with op.batch_alter_table("repository_blobs", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_repository_blobs_unreferenced",
            sqlite_where=sa.text("manifest_refs = 0"),
            postgresql_where=sa.text("manifest_refs = 0"),
        )
        batch_op.drop_index(batch_op.f("ix_repository_blobs_object_id"))

    op.drop_table("repository_blobs")
    with op.batch_alter_table("policy_attachments", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_policy_attachments_service_account_id"))
        batch_op.drop_index(batch_op.f("ix_policy_attachments_role_id"))

    op.drop_table("policy_attachments")
    with op.batch_alter_table("manifests", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_manifests_untagged",
            sqlite_where=sa.text("tag_count = 0"),
            postgresql_where=sa.text("tag_count = 0"),
        )
        batch_op.drop_index(
            "ix_manifests_subject",
            sqlite_where=sa.text("subject_digest IS NOT NULL"),
            postgresql_where=sa.text("subject_digest IS NOT NULL"),
        )
        batch_op.drop_index(batch_op.f("ix_manifests_repository_id_id"))
        batch_op.drop_index(batch_op.f("ix_manifests_account_id_digest"))

    op.drop_table("manifests")
    with op.batch_alter_table("access_keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_access_keys_service_account_id"))

    op.drop_table("access_keys")
    op.drop_table("service_accounts")
    op.drop_table("roles")
    with op.batch_alter_table("repositories", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_repositories_live_name",
            sqlite_where=sa.text("deleted_at IS NULL"),
            postgresql_where=sa.text("deleted_at IS NULL"),
        )

    op.drop_table("repositories")
    op.drop_table("policies")
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_outbox_pending",
            sqlite_where=sa.text("delivered_at IS NULL"),
            postgresql_where=sa.text("delivered_at IS NULL"),
        )
        batch_op.drop_index(
            "ix_outbox_delivered",
            sqlite_where=sa.text("delivered_at IS NOT NULL"),
            postgresql_where=sa.text("delivered_at IS NOT NULL"),
        )

    op.drop_table("outbox")
    with op.batch_alter_table("memberships", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_memberships_user_id"))

    op.drop_table("memberships")
    op.drop_table("manifest_bodies")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_jobs_unfinished",
            sqlite_where=sa.text("state IN ('queued', 'running')"),
            postgresql_where=sa.text("state IN ('queued', 'running')"),
        )
        batch_op.drop_index(
            "ix_jobs_finished",
            sqlite_where=sa.text("finished_at IS NOT NULL"),
            postgresql_where=sa.text("finished_at IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_jobs_due",
            sqlite_where=sa.text("due_at IS NOT NULL"),
            postgresql_where=sa.text("due_at IS NOT NULL"),
        )

    op.drop_table("jobs")
    with op.batch_alter_table("digest_aliases", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_digest_aliases_account_id_digest"))

    op.drop_table("digest_aliases")
    with op.batch_alter_table("blob_objects", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_blob_objects_current_digest",
            sqlite_where=sa.text("is_current"),
            postgresql_where=sa.text("is_current"),
        )
        batch_op.drop_index(batch_op.f("ix_blob_objects_state_condemned_at"))

    op.drop_table("blob_objects")
    with op.batch_alter_table("auth_codes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_auth_codes_expires_at"))

    op.drop_table("auth_codes")
    op.drop_table("users")
    with op.batch_alter_table("accounts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_accounts_organization_id"))

    op.drop_table("accounts")
    with op.batch_alter_table("signing_keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_signing_keys_audience_not_after"))

    op.drop_table("signing_keys")
    with op.batch_alter_table("revoked_tokens", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_revoked_tokens_expires_at"))

    op.drop_table("revoked_tokens")
    with op.batch_alter_table("rate_windows", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rate_windows_window_ends_at"))

    op.drop_table("rate_windows")
    op.drop_table("organizations")
    with op.batch_alter_table("idempotency_records", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_idempotency_records_created_at"))

    op.drop_table("idempotency_records")
