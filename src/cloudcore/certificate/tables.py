"""The tables beside that of certificates, and those of the authority of the install."""

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
    UniqueConstraint,
)

from cloudcore.certificate.rows import ROWS
from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata

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
    ROWS.table,
    certificate_settings,
    certificate_issues,
    certificate_texts,
    certificate_users,
    certificate_authorities,
    certificate_revocations,
)
