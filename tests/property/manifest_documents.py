"""Documents that are, or almost are, manifests: strategies for Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from registry.oci.digest import digest_of
from registry.oci.media_types import MANIFEST_TYPES

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def documents(*scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for nested JSON of `scalars`, texts and truths."""
    return st.recursive(
        st.one_of(*scalars, st.none(), st.booleans(), TEXTS),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    )


JSON = documents(st.integers(), st.floats(), st.text(max_size=8))
MEDIA_TYPES = st.sampled_from(sorted(MANIFEST_TYPES))
DIGESTS = st.builds(digest_of, st.binary(max_size=2), st.sampled_from(["sha256", "blake3"]))
DESCRIPTORS = st.fixed_dictionaries(
    {
        "mediaType": MEDIA_TYPES | st.just("application/x") | st.text(max_size=4),
        "digest": DIGESTS | st.text(max_size=4),
        "size": st.integers(-1, 1 << 64),
    }
)
VALID = st.fixed_dictionaries(
    {
        "mediaType": st.just("application/x"),
        "digest": DIGESTS,
        "size": st.integers(0, (1 << 63) - 1),
    }
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "schemaVersion": st.just(2) | JSON,
    "mediaType": MEDIA_TYPES | JSON,
    "config": VALID | DESCRIPTORS | JSON,
    "layers": st.lists(VALID | DESCRIPTORS, max_size=3) | JSON,
    "manifests": st.lists(VALID | DESCRIPTORS, max_size=3) | JSON,
    "subject": VALID | DESCRIPTORS | JSON,
    "artifactType": st.text(max_size=8) | JSON,
    "annotations": st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2) | JSON,
    "extra": JSON,
}
ALMOST = st.fixed_dictionaries({}, optional=FIELDS)
CONTENT_TYPES = st.none() | MEDIA_TYPES | st.text(max_size=10)
