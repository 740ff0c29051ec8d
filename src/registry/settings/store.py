"""Settings of where blobs and accounts' buckets are stored: on disk, or in an S3 bucket."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from registry.settings.groups import choice_problem

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9._=-]+/)*[A-Za-z0-9._=-]*")
_REGION: Final = re.compile(r"[a-z0-9-]{0,63}")
_ENCRYPTION: Final = re.compile(r"|AES256|aws:kms(?::[A-Za-z0-9:/_.-]{1,512})?")
_LONGEST_PREFIX: Final = 256
MOST_S3_BLOB_BYTES: Final = 265 * 1024**3
"""Maximum bytes of a blob in a bucket: S3 takes 10,000 parts, and a process holds a whole part in
memory (`registry.blobstore.s3.parts.part_bytes`)."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where bytes are stored: in an S3 bucket if one is set, else in the folder `data`."""

    store_s3_bucket: str = ""
    """S3 bucket that stores the bytes, which needs the extra ``entrepot[s3]``; empty: they are on
    the disk."""
    store_s3_endpoint: str = ""
    """URL of the S3 service; empty: that of AWS in the region."""
    store_s3_region: str = ""
    """Region that requests are signed for; empty: the one in boto3's configuration."""
    store_s3_prefix: str = ""
    """Prefix of all keys, such as ``entrepot``."""
    store_s3_redirects: Literal["on", "off"] = "off"
    """``on``: clients are sent to the bucket for the bytes of plain blobs."""
    store_s3_public_endpoint: str = ""
    """URL of the S3 service in these redirects; empty: `store_s3_endpoint`."""
    store_s3_path_style: Literal["on", "off"] = "on"
    """``on``: the bucket is in the path of URLs; ``off``: in their host."""
    store_s3_connect_seconds: int = 2
    """Maximum time to connect."""
    store_s3_read_seconds: int = 10
    """Maximum time without a byte of a response."""
    store_s3_encryption: str = ""
    """Encryption by S3: ``AES256``, ``aws:kms`` or ``aws:kms:KEY``; empty: its own default."""
    store_s3_buffer_mb: int = 256
    """Maximum MiB of uploads that a process keeps in memory until they are sent: for blobs, and as
    many again for accounts' buckets."""
    cache_bytes: int = 0
    """Maximum bytes of the bucket that this machine caches on its own disk; 0: none. Without a
    bucket it has no effect."""

    @property
    def problem(self) -> str:
        """Return the first problem, with the setting's name, or an empty string."""
        if not self.store_s3_bucket:
            is_meant = self.store_s3_endpoint or self.store_s3_prefix
            return "store_s3_bucket is missing: it names the bucket" if is_meant else ""
        if not _BUCKET.fullmatch(self.store_s3_bucket):
            return f"store_s3_bucket: {self.store_s3_bucket!r} is no name of a bucket"
        if not _PREFIX.fullmatch(self.store_s3_prefix) or (
            len(self.store_s3_prefix) > _LONGEST_PREFIX
        ):
            return (
                f"store_s3_prefix: {self.store_s3_prefix!r} is none such as entrepot or teams/one:"
                " letters, digits and ._=-, with slashes between"
            )
        if not _REGION.fullmatch(self.store_s3_region):
            return f"store_s3_region: {self.store_s3_region!r} is no name such as eu-central-1"
        for name in ("store_s3_endpoint", "store_s3_public_endpoint"):
            if (url := getattr(self, name)) and not _is_url(url):  # which may have a password
                return f"{name} is no URL such as https://s3.example.com"
        if problem := choice_problem(self):
            return problem
        if not _ENCRYPTION.fullmatch(self.store_s3_encryption):
            return (
                "store_s3_encryption is AES256, aws:kms or aws:kms:KEY, not"
                f" {self.store_s3_encryption!r}"
            )
        return ""

    @property
    def key_prefix(self) -> str:
        """Return the prefix of all keys, with a slash at its end; empty if there is none."""
        prefix = self.store_s3_prefix.strip("/")
        return f"{prefix}/" if prefix else ""

    @property
    def encryption_fields(self) -> Mapping[str, str]:
        """Return the arguments of ``PutObject`` that request server-side encryption."""
        if not self.store_s3_encryption.startswith("aws:kms"):
            kind = self.store_s3_encryption
            return {"ServerSideEncryption": kind} if kind else {}
        key = self.store_s3_encryption.removeprefix("aws:kms").removeprefix(":")
        return {"ServerSideEncryption": "aws:kms", **({"SSEKMSKeyId": key} if key else {})}


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and parts.path in ("", "/")
        and not (parts.query or parts.fragment or parts.username)
    )
