"""The tables of certificates, and of the authority of the install."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

IS_RENEWED: Final = text("renew_at IS NOT NULL")
IS_ACTIVE: Final = text("status = 'active'")

certificates = Table(
    "certificates",
    metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("region", ByteOrdered, nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("domains", Text, nullable=False),  # a JSON array
    Column("status", String(20), nullable=False),
    Column("source", String(8), nullable=False),
    Column("issuer", String(16), nullable=False),  # which authority; empty if it was uploaded
    Column("key_algorithm", String(10), nullable=False),
    Column("challenges", Text, nullable=False),  # a JSON array
    Column("certificate_pem", Text),  # null until it is issued
    Column("chain_pem", Text),
    Column("fingerprint", String(64)),
    Column("private_key", LargeBinary),  # sealed; null if the owner made the key
    Column("csr", LargeBinary),  # DER; null if the key is made here, or was uploaded
    Column("private_key_exported_at", Moment),  # when a copy of this key was given
    Column("kms_key_id", Id),  # under which; null: the root key
    Column("warned_days", Integer),  # before its end, when that was told the last time
    Column("issued_at", Moment),
    Column("expires_at", Moment),
    Column("renew_at", Moment),  # null if it is not renewed
    Column("revocation_asked_at", Moment),
    Column("is_recheck_asked", Boolean, nullable=False),
    Column("tags", Text, nullable=False),  # a JSON object
    Column("faults", Text, nullable=False),  # a JSON array; those of a challenge name its domain
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    CheckConstraint(
        "status IN ('pending_validation', 'issuing', 'active', 'expired', 'revoked', 'failed')",
        name="status",
    ),
    CheckConstraint("source IN ('acme', 'uploaded')", name="source"),
    CheckConstraint("(source = 'uploaded') = (issuer = '')", name="issuer"),
    CheckConstraint(
        "(certificate_pem IS NULL) = (status IN ('pending_validation', 'issuing', 'failed'))",
        name="certificate_pem",
    ),
    CheckConstraint(
        "(private_key IS NOT NULL) = (certificate_pem IS NOT NULL AND csr IS NULL)",
        name="private_key",
    ),
    CheckConstraint("csr IS NULL OR source = 'acme'", name="csr"),
    CheckConstraint(
        "private_key_exported_at IS NULL OR (private_key IS NOT NULL AND source = 'acme')",
        name="private_key_exported_at",
    ),
    CheckConstraint("(certificate_pem IS NULL) = (expires_at IS NULL)", name="expires_at"),
    CheckConstraint(
        "renew_at IS NULL OR (source = 'acme' AND status IN ('active', 'expired'))",
        name="renew_at",
    ),
    UniqueConstraint("account_id", "region", "name"),
    UniqueConstraint("id", "account_id"),
    Index("ix_certificates_account_id_id", "account_id", "id"),
    Index(
        "ix_certificates_renew_at",
        "renew_at",
        sqlite_where=IS_RENEWED,
        postgresql_where=IS_RENEWED,
    ),
    Index(
        "ix_certificates_expires_at",
        "expires_at",
        sqlite_where=IS_ACTIVE,
        postgresql_where=IS_ACTIVE,
    ),
)

# Without a row of an account, the defaults apply.
certificate_settings = Table(
    "certificate_settings",
    metadata,
    Column("account_id", Id, ForeignKey("accounts.id"), primary_key=True),
    Column("private_key_export", Boolean, nullable=False),
    Column("updated_at", Moment, nullable=False),
)

# What an authority issued for a certificate: revoking it revokes all that have not expired.
certificate_issues = Table(
    "certificate_issues",
    metadata,
    Column("fingerprint", String(64), primary_key=True),
    Column("certificate_id", Id, ForeignKey("certificates.id", ondelete="CASCADE"), nullable=False),
    Column("account_id", Id, ForeignKey("accounts.id"), nullable=False),
    Column("issuer", String(16), nullable=False),
    Column("certificate", LargeBinary, nullable=False),  # DER
    Column("expires_at", Moment, nullable=False),
    Index("ix_certificate_issues_certificate_id", "certificate_id"),
)

# TXT values that stand in DNS while an authority checks domains.
certificate_texts = Table(
    "certificate_texts",
    metadata,
    Column("name", ByteOrdered, primary_key=True),  # in lower case, ends in a dot
    Column("value", ByteOrdered, primary_key=True),
    Column("certificate_id", Id, ForeignKey("certificates.id", ondelete="CASCADE"), nullable=False),
    Index("ix_certificate_texts_certificate_id", "certificate_id"),
)

# What serves a certificate; it cannot be deleted meanwhile.
certificate_users = Table(
    "certificate_users",
    metadata,
    Column("certificate_id", Id, ForeignKey("certificates.id"), primary_key=True),
    Column("used_by", ByteOrdered, primary_key=True),  # a CRN, or a word for a part of the platform
)

# The authority of the install: a root, and issuing ones below it.
certificate_authorities = Table(
    "certificate_authorities",
    metadata,
    Column("id", Id, primary_key=True),
    Column("role", String(8), nullable=False),
    Column("generation", Integer, nullable=False),  # 1, 2 …: the newest signs
    Column("certificate", LargeBinary, nullable=False),  # DER
    Column("private_key", LargeBinary, nullable=False),  # sealed
    Column("revocation_list", LargeBinary, nullable=False),  # DER
    Column("list_number", Integer, nullable=False),
    Column("listed_at", Moment, nullable=False),  # when the list was made
    Column("expires_at", Moment, nullable=False),
    CheckConstraint("role IN ('root', 'issuing')", name="role"),
    UniqueConstraint("role", "generation"),
)

# Certificates that the authority revoked; those that expired leave the lists.
certificate_revocations = Table(
    "certificate_revocations",
    metadata,
    Column("serial", ByteOrdered, primary_key=True),  # in hex
    Column("authority_id", Id, ForeignKey("certificate_authorities.id"), primary_key=True),
    Column("revoked_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Index("ix_certificate_revocations_authority_id", "authority_id", "expires_at"),
)

TABLES: Final = (
    certificates,
    certificate_settings,
    certificate_issues,
    certificate_texts,
    certificate_users,
    certificate_authorities,
    certificate_revocations,
)
