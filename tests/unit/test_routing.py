"""The path grammar: from the right, on the raw path, decoded once."""

from __future__ import annotations

import pytest

from registry.distribution.routing import Endpoint, Match, match_path
from registry.errors import ExtensionUnknown, NameInvalid


@pytest.mark.parametrize(
    ("path", "match"),
    [
        (b"/v2", Match(Endpoint.BASE, "", "")),
        (b"/v2/", Match(Endpoint.BASE, "", "")),
        (b"/v2/?x=1", Match(Endpoint.BASE, "", "")),
        (b"/v2/_catalog", Match(Endpoint.CATALOG, "", "")),
        (b"/v2/dev/a/tags/list", Match(Endpoint.TAGS, "dev/a", "")),
        (b"/v2/dev/a/blobs/uploads", Match(Endpoint.UPLOADS, "dev/a", "")),
        (b"/v2/dev/a/blobs/uploads/", Match(Endpoint.UPLOADS, "dev/a", "")),
        (b"/v2/dev/a/blobs/uploads/id", Match(Endpoint.UPLOAD, "dev/a", "id")),
        (b"/v2/dev/a/blobs/sha256:0", Match(Endpoint.BLOB, "dev/a", "sha256:0")),
        (b"/v2/dev/a/blobs/sha256%3a0", Match(Endpoint.BLOB, "dev/a", "sha256:0")),
        (b"/v2/dev/a/manifests/v1", Match(Endpoint.MANIFEST, "dev/a", "v1")),
        (b"/v2/dev/a/referrers/sha256:0", Match(Endpoint.REFERRERS, "dev/a", "sha256:0")),
        # Decoded once: what is encoded twice stays encoded.
        (b"/v2/dev/a/manifests/%252F", Match(Endpoint.MANIFEST, "dev/a", "%2F")),
        (b"/v2/dev/%C3%A9/manifests/v1", Match(Endpoint.MANIFEST, "dev/é", "v1")),
        (b"/v2/dev/%zz/manifests/v1", Match(Endpoint.MANIFEST, "dev/%zz", "v1")),
        # Names made of the API's own words.
        (b"/v2/dev/tags/list/tags/list", Match(Endpoint.TAGS, "dev/tags/list", "")),
        (b"/v2/dev/blobs/x/blobs/uploads/", Match(Endpoint.UPLOADS, "dev/blobs/x", "")),
        (
            b"/v2/dev/blobs/uploads/manifests/v1",
            Match(Endpoint.MANIFEST, "dev/blobs/uploads", "v1"),
        ),
        (b"/v2/dev/manifests/manifests/list", Match(Endpoint.MANIFEST, "dev/manifests", "list")),
        (b"/v2/dev/manifests/tags/list", Match(Endpoint.TAGS, "dev/manifests", "")),
        (b"/v2/dev/a/manifests/uploads", Match(Endpoint.MANIFEST, "dev/a", "uploads")),
        # A name that is none is for the name's grammar to refuse.
        (b"/v2/app/tags/list", Match(Endpoint.TAGS, "app", "")),
        (b"/v2//tags/list", Match(Endpoint.TAGS, "", "")),
        (b"/v2//blobs/uploads/", Match(Endpoint.UPLOADS, "", "")),
    ],
)
def test_a_path_is_matched_from_the_right(path: bytes, match: Match) -> None:
    assert match_path(path) == match


@pytest.mark.parametrize(
    "path",
    [
        *(b"/v2/_oci/ext/discover", b"/v2/_catalog/", b"/v2/dev", b"/v2/dev/a"),
        *(b"/v2/dev/a/manifests", b"/v2/dev/a/manifests/", b"/v2/dev/a/tags"),
        *(b"/v2/dev/a/tags/list/", b"/v2/dev/a/blobs/", b"/v2/dev/a/blobs/uploads//"),
        *(b"/v2/dev/a/blobs/uploads/id/", b"/v2/dev/a/blobs/uploads/id/more"),
        *(b"/v2/dev/a/other/x", b"/v2//", b"/v2/%20"),
    ],
)
def test_other_paths_are_no_endpoint(path: bytes) -> None:
    with pytest.raises(ExtensionUnknown):
        match_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *(b"/v2/dev%2Fa/manifests/v1", b"/v2/dev/a/manifests%2fv1", b"/v2/dev/%ff/manifests/v1"),
        *(b"/v2/dev/\xff/manifests/v1", b"/v2/dev/%ed%a0%80/manifests/v1"),
    ],
)
def test_paths_of_two_readings_are_refused(path: bytes) -> None:
    with pytest.raises(NameInvalid):
        match_path(path)
