"""Manifests (M). Refused ones go to `repo`, which must not change, the others to `scratch`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from registry.oci.manifest import MAX_DESCRIPTORS
from tests.conformance.content import (
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Content,
    blob,
)
from tests.integration.bad_input.case import Body, Case, asked
from tests.integration.bad_input.world import ABSENT, World

TYPE = {"Content-Type": OCI_MANIFEST}
DIGITS = "9" * 5000
MANY = 36_000
MOST = MAX_DESCRIPTORS - 1  # beside the config
BAD = "PUT /v2/{repo}/manifests/bad"
GOOD = "PUT /v2/{scratch}/manifests/good"


def manifest_cases() -> Iterator[Case]:
    """Yield the cases of manifests (M), as far as one request can show it."""
    yield from _not_json()
    yield from _not_a_manifest()
    yield from _types()
    yield from _absent_parts()
    yield from _accepted()
    yield from _either()


def _changed(**changes: object) -> Body:
    """Return the image's manifest with some fields changed, those of None left out."""
    return lambda world: world.manifest_with(**changes)


def _spliced(field: bytes) -> Body:
    """Return the image's manifest with one more raw field at its end."""
    return lambda world: world.image.body.rstrip()[:-1] + b"," + field + b"}"


def _image(world: World) -> bytes:
    return world.image.body


def _invalid(case: str, body: Body, content_type: str | None = OCI_MANIFEST) -> Case:
    headers = {} if content_type is None else {"Content-Type": content_type}
    return asked(case, BAD, 400, "MANIFEST_INVALID", headers=headers, body=body)


def _not_json() -> Iterator[Case]:
    yield _invalid("M1-words", b"blablabla")
    yield _invalid("M2-empty", b"")
    yield _invalid("M3-list", b"[]")
    yield _invalid("M3-null", b"null")
    yield _invalid("M3-text", b'"x"')
    yield _invalid("M3-empty-object", b"{}")
    yield _invalid("M4-100000-brackets", b"[" * 100_000)
    yield _invalid("M4-100000-braces", b'{"a":' * 100_000)
    yield _invalid("M4-deep-field", _spliced(b'"x":' + b"[" * 50_000 + b"]" * 50_000))
    yield _invalid("M5-not-utf-8", _spliced(b'"x":"\xff"'))
    yield _invalid("M6-bom", lambda world: b"\xef\xbb\xbf" + world.image.body)
    yield _invalid("M6-utf-16", lambda world: world.image.body.decode().encode("utf-16"))
    yield _invalid("M6-utf-32", lambda world: world.image.body.decode().encode("utf-32-le"))
    yield _invalid("M7-two-media-types", _spliced(b'"mediaType":"a/b"'))
    yield _invalid("M7-two-layers", _spliced(b'"layers":[]'))
    yield _invalid("M7-two-versions", _spliced(b'"schemaVersion":2'))
    yield _invalid("M7-escaped-key", _spliced(b'"layer\\u0073":[]'))
    yield _invalid("M10-trailing-text", lambda world: world.image.body + b"x")
    yield _invalid("M10-two-documents", lambda world: world.image.body * 2)
    yield _invalid("M10-nan", _spliced(b'"x":NaN'))
    yield _invalid("M42-bytes-of-a-blob", lambda world: world.free.body)
    yield _invalid(
        "M33-36000-layers",
        lambda world: _with_many_layers(world, [f"{n:064x}" for n in range(MANY)]),
    )
    yield _invalid(
        "M33-350000-annotations",
        _spliced(b'"annotations":{%s}' % b",".join(b'"%d":""' % n for n in range(350_000))),
    )


