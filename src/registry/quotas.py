"""The quotas of the registry."""

from __future__ import annotations

from typing import Final

from cloudcore.quotas.quota import Quota

UNLIMITED: Final = 1 << 62
"""The largest limit that an operator can set; in effect, no limit."""

BLOB_BYTES: Final = Quota("registry_bytes", UNLIMITED, "bytes of blobs", unit="bytes")
"""Each blob of an account counts once, with its size as clients push and pull it."""
REPOSITORIES: Final = Quota("repositories", UNLIMITED, "repositories")
IMAGES: Final = Quota("images", UNLIMITED, "images")
"""An image counts once in each repository. Indexes and attachments count; deleted images do not."""
TAGS: Final = Quota("tags", UNLIMITED, "tags")
UPLOADS: Final = Quota("upload_sessions", 5000, "open upload sessions")
"""The setting ``max_open_uploads`` replaces this default."""
LOGINS: Final = Quota("logins", 10_000, "open container logins")

QUOTAS: Final = (BLOB_BYTES, REPOSITORIES, IMAGES, TAGS, UPLOADS, LOGINS)
