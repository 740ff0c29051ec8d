"""The few images of the control plane's machine: shared layers, indexes, referrers of each."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST

CONFIG: Final = b"{}"
LAYERS: Final = tuple(bytes([number]) * 10 ** (number + 1) for number in range(4))
CONTENTS: Final = {str(digest_of(data)): data for data in (CONFIG, *LAYERS)}
SIZES: Final = {digest: len(data) for digest, data in CONTENTS.items()}


class Document(NamedTuple):
    """A manifest or index, and what it refers to."""

    digest: str
    body: bytes
    media_type: str
    blobs: frozenset[str] = frozenset()
    children: tuple[str, ...] = ()
    subject: str | None = None

    @property
    def tree(self) -> frozenset[str]:
        """Return the distinct blobs under it."""
        return self.blobs.union(*(BY_DIGEST[child].tree for child in self.children))


def _described(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": str(digest_of(data)), "size": len(data)}


def _document(fields: dict[str, Any], about: Document | None) -> tuple[str, bytes]:
    subject = {} if about is None else {"subject": _described(about.media_type, about.body)}
    body = json.dumps({"schemaVersion": 2, **fields, **subject}).encode()
    return str(digest_of(body)), body


def _image(*layers: int, about: Document | None = None, note: str = "") -> Document:
    parts = [LAYERS[number] for number in layers]
    fields = {
        "mediaType": OCI_MANIFEST,
        "config": _described("application/vnd.oci.image.config.v1+json", CONFIG),
        "layers": [_described("application/vnd.oci.image.layer.v1.tar", part) for part in parts],
        "annotations": {"note": note},
    }
    digest, body = _document(fields, about)
    blobs = frozenset(str(digest_of(part)) for part in (CONFIG, *parts))
    subject = None if about is None else about.digest
    return Document(digest, body, OCI_MANIFEST, blobs, subject=subject)


def _index(
    *children: Document, layers: tuple[int, ...] = (), about: Document | None = None
) -> Document:
    parts = [LAYERS[number] for number in layers]
    listed = [_described(child.media_type, child.body) for child in children]
    listed += [_described("application/vnd.oci.image.layer.v1.tar", part) for part in parts]
    digest, body = _document({"mediaType": OCI_INDEX, "manifests": listed}, about)
    below = tuple(child.digest for child in children)
    subject = None if about is None else about.digest
    blobs = frozenset(str(digest_of(part)) for part in parts)
    return Document(digest, body, OCI_INDEX, blobs, below, subject)


_plain = [_image(0), _image(0, 1), _image(2), _image(1, 2, 3), _image(0, note="same layers")]
_index_of_two = _index(_plain[0], _plain[1])
_sbom = _image(3, about=_plain[0])

DOCUMENTS: Final = (
    *_plain,
    _index_of_two,
    _index(_plain[1], _plain[2]),
    _index(_index_of_two, _plain[3]),
    _index(_plain[2], about=_plain[2]),
    _sbom,
    _image(about=_sbom, note="signature of the SBOM"),
    _image(3, about=_index_of_two),
    _index(_plain[1], layers=(1, 3)),
)
BY_DIGEST: Final = {document.digest: document for document in DOCUMENTS}
