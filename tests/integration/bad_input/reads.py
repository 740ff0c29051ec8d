"""Reads and ranges (B), lists (L), referrers (R), deletes and mounts (X)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.integration.bad_input.case import Case, asked

BLOB = "/v2/{repo}/blobs/{free}"
TAGS = "/v2/{repo}/tags/list"
REFERRERS = "/v2/{repo}/referrers/{image}"
NUMBERS = {
    "word": "abc",
    "empty": "",
    "negative": "-1",
    "fraction": "1.5",
    "exponent": "1e3",
    "hexadecimal": "0x10",
    "plus": "%2B5",
    "bare-plus": "+5",
    "minus-zero": "-0",
    "blank": "%205",
    "underscore": "1_0",
    "other-digit": "%D9%A3",
    "newline": "5%0A",
    "nul": "5%00",
    "not-utf-8": "%FF",
}


def read_cases() -> Iterator[Case]:
    """Yield the cases of reads and ranges (B); a disabled key is told of elsewhere."""
    yield asked("B1-absent", "GET /v2/{repo}/blobs/{absent}", 404, "BLOB_UNKNOWN")
    yield asked("B2-sibling", "GET /v2/{repo}/blobs/{elsewhere}", 404, "BLOB_UNKNOWN")
    for case, digest in {
        "nonsense": "nonsense",
        "md5": "md5:" + "0" * 32,
        "climb": "..",
        "nul": "{free}%00",
        "algorithm-only": "sha256:",
        "short": "sha256:abc",
        "upper-case": "sha256:" + "A" * 64,
        "65-hex": "sha256:" + "a" * 65,
        "64-hex-of-sha512": "sha512:" + "a" * 64,
        "63-hex-of-blake3": "blake3:" + "a" * 63,
        "newline": "sha256:" + "a" * 63 + "%0A",
        "encoded-colon": "sha256%3A" + "g" * 64,
    }.items():
        for method in ("GET", "DELETE"):
            path = f"{method} /v2/{{repo}}/blobs/{digest}"
            yield asked(f"B3-{case}-{method.lower()}", path, 400, "DIGEST_INVALID")
    unsatisfiable = {
        "B6": "bytes=500-0",
        "B7": "bytes=-0",
        "B5": "bytes=64-",
        "B5-far": "bytes=99-100",
    }
    for case, value in unsatisfiable.items():
        yield asked(
            f"{case}-{value}",
            f"GET {BLOB}",
            416,
            headers={"Range": value},
            answer={"content-range": "bytes */64"},
        )
    digits = "9" * 5000
    for case, value in {
        "B8-other-unit": "items=0-1",
        "B9-several": "bytes=0-1,3-4",
        "B9-1000": "bytes=" + ",".join(f"{number}-{number}" for number in range(1000)),
    }.items():
        yield asked(case, f"GET {BLOB}", 200, headers={"Range": value})
    for case, value in {
        "B10-junk": "bytes=a-b",
        "B10-nothing": "bytes=-",
        "B10-5000-digit-end": f"bytes=0-{digits}",
        "B10-5000-digit-start": f"bytes={digits}-",
        "B10-5000-digit-suffix": f"bytes=-{digits}",
        "B10-other-digit": "bytes=\N{ARABIC-INDIC DIGIT ONE}-".encode().decode("latin-1"),
    }.items():
        yield asked(case, f"GET {BLOB}", 200, 206, 416, headers={"Range": value})
    yield asked(
        "B11-other-if-range", f"GET {BLOB}", 200, headers={"Range": "bytes=0-1", "If-Range": '"x"'}
    )
    manifest = "GET /v2/{repo}/manifests/v1"
    for case, value in {"html": "text/html", "junk": "\x01;;,=q", "long": "a/b," * 4000}.items():
        yield asked(f"B12-accept-{case}", manifest, 200, 400, headers={"Accept": value})
    yield asked("B15-manifest", "GET /v2/{account}/nowhere/manifests/v1", 404, "NAME_UNKNOWN")
    yield asked("B15-blob", "GET /v2/{account}/nowhere/blobs/{absent}", 404, "NAME_UNKNOWN")
    yield asked("B15-tags", "GET /v2/{account}/nowhere/tags/list", 404, "NAME_UNKNOWN")
    for value in ("junk", '"unclosed', "W/", ", ,", "*, *", '"' + "x" * 9000 + '"'):
        condition = {"If-None-Match": value}
        yield asked(f"B16-if-none-match-{value[:9]}", f"GET {BLOB}", 200, headers=condition)
        for kind, target in {"blob": f"GET {BLOB}", "manifest": manifest}.items():
            yield asked(
                f"B17-if-match-{kind}-{value[:9]}",
                target,
                412,
                "DENIED",
                headers={"If-Match": value},
            )


def list_cases() -> Iterator[Case]:
    """Yield the cases of lists (L); `_catalog` for the anonymous needs sign-in."""
    yield asked("L1-zero", f"GET {TAGS}?n=0", 200)
    for target in (TAGS, "/v2/_catalog"):
        kind = target.rpartition("/")[2]
        for case, value in NUMBERS.items():
            yield asked(f"L5-{kind}-{case}", f"GET {target}?n={value}", 400, "UNSUPPORTED")
        yield asked(f"L7-{kind}-twice", f"GET {target}?n=1&n=2", 400, "UNSUPPORTED")
        yield asked(f"L6-{kind}-huge", f"GET {target}?n=1000000000000000000", 200)
        yield asked(f"L6-{kind}-5000-digits", f"GET {target}?n={'9' * 5000}", 200)
    yield asked("L8-absent-last", f"GET {TAGS}?last=n", 200)
    yield asked("L9-last-nul", f"GET {TAGS}?last=%00", 200, 400, "UNSUPPORTED")
    yield asked("L9-last-not-utf-8", f"GET {TAGS}?last=%FF", 200, 400, "UNSUPPORTED")
    yield asked("L9-last-long", f"GET {TAGS}?last={'z' * 9000}", 200, 400, "UNSUPPORTED")
    yield asked("L10-quotes", f"GET {TAGS}?last=%27%3B--", 200, 400, "UNSUPPORTED")
    yield asked("L12-junk-query", f"GET {TAGS}?&&=&a&%=%zz", 200, 400, "UNSUPPORTED")


def referrer_cases() -> Iterator[Case]:
    """Yield the cases of referrers (R)."""
    for case, digest in {
        "nonsense": "nonsense",
        "md5": "md5:" + "0" * 32,
        "dots": "..",
        "upper-case": "sha256:" + "A" * 64,
    }.items():
        for where, repository in {"present": "{repo}", "absent": "{account}/nowhere"}.items():
            path = f"GET /v2/{repository}/referrers/{digest}"
            yield asked(f"R1-{case}-{where}", path, 400, "DIGEST_INVALID")
    index = {"content-type": "application/vnd.oci.image.index.v1+json"}
    yield asked("R2-none", f"GET {REFERRERS}", 200, answer=index)
    yield asked("R3-absent", "GET /v2/{repo}/referrers/{absent}", 200, answer=index)
    for case, value in {
        "nul": "%00",
        "star": "*",
        "quote": "%27--",
        "percent": "%25",
        "not-utf-8": "%FF",
        "long": "a" * 10_000,
        "empty": "",
    }.items():
        yield asked(f"R5-{case}", f"GET {REFERRERS}?artifactType={value}", 200, 400, "UNSUPPORTED")
    for case, value in {"junk": "junk", "nul": "%00", "digits": "9" * 5000}.items():
        yield asked(f"R7-page-{case}", f"GET {REFERRERS}?last={value}", 200, 400, "UNSUPPORTED")


def delete_and_mount_cases() -> Iterator[Case]:
    """Yield the cases of deletes and mounts (X); what tokens decide is told of elsewhere."""
    yield asked("X1-absent-tag", "DELETE /v2/{repo}/manifests/absent", 404, "MANIFEST_UNKNOWN")
    yield asked("X3-absent", "DELETE /v2/{repo}/manifests/{absent}", 404, "MANIFEST_UNKNOWN")
    yield asked("X4-absent-blob", "DELETE /v2/{repo}/blobs/{absent}", 404, "BLOB_UNKNOWN")
    yield asked("X4-bad-digest", "DELETE /v2/{repo}/blobs/nonsense", 400, "DIGEST_INVALID")
    yield asked("X5-layer-in-use", "DELETE /v2/{repo}/blobs/{layer}", 405, "UNSUPPORTED")
    yield asked("X7-child-in-use", "DELETE /v2/{repo}/manifests/{image}", 405, "UNSUPPORTED")
    mount = "POST /v2/{scratch}/blobs/uploads/?mount="
    for case, digest in {
        "nonsense": "nonsense",
        "empty": "",
        "md5": "md5:" + "0" * 32,
        "upper-case": "sha256:" + "A" * 64,
    }.items():
        request = f"POST /v2/{{repo}}/blobs/uploads/?mount={digest}&from={{other}}"
        yield asked(f"X12-{case}", request, 400, "DIGEST_INVALID")
    for case, source in {
        "upper-case": "DEV/R",
        "climb": "../../etc",
        "nul": "%00",
        "empty": "",
        "not-utf-8": "%FF",
        "long": "a" * 9000,
    }.items():
        request = f"{mount}{{absent}}&from={source}"
        yield asked(f"X13-{case}", request, 202, 400, "NAME_INVALID", "UNSUPPORTED")
    yield asked("X14-and-digest", f"{mount}{{elsewhere}}&from={{other}}&digest={{elsewhere}}", 201)
    yield asked("X16-put-tags", f"PUT {TAGS}", 405, "UNSUPPORTED", answer={"allow": "GET, HEAD"})
    for number, request in enumerate(
        (
            f"DELETE {TAGS}",
            f"POST {REFERRERS}",
            "PATCH /v2/{repo}/manifests/v1",
            f"POST {BLOB}",
            "DELETE /v2/",
        )
    ):
        yield asked(f"X16-method-{number}", request, 405, "UNSUPPORTED")
    for number, path in enumerate(
        (
            "/v2/{repo}",
            "/v2/{repo}/tags",
            "/v2/{repo}/tags/lists",
            "/v2/_oci/x",
            "/v2/{repo}/manifests",
        )
    ):
        yield asked(f"X17-no-endpoint-{number}", f"GET {path}", 404, "UNSUPPORTED", "NAME_INVALID")
