"""Subjects that referrers name by another digest than the sha256 that images have."""

from __future__ import annotations

import hashlib
import json

import pytest

from registry.oci.media_types import OCI_MANIFEST
from tests.databases import on_both_databases
from tests.integration.lifecycle_world import LifecycleWorld


@on_both_databases
@pytest.mark.parametrize("is_pushed_by_it", [True, False], ids=["by-sha512", "by-sha256"])
async def test_a_referrer_stays_and_goes_with_a_subject_it_names_by_sha512(
    lifecycle: LifecycleWorld, *, is_pushed_by_it: bool
) -> None:
    document = await lifecycle.image_document("subject")
    body = json.dumps(document).encode()
    name = f"sha512:{hashlib.sha512(body).hexdigest()}"
    subject = await lifecycle.push(document, "v1", reference=name if is_pushed_by_it else None)
    about = {"mediaType": OCI_MANIFEST, "digest": name, "size": len(body)}
    signature = await lifecycle.push_image("signature", subject=about)
    await lifecycle.pass_days(2)
    untagged = {"priority": 1, "selector": "untagged", "older_than_days": 1}
    assert await lifecycle.previewed(untagged) == {}
    every = {"priority": 1, "selector": "tagged", "older_than_days": 1}
    (one, other) = (await lifecycle.preview(every))["images"]
    assert {one["digest"], other["digest"]} == {subject["digest"], signature["digest"]}
    assert (await lifecycle.run(every))["expired"] == 2
    assert await lifecycle.digests() == set()
