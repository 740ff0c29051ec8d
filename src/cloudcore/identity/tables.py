"""The tables of identity and of identity providers, with constraints that the database enforces."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

organizations = Table(
    "organizations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", ByteOrdered, nullable=False),
    Column("is_personal", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
)

accounts = Table(
    "accounts",
    metadata,
    Column("id", Id, primary_key=True),
    Column("organization_id", ForeignKey("organizations.id")),
    Column("handle", ByteOrdered, nullable=False, unique=True),
    Column("status", String(16), nullable=False),
    Column("auto_create_repositories", Boolean, nullable=False),
    Column("iam_revision", BigInteger, nullable=False, server_default=text("0")),
    Column("created_at", Moment, nullable=False),
    CheckConstraint("status IN ('active', 'suspended')", name="status"),
    Index(None, "organization_id"),
)

users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("email", ByteOrdered, nullable=False),  # in lower case
    Column("password", Text, nullable=False),  # scrypt string
    Column("must_change_password", Boolean, nullable=False),
    Column("organization_id", ForeignKey("organizations.id"), nullable=False),  # the personal one
    Column("status", String(16), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    # The organization that added the person; null if added on the host.
    Column("home_organization_id", ForeignKey("organizations.id", ondelete="SET NULL")),
    UniqueConstraint("home_organization_id", "email"),
    UniqueConstraint("id", "email"),
    CheckConstraint("status IN ('active', 'suspended')", name="status"),
    Index(None, "email"),
)

memberships = Table(
    "memberships",
    metadata,
    Column("organization_id", ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("email", ByteOrdered, nullable=False),  # the person's; unique in the organization
    Column("role", String(16), nullable=False),
    Column("created_at", Moment, nullable=False),
    ForeignKeyConstraint(["user_id", "email"], ["users.id", "users.email"], ondelete="CASCADE"),
    UniqueConstraint("organization_id", "email"),
    CheckConstraint("role IN ('owner', 'member', 'billing')", name="role"),
    Index(None, "user_id"),
)

invitations = Table(
    "invitations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("organization_id", ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    Column("email", ByteOrdered, nullable=False),  # in lower case; need not belong to a person
    Column("role", String(16), nullable=False),
    Column("code_sha256", String(64), nullable=False),  # empty: no code matches
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    UniqueConstraint("organization_id", "email"),
    CheckConstraint("role IN ('owner', 'member', 'billing')", name="role"),
)

service_accounts = Table(
    "service_accounts",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("description", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    UniqueConstraint("account_id", "name"),
    UniqueConstraint("id", "account_id"),
    CheckConstraint("status IN ('active', 'suspended')", name="status"),
)

access_keys = Table(
    "access_keys",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("service_account_id", Id, nullable=False),
    Column("access_key_id", String(20), nullable=False, unique=True),
    Column("secret_sha256", String(64), nullable=False),
    Column("secret_sealed", LargeBinary, nullable=False),
    Column("status", String(16), nullable=False),
    Column("last_used_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("description", Text, nullable=False, server_default=text("''")),
    Column("expires_at", Moment),  # null: never
    ForeignKeyConstraint(
        ["service_account_id", "account_id"],
        ["service_accounts.id", "service_accounts.account_id"],
        ondelete="CASCADE",
    ),
    CheckConstraint("status IN ('active', 'inactive')", name="status"),
    Index(None, "service_account_id"),
)

roles = Table(
    "roles",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("description", Text, nullable=False),
    Column("trust_policy", Text, nullable=False),
    Column("max_session_seconds", BigInteger, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    UniqueConstraint("account_id", "name"),
    # The ids that names in the trust policy had when it was written; see `rights.documents`.
    Column("trust_ids", Text, nullable=False, server_default=text("'{}'")),
    Column("last_used_at", Moment),
    UniqueConstraint("id", "account_id"),
    CheckConstraint("max_session_seconds BETWEEN 3600 AND 43200", name="max_session_seconds"),
)

role_assignments = Table(
    "role_assignments",
    metadata,
    Column("role_id", ForeignKey("roles.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Column("created_at", Moment, nullable=False),
    # The provider one of whose groups has the role; null if the role was assigned by hand.
    Column("identity_provider_id", ForeignKey("identity_providers.id", ondelete="CASCADE")),
    Index(None, "user_id"),
    Index(None, "identity_provider_id"),
)

policies = Table(
    "policies",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("description", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    # The ids that names in the document had when it was written; see `rights.documents`.
    Column("account_ids", Text, nullable=False, server_default=text("'{}'")),
    UniqueConstraint("account_id", "name"),
    UniqueConstraint("id", "account_id"),
)

policy_attachments = Table(
    "policy_attachments",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("policy_id", Id, nullable=False),
    Column("service_account_id", Id),
    Column("role_id", Id),
    Column("created_at", Moment, nullable=False),
    ForeignKeyConstraint(
        ["policy_id", "account_id"], ["policies.id", "policies.account_id"]
    ),  # an attached policy cannot be deleted
    ForeignKeyConstraint(
        ["service_account_id", "account_id"],
        ["service_accounts.id", "service_accounts.account_id"],
        ondelete="CASCADE",
    ),
    ForeignKeyConstraint(
        ["role_id", "account_id"], ["roles.id", "roles.account_id"], ondelete="CASCADE"
    ),
    UniqueConstraint("policy_id", "service_account_id"),
    UniqueConstraint("policy_id", "role_id"),
    CheckConstraint("(service_account_id IS NULL) <> (role_id IS NULL)", name="one_principal"),
    Index(None, "service_account_id"),
    Index(None, "role_id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Id, primary_key=True),  # the sid of its tokens
    Column("kind", String(16), nullable=False),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE")),
    Column("role_id", ForeignKey("roles.id", ondelete="CASCADE")),
    Column("parent_sid", ForeignKey("sessions.id", ondelete="CASCADE")),
    # The organization a person switched to; without one, the personal one.
    Column("organization_id", ForeignKey("organizations.id", ondelete="SET NULL")),
    Column("source_crn", Text),  # who assumed the role
    # The access key it was assumed with, if by a program; the session ends with it.
    Column("source_access_key_id", ForeignKey("access_keys.id", ondelete="CASCADE")),
    Column("session_name", Text),
    # JSON: the person or service account that began the chain of roles, and the session's name.
    Column("first_source", Text),
    Column("access_key_id", String(20), unique=True),  # of a role session's signing credential
    Column("secret_sealed", LargeBinary),
    Column("token_sha256", String(64)),  # of its session token
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("revoked_at", Moment),
    # When a sign-in by an identity provider ends for good; null: each refresh renews the session.
    Column("ends_at", Moment),
    CheckConstraint(
        "(kind = 'user' AND user_id IS NOT NULL) OR (kind = 'role' AND role_id IS NOT NULL)",
        name="kind",
    ),
    Index(None, "user_id"),
    Index(None, "role_id", "revoked_at", "expires_at"),  # to count the open ones of a role
    Index(None, "parent_sid"),
    Index(None, "source_access_key_id"),
    Index(None, "organization_id"),
)

refresh_tokens = Table(
    "refresh_tokens",
    metadata,
    Column("token_sha256", String(64), primary_key=True),
    Column("sid", ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("client_id", String(64)),  # the client it is bound to
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("spent_at", Moment),
)

auth_codes = Table(
    "auth_codes",
    metadata,
    Column("code_sha256", String(64), primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("client_id", String(64), nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("code_challenge", String(128), nullable=False),
    Column("sid", Id),  # the session it started, revoked when the code is used again
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("spent_at", Moment),
    Column("identity_provider_id", Id),  # where the person signed in; null: by password
)

login_credentials = Table(
    "login_credentials",
    metadata,
    Column("id", Id, primary_key=True),
    Column("password_sha256", String(64), nullable=False, unique=True),
    Column("account_id", ForeignKey("accounts.id"), nullable=False),
    Column("service_account_id", ForeignKey("service_accounts.id", ondelete="CASCADE")),
    Column("access_key_id", ForeignKey("access_keys.id", ondelete="CASCADE")),
    Column("sid", ForeignKey("sessions.id", ondelete="CASCADE")),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("revoked_at", Moment),
    Index(None, "service_account_id"),
    Index(None, "sid"),
    Index(None, "account_id", "revoked_at", "expires_at"),  # to count the open ones
)

container_passwords = Table(
    "container_passwords",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Id, nullable=False),
    Column("role_id", Id, nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("password_sha256", String(64), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("last_used_at", Moment),
    # It ends with the assignment of the role to the person, and so with either of them.
    ForeignKeyConstraint(
        ["role_id", "user_id"],
        ["role_assignments.role_id", "role_assignments.user_id"],
        ondelete="CASCADE",
    ),
    UniqueConstraint("user_id", "name"),
    Index(None, "role_id", "user_id"),
)

revoked_tokens = Table(
    "revoked_tokens",
    metadata,
    Column("jti", Id, primary_key=True),
    Column("expires_at", Moment, nullable=False, index=True),
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("kid", String(64), primary_key=True),
    Column("audience", String(16), nullable=False),
    Column("algorithm", String(16), nullable=False),
    Column("material_sealed", LargeBinary, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("not_after", Moment, nullable=False),  # end of signing; later it only verifies
    Index(None, "audience", "not_after"),
)


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
