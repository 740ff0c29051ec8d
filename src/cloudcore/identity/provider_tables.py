"""The tables of identity providers: OpenID Connect, for the people of an organization."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

identity_providers = Table(
    "identity_providers",
    metadata,
    Column("id", Id, primary_key=True),
    Column("organization_id", ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("issuer", Text, nullable=False),
    Column("client_id", Text, nullable=False),
    Column("client_secret_sealed", LargeBinary),  # null: a client without a secret
    Column("scopes", Text, nullable=False),  # separated by spaces
    Column("groups_claim", Text, nullable=False),
    Column("email_verified_claim", Text, nullable=False),
    Column("email_domains", Text, nullable=False),  # in lower case, separated by spaces
    Column("creates_people", Boolean, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    # After these hours a person signs in anew, so that the groups are asked for again.
    Column("session_hours", BigInteger, nullable=False, server_default=text("168")),
    UniqueConstraint("organization_id", "name"),
    CheckConstraint("status IN ('active', 'inactive')", name="status"),
    Index(None, "name"),
)

provider_subjects = Table(
    "provider_subjects",
    metadata,
    Column(
        "provider_id", ForeignKey("identity_providers.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("subject", ByteOrdered, primary_key=True),  # `sub` of its ID tokens
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("provider_id", "user_id"),
    Index(None, "user_id"),
)

group_assignments = Table(
    "group_assignments",
    metadata,
    Column("id", Id, primary_key=True),
    Column("role_id", ForeignKey("roles.id", ondelete="CASCADE"), nullable=False),
    Column("provider_id", ForeignKey("identity_providers.id", ondelete="CASCADE"), nullable=False),
    Column("group_name", ByteOrdered, nullable=False),
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("role_id", "provider_id", "group_name"),
    Index(None, "provider_id", "group_name"),
)

spent_states = Table(
    "spent_states",
    metadata,
    Column("state_sha256", String(64), primary_key=True),  # of an answer that has been used
    Column("expires_at", Moment, nullable=False, index=True),
)
