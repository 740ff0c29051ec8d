"""The quotas of the registry."""

from __future__ import annotations

from typing import Final

from cloudcore.quotas.quota import Quota

UNLIMITED: Final = 1 << 62
"""As many as an operator can set: any number."""

BLOB_BYTES: Final = Quota("registry_bytes", UNLIMITED, "bytes of blobs", unit="bytes")
"""Each blob of an account counts once, with the size that clients know."""
REPOSITORIES: Final = Quota("repositories", UNLIMITED, "repositories")
IMAGES: Final = Quota("images", UNLIMITED, "images")
"""Each in each repository, also indexes and attachments; none that is deleted."""
TAGS: Final = Quota("tags", UNLIMITED, "tags")
UPLOADS: Final = Quota("upload_sessions", 5000, "open upload sessions")
"""The install has its own default, the setting ``max_open_uploads``."""
LOGINS: Final = Quota("logins", 10_000, "open container logins")

QUOTAS: Final = (BLOB_BYTES, REPOSITORIES, IMAGES, TAGS, UPLOADS, LOGINS)
