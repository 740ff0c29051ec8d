"""A repository whose images and tags are deleted and restored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from registry.oci.media_types import OCI_MANIFEST
from tests.integration import pushing
from tests.recount import check_counters, querying

DAY: Final = 24 * 3600


@dataclass(frozen=True)
class UndoWorld(pushing.World):
    """One repository of one account, and its rows."""

    url: str
    """Of the database."""

    async def put(self, reference: str, body: bytes) -> httpx.Response:
        """Push an image whose blobs are there."""
        path = f"/v2/{self.name}/manifests/{reference}"
        return await self.docker.put(path, content=body, headers={"content-type": OCI_MANIFEST})

    async def restore(self, *digests: str) -> dict[str, Any]:
        """Restore images and return what became of each."""
        answer = await self.control.post(f"{self.images}/restore", json={"digests": digests})
        assert answer.status_code == 200, answer.text
        outcome: dict[str, Any] = answer.json()
        return outcome

    async def restore_tag(self, tag: str) -> httpx.Response:
        """Ask to restore a tag."""
        return await self.control.post(f"{self.path}/tags/{tag}/restore")

    async def deleted(self) -> list[dict[str, Any]]:
        """Return the deleted images."""
        body = await self.get("/images/deleted")
        images: list[dict[str, Any]] = body["images"]
        assert body["meta"]["total"] == len(images)
        return images

    async def history(self, tag: str) -> list[tuple[str, str | None, str | None]]:
        """Return what became of a tag, the newest first."""
        fields = "action", "previous_digest", "digest"
        found = (await self.get(f"/tags/{tag}/history"))["history"]
        return [tuple(each[field] for field in fields) for each in found]

    def query(self, sql: str, *params: object) -> Sequence[Sequence[Any]]:
        """Return rows of the database."""
        with querying(self.url) as query:
            return query(sql, *params)

    def check(self) -> None:
        """Check all counters of the account."""
        with querying(self.url) as query:
            check_counters(query, self.account.handle)