def _not_a_manifest() -> Iterator[Case]:
    yield _invalid("M8-layers-and-manifests", _changed(manifests=[]))
    yield _invalid("M9-manifests-and-config", _changed(manifests=[], layers=None))
    for number, value in enumerate((1, "2", 2.5, True, None, [2])):
        yield _invalid(f"M16-schema-version-{number}", _changed(schemaVersion=value))
    yield _invalid("M17-no-config", _changed(config=None))
    yield _invalid("M17-config-of-text", _changed(config=ABSENT))
    yield _invalid("M17-no-layers", _changed(layers=None))
    yield _invalid("M17-layers-of-object", _changed(layers={}))
    descriptor = {"mediaType": OCI_LAYER, "size": 1, "digest": ABSENT}
    layers: dict[str, object] = {
        "null": None,
        "text": "sha256:" + "0" * 64,
        "empty": {},
        "bad-digest": {**descriptor, "digest": "nonsense"},
        "digest-of-list": {**descriptor, "digest": [ABSENT]},
        "md5": {**descriptor, "digest": "md5:" + "0" * 32},
        "no-size": {"mediaType": OCI_LAYER, "digest": ABSENT},
        "no-media-type": {"size": 1, "digest": ABSENT},
        "media-type-of-number": {**descriptor, "mediaType": 5},
        "negative-size": {**descriptor, "size": -1},
        "size-of-text": {**descriptor, "size": "1"},
        "size-of-fraction": {**descriptor, "size": 1.5},
        "size-of-bool": {**descriptor, "size": True},
        "size-over-64-bit": {**descriptor, "size": 1 << 64},
    }
    for case, layer in layers.items():
        yield _invalid(f"M18-layer-{case}", _changed(layers=[layer]))
    yield _invalid(
        "M18-layer-size-of-minus-zero",
        lambda world: world.manifest_with(layers=[descriptor]).replace(
            b'"size": 1,', b'"size":-0,'
        ),
    )
    for case, digest in {
        "nonsense": "nonsense",
        "newline": ABSENT + "\n",
        "list": [ABSENT],
    }.items():
        subject = {"mediaType": OCI_MANIFEST, "size": 1, "digest": digest}
        yield _invalid(f"M27-subject-{case}", _changed(subject=subject))
    yield _invalid("M27-subject-of-text", _changed(subject=ABSENT))
    yield _invalid(
        "M40-size-of-5000-digits",
        lambda world: world.manifest_with(layers=[descriptor]).replace(
            b'"size": 1,', b'"size": %s,' % DIGITS.encode()
        ),
    )


def _types() -> Iterator[Case]:
    yield asked("M11-no-content-type", GOOD, 201, body=_image)
    yield _invalid("M12-nothing-tells", b'{"schemaVersion":2}', None)
    yield _invalid("M13-other-than-the-body", _image, DOCKER_MANIFEST)
    yield _invalid("M13-index-for-image", _image, OCI_INDEX)
    yield _invalid("M14-html", _image, "text/html")
    yield _invalid("M14-6-kilobytes", _image, "a/" + "b" * 6_000)
    schema_1 = b'{"schemaVersion":1,"name":"a/b","tag":"v1","fsLayers":[],"history":[]}'
    for suffix in ("json", "prettyjws"):
        yield _invalid(
            f"M15-schema-1-{suffix}",
            schema_1,
            f"application/vnd.docker.distribution.manifest.v1+{suffix}",
        )


def _absent_parts() -> Iterator[Case]:
    layers, children = TYPE, {"Content-Type": OCI_INDEX}
    bodies: dict[str, tuple[dict[str, str], Body]] = {
        "M23-unknown-layer": (layers, _changed(layers=[blob().descriptor])),
        "M23-unknown-config": (layers, _changed(config=blob().descriptor)),
        "M24-layer-of-a-sibling": (layers, lambda world: _with_layer(world, world.elsewhere)),
        "M28-absent-child": (children, lambda world: _index([world.image], digest=ABSENT)),
        "M33-as-many-absent-layers-as-fit": (
            layers,
            lambda world: _with_many_layers(world, [f"{n:064x}" for n in range(MOST)]),
        ),
    }
    for case, (headers, body) in bodies.items():
        yield asked(case, BAD, 404, "MANIFEST_BLOB_UNKNOWN", headers=headers, body=body)
    yield asked("M41-manifest-as-blob", "GET /v2/{repo}/blobs/{image}", 404, "BLOB_UNKNOWN")


