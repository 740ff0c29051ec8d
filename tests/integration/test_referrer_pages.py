"""A page of referrers reads the annotations it shows, and no others."""

from __future__ import annotations

import json
from typing import Final

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.images.referrers import MAX_BYTES
from tests.inprocess import open_registry
from tests.memory_store import MemoryStore

APP: Final = "/v2/dev/app"
PART: Final = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}
SUBJECT: Final = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"subject"), "size": 1}
KIND: Final = {"content-type": OCI_MANIFEST}


async def test_a_page_ends_before_the_manifests_on_it_are_too_large(sqlite_database: str) -> None:
    """Two hundred of 4 MiB would be 800 MiB of annotations."""

    async with open_registry(sqlite_database, MemoryStore()) as registry:
        ask = registry.client.request
        upload = f"{APP}/blobs/uploads/?digest={PART['digest']}"
        assert (await ask("POST", upload)).status == 201
        pushed = []
        for number, size in enumerate((10, 1 << 20, 1 << 20, 1 << 20, 10, 4_190_000, 10)):
            document = {
                "schemaVersion": 2,
                "config": PART,
                "layers": [],
                "subject": SUBJECT,
                "annotations": {"é": f"{number}" + "x" * size},
            }
            body = json.dumps(document).encode()
            assert (await ask("PUT", f"{APP}/manifests/{number}", body, KIND)).status == 201
            pushed.append(document["annotations"])
        pages = []
        url: str | None = f"{APP}/referrers/{SUBJECT['digest']}"
        while url:
            answer = await ask("GET", url)
            pages.append([each["annotations"] for each in answer.json()["manifests"]])
            assert len(pages[-1]) == 1 or len(answer.body) < MAX_BYTES
            link = answer.headers.get("link")
            url = link[1 : link.index(">")] if link else None
        assert [len(page) for page in pages] == [3, 2, 1, 1]
        assert [each for page in pages for each in page] == pushed
