"""Repository names (N), tags and references (T)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.integration.bad_input.case import Case, asked
from tests.integration.bad_input.world import World

MANIFEST = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}

NAMES = {
    "N1-single": "{account}",
    "N2-empty-component": "{account}//r",
    "N3-trailing-slash": "{account}/r/",
    "N4-leading-dash-handle": "-a/r",
    "N5-trailing-dash": "{account}/r-",
    "N6-upper-case": "{account}/R",
    "N7-upper-case-handle": "DEV/r",
    "N8-dot-underscore": "{account}/._r",
    "N9-three-underscores": "{account}/a___b",
    "N10-nul": "{account}/r%00",
    "N11-newline": "{account}/r%0A",
    "N12-not-utf-8": "{account}/r%FF",
    "N13-not-ascii": "{account}/%C3%A9",
    "N14-dot-dot": "{account}/../b",
    "N15-encoded-dot-dot": "%2e%2e/b",
    "N15-encoded-climb": "{account}/%2e%2e/%2e%2e/etc/passwd",
    "N16-dot": "{account}/./b",
    "N17-256-characters": "{account}/" + "r" * 252,
    "N18-8000-characters": "{account}/" + "r/" * 4000 + "r",
    "N19-leading-underscore": "{account}/_r",
    "N20-colon": "{account}/r%3Ax",
    "N21-blank": "{account}/r%20s",
    "N22-parameter": "{account}/r;x=1",
    "N23-backslash": "{account}/r%5Cs",
    "N24-double-encoding": "{account}/%2561",
    "N25-long-handle": "h" * 33 + "/r",
    "N26-short-handle": "d/r",
    "N26-underscore-in-handle": "un_derscore/r",
    "N26-dot-in-handle": "dot.ted/r",
    "N28-leading-dash": "{account}/-r",
    "N28-dash-alone": "{account}/r/-",
    "N29-two-dots": "{account}/a..b",
    "N29-two-separators": "{account}/a_-b",
}


def name_cases() -> Iterator[Case]:
    """Yield the cases of names (N): each name when listing, and when about to be created."""
    for case, name in NAMES.items():
        yield asked(f"{case}-get", f"GET /v2/{name}/tags/list", 400, "NAME_INVALID")
        yield asked(f"{case}-post", f"POST /v2/{name}/blobs/uploads/", 400, "NAME_INVALID")
        yield asked(f"{case}-pull", f"GET /v2/{name}/manifests/v1", 400, "NAME_INVALID")
    yield asked("N27-no-slash", "GET /v2", 200)


def _image(world: World) -> bytes:
    return world.image.body


def _refused_put(case: str, target: str, code: str) -> Case:
    return asked(f"{case}-put", f"PUT {target}", 400, code, headers=MANIFEST, body=_image)


def tag_cases() -> Iterator[Case]:
    """Yield the cases of tags (T); those of immutable tags need a repository setting."""
    bad_tags = {
        "T2-129-characters": "t" * 129,
        "T5-newline": "latest%0A",
        "T5-nul": "latest%00",
        "T5-blank": "a%20b",
        "T4-leading-dot": ".INVALID_MANIFEST_NAME",
        "T4-leading-dash": "-dash",
        "T5-not-ascii": "%C3%A9",
    }
    for case, tag in bad_tags.items():
        target = "/v2/{repo}/manifests/" + tag
        yield asked(
            f"{case}-put", f"PUT {target}", 400, "MANIFEST_INVALID", headers=MANIFEST, body=_image
        )
        yield asked(f"{case}-get", f"GET {target}", 404, "MANIFEST_UNKNOWN")
        yield asked(f"{case}-delete", f"DELETE {target}", 404, "MANIFEST_UNKNOWN")
    yield asked(
        "T3-128-characters",
        "PUT /v2/{scratch}/manifests/" + "t" * 128,
        201,
        headers=MANIFEST,
        body=_image,
    )
    yield asked(
        "T4-invalid-name",
        "GET /v2/{repo}/manifests/.INVALID_MANIFEST_NAME",
        404,
        "MANIFEST_UNKNOWN",
    )
    bad_digests = {
        "T6-colon": "a:b",
        "T10-upper-case-hex": "sha256:" + "A" * 64,
        "T11-63-hex": "sha256:" + "a" * 63,
        "T11-65-hex": "sha256:" + "a" * 65,
        "T11-newline": "sha256:" + "a" * 63 + "%0A",
        "T11-not-hex": "sha256:" + "g" * 64,
        "T11-other-digits": "sha256:" + "%D9%A3" * 64,
        "T12-md5": "md5:" + "0" * 32,
        "T12-no-algorithm": ":" + "0" * 64,
        "T12-upper-case-algorithm": "SHA256:" + "0" * 64,
        "T12-long-algorithm": "a" * 6000 + ":" + "0" * 64,
    }
    for case, digest in bad_digests.items():
        target = "/v2/{repo}/manifests/" + digest
        yield asked(
            f"{case}-put", f"PUT {target}", 400, "DIGEST_INVALID", headers=MANIFEST, body=_image
        )
        yield asked(f"{case}-get", f"GET {target}", 400, "DIGEST_INVALID")
        yield asked(f"{case}-delete", f"DELETE {target}", 400, "DIGEST_INVALID")
    yield _refused_put("T9-other-bytes", "/v2/{repo}/manifests/{absent}", "DIGEST_INVALID")