def _with_layer(world: World, layer: Content, **changes: object) -> bytes:
    return world.manifest_with(layers=[{**layer.descriptor, **changes}])


def _index(manifests: list[Content], **changes: object) -> bytes:
    descriptors = [{**manifest.descriptor, **changes} for manifest in manifests]
    fields = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": descriptors}
    return json.dumps(fields).encode()


def _with_many_layers(world: World, digests: Iterable[str]) -> bytes:
    """Return a manifest with layers of these digests."""
    form = '{"mediaType":"a/b","size":64,"digest":"sha256:%s"}'
    layers = ",".join(form % digest for digest in digests).encode()
    return world.manifest_with(layers=[]).replace(b'"layers": []', b'"layers":[%s]' % layers)


def _accepted() -> Iterator[Case]:
    foreign = {
        **blob(9, "application/vnd.oci.image.layer.nondistributable.v1.tar").descriptor,
        "urls": ["http://169.254.169.254/latest/meta-data", "file:///etc/passwd"],
    }
    bodies: dict[str, Body] = {
        "M19-no-layers": _changed(layers=[]),
        "M21-wrong-size": lambda world: _with_layer(world, world.layer, size=1),
        "M33-as-often-one-layer-as-fits": lambda world: _with_many_layers(
            world, [world.layer.digest.partition(":")[2]] * MOST
        ),
        "M36-urls": _changed(layers=[foreign]),
        "M37-data-of-other-bytes": lambda world: _with_layer(world, world.layer, data="AAAA"),
    }
    for case, body in bodies.items():
        yield asked(case, GOOD, 201, headers=TYPE, body=body)
    yield asked(
        "M28-child-that-is-a-blob",
        GOOD,
        201,
        headers={"Content-Type": OCI_INDEX},
        body=lambda world: _index([world.layer]),
    )
    subject = {"mediaType": OCI_MANIFEST, "size": 1, "digest": ABSENT}
    yield asked(
        "M26-absent-subject",
        GOOD,
        201,
        headers=TYPE,
        body=_changed(subject=subject),
        answer={"oci-subject": ABSENT},
    )


def _either() -> Iterator[Case]:
    """Yield what may be taken or refused, as long as it is one of the two and nothing breaks."""
    fields: dict[str, bytes] = {
        "M35-lone-surrogate": b'"annotations":{"a":"\\ud800"}',
        "M35-nul": b'"annotations":{"a":"\\u0000"}',
        "M38-annotation-of-a-number": b'"annotations":{"a":1}',
        "M38-annotations-of-a-list": b'"annotations":[1]',
        "M39-artifact-type-with-crlf": b'"artifactType":"a/b\\r\\nX-Evil: 1"',
        "M39-artifact-type-with-blanks": b'"artifactType":"  "',
        "M39-artifact-type-of-a-number": b'"artifactType":5',
        "M40-5000-digits": b'"x":' + DIGITS.encode(),
        "M40-1e999": b'"x":1e999',
    }
    for case, field in fields.items():
        yield asked(
            case,
            GOOD,
            201,
            400,
            "MANIFEST_INVALID",
            headers=TYPE,
            body=_referring(field),
        )
    yield asked(
        "M14-junk",
        GOOD,
        201,
        400,
        "MANIFEST_INVALID",
        headers={"Content-Type": "; ="},
        body=_image,
    )


def _referring(field: bytes) -> Body:
    """Return a manifest with the image as its subject and one more raw field."""

    def body(world: World) -> bytes:
        manifest = world.manifest_with(subject=world.image.descriptor).rstrip()
        return manifest[:-1] + b"," + field + b"}"

    return body
