"""The tables of identity and of identity providers, with their database constraints."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, foreign_key, one_of
from cloudcore.db.tables import columns, indexes, refers, table

organizations = table(
    "organizations",
    columns(ByteOrdered, "name"),
    columns(Boolean, "is_personal"),
    columns(Moment, "created_at, updated_at"),
)

accounts = table(
    "accounts",
    refers("organization_id NULL", "organizations"),
    columns(ByteOrdered, "handle"),
    columns(String(16), "status"),
    columns(Boolean, "auto_create_repositories"),
    columns(BigInteger, "iam_revision DEFAULT 0"),
    columns(Moment, "created_at"),
    UniqueConstraint("handle"),
    one_of("status", "active", "suspended"),
    indexes("organization_id"),
)

users = table(
    "users",
    refers("organization_id", "organizations"),  # the personal one
    # The organization that added the person; null once it was deleted.
    refers("home_organization_id NULL", "organizations", "SET NULL"),
    columns(ByteOrdered, "email"),  # in lower case
    columns(String(16), "status"),
    columns(Boolean, "must_change_password"),
    columns(Moment, "created_at, updated_at"),
    columns(Text, "password"),  # scrypt string
    UniqueConstraint("home_organization_id", "email"),
    UniqueConstraint("id", "email"),
    one_of("status", "active", "suspended"),
    indexes("email"),
)

memberships = table(
    "memberships",
    refers("organization_id KEY", "organizations", "CASCADE"),
    columns(Id, "user_id KEY"),
    columns(ByteOrdered, "email"),  # the person's; unique in the organization
    columns(String(16), "role"),
    columns(Moment, "created_at"),
    foreign_key("users", ondelete="CASCADE", user_id="id", email="email"),
    UniqueConstraint("organization_id", "email"),
    one_of("role", "owner", "member", "billing"),
    indexes("user_id"),
)

invitations = table(
    "invitations",
    refers("organization_id", "organizations", "CASCADE"),
    columns(ByteOrdered, "email"),  # in lower case; need not belong to a person
    columns(String(16), "role"),
    columns(String(64), "code_sha256"),  # empty: no code matches
    columns(Moment, "created_at, expires_at"),
    UniqueConstraint("organization_id", "email"),
    one_of("role", "owner", "member", "billing"),
    indexes("expires_at"),
)

service_accounts = table(
    "service_accounts",
    refers("account_id", "accounts"),
    columns(ByteOrdered, "name"),
    columns(String(16), "status"),
    columns(Moment, "created_at, updated_at"),
    columns(Text, "description"),
    UniqueConstraint("account_id", "name"),
    UniqueConstraint("id", "account_id"),
    one_of("status", "active", "suspended"),
)

access_keys = table(
    "access_keys",
    columns(Id, "account_id, service_account_id"),
    columns(String(16), "status"),
    columns(String(20), "access_key_id"),
    columns(String(64), "secret_sha256"),
    columns(Moment, "last_used_at NULL, created_at"),
    columns(Moment, "expires_at NULL"),  # null: never
    columns(Text, "description DEFAULT ''"),
    columns(LargeBinary, "secret_sealed"),
    foreign_key(
        "service_accounts", ondelete="CASCADE", service_account_id="id", account_id="account_id"
    ),
    UniqueConstraint("access_key_id"),
    one_of("status", "active", "inactive"),
    indexes("service_account_id"),
)

roles = table(
    "roles",
    refers("account_id", "accounts"),
    columns(ByteOrdered, "name"),
    columns(BigInteger, "max_session_seconds"),
    columns(Moment, "created_at, updated_at, last_used_at NULL"),
    columns(Text, "description, trust_policy"),
    # The ids that names in the trust policy had when it was written; see `rights.documents`.
    columns(Text, "trust_ids DEFAULT '{}'"),
    UniqueConstraint("account_id", "name"),
    UniqueConstraint("id", "account_id"),
    CheckConstraint("max_session_seconds BETWEEN 3600 AND 43200", name="max_session_seconds"),
)

role_assignments = table(
    "role_assignments",
    refers("role_id KEY", "roles", "CASCADE"),
    refers("user_id KEY", "users", "CASCADE"),
    # The provider one of whose groups has the role; null if the role was assigned by hand.
    refers("identity_provider_id NULL", "identity_providers", "CASCADE"),
    columns(Moment, "created_at"),
    indexes("identity_provider_id", "user_id"),
)

policies = table(
    "policies",
    refers("account_id", "accounts"),
    columns(ByteOrdered, "name"),
    columns(BigInteger, "revision"),
    columns(Moment, "created_at, updated_at"),
    columns(Text, "description, document"),
    # The ids that names in the document had when it was written; see `rights.documents`.
    columns(Text, "account_ids DEFAULT '{}'"),
    UniqueConstraint("account_id", "name"),
    UniqueConstraint("id", "account_id"),
)

policy_attachments = table(
    "policy_attachments",
    columns(Id, "account_id, policy_id, service_account_id NULL, role_id NULL"),
    columns(Moment, "created_at"),
    # An attached policy cannot be deleted.
    foreign_key("policies", policy_id="id", account_id="account_id"),
    foreign_key(
        "service_accounts", ondelete="CASCADE", service_account_id="id", account_id="account_id"
    ),
    foreign_key("roles", ondelete="CASCADE", role_id="id", account_id="account_id"),
    UniqueConstraint("policy_id", "service_account_id"),
    UniqueConstraint("policy_id", "role_id"),
    CheckConstraint("(service_account_id IS NULL) <> (role_id IS NULL)", name="one_principal"),
    indexes("role_id", "service_account_id"),
)

sessions = table(
    "sessions",
    # The id is the `sid` of the session's tokens.
    refers("user_id NULL", "users", "CASCADE"),
    refers("role_id NULL", "roles", "CASCADE"),
    refers("parent_sid NULL", "sessions", "CASCADE"),
    # The organization a person switched to; without one, the personal one.
    refers("organization_id NULL", "organizations", "SET NULL"),
    # The access key with which a program assumed the role; the session ends with the key.
    refers("source_access_key_id NULL", "access_keys", "CASCADE"),
    columns(String(16), "kind"),
    columns(String(20), "access_key_id NULL"),  # of a role session's signing credential
    columns(String(64), "token_sha256 NULL"),  # of its session token
    columns(Moment, "created_at, expires_at, revoked_at NULL"),
    # When a sign-in by an identity provider ends for good; null: each refresh renews the session.
    columns(Moment, "ends_at NULL"),
    columns(Text, "source_crn NULL, session_name NULL"),  # who assumed the role
    # JSON: the person or service account that began the chain of roles, and the session's name.
    columns(Text, "first_source NULL"),
    columns(LargeBinary, "secret_sealed NULL"),
    UniqueConstraint("access_key_id"),
    CheckConstraint(
        "(kind = 'user' AND user_id IS NOT NULL) OR (kind = 'role' AND role_id IS NOT NULL)",
        name="kind",
    ),
    indexes("expires_at", "organization_id", "parent_sid", "source_access_key_id", "user_id"),
    indexes("role_id, revoked_at, expires_at"),  # to count the open ones of a role
)

refresh_tokens = table(
    "refresh_tokens",
    columns(String(64), "token_sha256 KEY"),
    columns(String(64), "client_id NULL"),  # the client it is bound to
    refers("sid", "sessions", "CASCADE"),
    columns(Moment, "created_at, expires_at, spent_at NULL"),
    indexes("expires_at", "sid"),
)

auth_codes = table(
    "auth_codes",
    columns(String(64), "code_sha256 KEY, client_id"),
    refers("user_id", "users", "CASCADE"),
    columns(Id, "sid NULL"),  # the session it started, revoked when the code is used again
    columns(Id, "identity_provider_id NULL"),  # where the person signed in; null: by password
    columns(String(128), "code_challenge"),
    columns(Moment, "created_at, expires_at, spent_at NULL"),
    columns(Text, "redirect_uri"),
    indexes("expires_at"),
)

login_credentials = table(
    "login_credentials",
    refers("account_id", "accounts"),
    refers("service_account_id NULL", "service_accounts", "CASCADE"),
    refers("access_key_id NULL", "access_keys", "CASCADE"),
    refers("sid NULL", "sessions", "CASCADE"),
    columns(String(64), "password_sha256"),
    columns(Moment, "created_at, expires_at, revoked_at NULL"),
    UniqueConstraint("password_sha256"),
    indexes("expires_at", "service_account_id", "sid"),
    indexes("account_id, revoked_at, expires_at"),  # to count the open ones
)

container_passwords = table(
    "container_passwords",
    columns(Id, "user_id, role_id"),
    columns(ByteOrdered, "name"),
    columns(String(64), "password_sha256"),
    columns(Moment, "created_at, expires_at, last_used_at NULL"),
    # It ends with the assignment of the role to the person, and so with either of them.
    foreign_key("role_assignments", ondelete="CASCADE", role_id="role_id", user_id="user_id"),
    UniqueConstraint("user_id", "name"),
    indexes("expires_at", "role_id, user_id"),
)

revoked_tokens = table(
    "revoked_tokens", columns(Id, "jti KEY"), columns(Moment, "expires_at"), indexes("expires_at")
)

signing_keys = table(
    "signing_keys",
    columns(String(64), "kid KEY"),
    columns(String(16), "audience, algorithm"),
    columns(Moment, "created_at"),
    columns(Moment, "not_after"),  # end of signing; later it only verifies
    columns(LargeBinary, "material_sealed"),
    indexes("audience, not_after"),
)

identity_providers = table(
    "identity_providers",
    refers("organization_id", "organizations", "CASCADE"),
    columns(ByteOrdered, "name"),
    columns(String(16), "status"),
    columns(Boolean, "creates_people"),
    # After these hours a person signs in anew, so that the groups are asked for again.
    columns(BigInteger, "session_hours DEFAULT 168"),
    columns(Moment, "created_at, updated_at"),
    columns(Text, "issuer, client_id, groups_claim, email_verified_claim"),
    columns(Text, "scopes, email_domains"),  # separated by spaces; domains in lower case
    columns(LargeBinary, "client_secret_sealed NULL"),  # null: a client without a secret
    UniqueConstraint("organization_id", "name"),
    one_of("status", "active", "inactive"),
    indexes("name"),
)

provider_subjects = table(
    "provider_subjects",
    refers("provider_id KEY", "identity_providers", "CASCADE"),
    columns(ByteOrdered, "subject KEY"),  # `sub` of its ID tokens
    refers("user_id", "users", "CASCADE"),
    columns(Moment, "created_at"),
    UniqueConstraint("provider_id", "user_id"),
    indexes("user_id"),
)

group_assignments = table(
    "group_assignments",
    refers("role_id", "roles", "CASCADE"),
    refers("provider_id", "identity_providers", "CASCADE"),
    columns(ByteOrdered, "group_name"),
    columns(Moment, "created_at"),
    UniqueConstraint("role_id", "provider_id", "group_name"),
    indexes("provider_id, group_name"),
)

spent_states = table(
    "spent_states",
    columns(String(64), "state_sha256 KEY"),  # of an answer that has been used
    columns(Moment, "expires_at"),
    indexes("expires_at"),
)
