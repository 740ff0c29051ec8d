"""What the requests of the model's registry choose among."""

from __future__ import annotations

import json
from typing import Final

from hypothesis import strategies as st

from registry.oci.digest import ALGORITHMS
from registry.oci.media_types import OCI_MANIFEST
from tests.property.model import Document, descriptor

WORDS: Final = ("app", "blobs/uploads", "fixed")
FIXED: Final = "fixed"
"""The repository whose tags do not move, but for those of `EXCLUSION`."""
EXCLUSION: Final = "moving-*"
CONTENTS: Final = (b"", b"config", b"layer" * 50, bytes(range(256)) * 4)
SEALS: Final = st.sampled_from([(True, True), (False, False), (True, False)])
"""Which of the two workers seal new blobs; all read sealed ones."""
TAGS: Final = ("v1", "v2", "moving-1")

# One rule chooses among these: Hypothesis would leave out half of many rules in each example,
# and a registry from which nothing is deleted, or to which nothing is pushed, proves little.
ACTIONS: Final = (
    *("put_image",) * 6,
    *("put_index", "put_index", "put_again", "put_again", "push_document"),
    *("delete_manifest", "delete_manifest", "delete_manifest", "delete_tag", "delete_tag"),
    *("delete_blob", "delete_blob", "push_blob", "push_blob", "mount", "mount", "switch_worker"),
    *("start_upload", "append", "append", "append", "finish", "finish", "cancel"),
)

NOWHERE: Final = Document(
    json.dumps(
        {"schemaVersion": 2, "config": descriptor("application/x-lost", b"lost"), "layers": []}
    ).encode(),
    OCI_MANIFEST,
)
"""A manifest whose config nobody pushes."""

REPOSITORIES = st.sampled_from(WORDS)
DATA = st.sampled_from(CONTENTS)
ALGORITHM = st.sampled_from(ALGORITHMS)
TAG = st.sampled_from(TAGS)
HOW_TO_APPEND = st.sampled_from(
    ["streamed", "in parts", "placed", "misplaced", "cut", "wrong length"]
)
