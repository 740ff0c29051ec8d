"""Uploads (U). ``{upload}`` is a session of `repo` that holds ten bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.integration.bad_input.case import Case, asked

UPLOAD = "/v2/{repo}/blobs/uploads/{upload}"
UNKNOWN = "BLOB_UPLOAD_UNKNOWN"
TEN = b"0123456789"
OVER_LIMIT = str((100 << 30) + 1)


def upload_cases() -> Iterator[Case]:
    """Yield the cases of uploads (U), as far as one request can show it."""
    yield from _digests()
    yield from _ranges()
    yield from _sessions()
    yield from _bodies()


def _ranged(
    case: str,
    request: str,
    value: str,
    *expected: int | str,
    body: bytes = TEN,
    answer: Mapping[str, str] | None = None,
) -> Case:
    """Return the case of a chunk with a ``Content-Range``."""
    place = {"Content-Range": value}
    return asked(case, request, *expected, headers=place, body=body, answer=answer)


def _digests() -> Iterator[Case]:
    bad = {
        "U1-no-digest": "",
        "U3-empty": "?digest=",
        "U3-nonsense": "?digest=nonsense",
        "U3-short": "?digest=sha256:abc",
        "U3-upper-case": "?digest=sha256:" + "A" * 64,
        "U3-blank": "?digest=sha256:" + "a" * 63 + "%20",
        "U4-md5": "?digest=md5:" + "0" * 32,
        "U5-twice": "?digest={absent}&digest={free}",
    }
    for case, query in bad.items():
        yield asked(case, f"PUT {UPLOAD}{query}", 400, "DIGEST_INVALID")
    yield asked(
        "U3-not-utf-8",
        f"PUT {UPLOAD}?digest=sha256:%FF",
        400,
        "DIGEST_INVALID",
        "UNSUPPORTED",
    )
    yield asked(
        "U2-other-bytes", f"PUT {UPLOAD}?digest={{absent}}", 400, "DIGEST_INVALID", ends_upload=True
    )
    single = "POST /v2/{repo}/blobs/uploads/?digest="
    for case, value in {"gap": "5-14", "far": "9" * 18 + "-" + "9" * 18}.items():
        for query in ("digest={absent}", "mount={absent}&from={other}&digest={absent}"):
            yield _ranged(
                f"U30-{case}-{query[:5]}",
                "POST /v2/{repo}/blobs/uploads/?" + query,
                value,
                416,
                "BLOB_UPLOAD_INVALID",
                body=TEN if case == "gap" else b"x",
            )
    for case, value, code in (
        ("long", "0-10", "SIZE_INVALID"),
        ("short", "0-8", "SIZE_INVALID"),
        ("junk", "bytes 0-9/10", "BLOB_UPLOAD_INVALID"),
    ):
        yield _ranged(f"U30-span-{case}", single + "{absent}", value, 400, code)
    yield asked("U30-other-bytes", single + "{absent}", 400, "DIGEST_INVALID", body=TEN)
    yield asked("U30-nonsense", single + "nonsense", 400, "DIGEST_INVALID", body=TEN)
    yield asked("U30-md5", single + "md5:" + "0" * 32, 400, "DIGEST_INVALID", body=TEN)
    hint = "POST /v2/{repo}/blobs/uploads/?digest-algorithm="
    for case, value in {"md5": "md5", "empty": "", "nul": "%00", "long": "s" * 9000}.items():
        yield asked(f"U4-hint-{case}", hint + value, 400, "DIGEST_INVALID")


def _ranges() -> Iterator[Case]:
    now = {"range": "0-9"}
    far = "9223372036854775808-9223372036854775817"
    out_of_order = {"U7-replay": "0-9", "U8-gap": "11-20", "U8-overlap": "9-18", "U8-far": far}
    for case, value in out_of_order.items():
        for method, target in (("PATCH", UPLOAD), ("PUT", UPLOAD + "?digest={absent}")):
            yield _ranged(
                f"{case}-{method.lower()}",
                f"{method} {target}",
                value,
                416,
                "BLOB_UPLOAD_INVALID",
                answer=now,
            )
    malformed = ["bytes 10-19/20", "bytes=10-19", "10-", "-19", "ten", "10-19,20-29", "+10-19", ""]
    malformed += [
        "\N{ARABIC-INDIC DIGIT ONE}0-19".encode().decode("latin-1"),
        "10 - 19",
        "0x0a-19",
        "-0",
        "-0-9",
    ]
    other_lengths = ["10-18", "10-20", "10-10", "10-9223372036854775807"]
    for code, values in (("BLOB_UPLOAD_INVALID", malformed), ("SIZE_INVALID", other_lengths)):
        for number, value in enumerate(values):
            for request in (f"PATCH {UPLOAD}", f"PUT {UPLOAD}?digest={{absent}}"):
                method = request.partition(" ")[0].lower()
                yield _ranged(f"U9-{code}-{number}-{method}", request, value, 400, code)
    either = ("BLOB_UPLOAD_INVALID", "SIZE_INVALID")
    doubtful = {
        "U11-backward": ("9-0", 400, 416),
        "U11-backward-at-offset": ("10-0", 400, 416),
        "U14-5000-digit-end": ("10-" + "9" * 5000, 400, 400),
        "U14-5000-digit-start": ("9" * 5000 + "-" + "9" * 5000, 400, 416),
        "U14-leading-zeros": ("0" * 5000 + "-9", 400, 416),
    }
    for case, (value, *statuses) in doubtful.items():
        yield _ranged(case, f"PATCH {UPLOAD}", value, *statuses, *either)


def _sessions() -> Iterator[Case]:
    for method, query in (
        ("PATCH", ""),
        ("PUT", "?digest={free}"),
        ("GET", ""),
        ("DELETE", ""),
    ):
        body = TEN if method in {"PATCH", "PUT"} else b""
        for case, repository, session in (
            ("U18-committed", "repo", "{committed}"),
            ("U22-other-repository", "other", "{upload}"),
            ("U24-random", "repo", "0193a1b2-7c4d-7e8f-9a0b-1c2d3e4f5a6b"),
            ("U27-cancelled", "repo", "{cancelled}"),
        ):
            yield asked(
                f"{case}-{method.lower()}",
                f"{method} /v2/{{{repository}}}/blobs/uploads/{session}{query}",
                404,
                UNKNOWN,
                body=body,
            )
    spellings = {
        "dots": "..",
        "encoded-climb": "%2e%2e",
        "braces": "%7B{upload}%7D",
        "urn": "urn:uuid:{upload}",
        "dashless": "{dashless}",
        "upper-case": "{shouted}",
        "full-width-digit": "%EF%BC%90{tail}",
        "nul": "{upload}%00",
        "newline": "{upload}%0A",
        "not-utf-8": "%FF",
        "long": "a" * 5000,
    }
    for case, spelling in spellings.items():
        expected = (400, "NAME_INVALID") if case == "not-utf-8" else (404, UNKNOWN)
        yield asked(f"U25-{case}", f"GET /v2/{{repo}}/blobs/uploads/{spelling}", *expected)
    yield asked("U26-tampered-state", f"GET {UPLOAD}?_state=AAAA&offset=-1", 204)


def _bodies() -> Iterator[Case]:
    chunked = {"Transfer-Encoding": "chunked"}
    yield asked(
        "U17-chunked", f"PATCH {UPLOAD}", 202, headers=chunked, body=b"5\r\nhello\r\n0\r\n\r\n"
    )
    over = {"Content-Length": OVER_LIMIT}
    uploads = "/v2/{repo}/blobs/uploads/"
    for case, request, status, code in (
        ("U32-limit-patch", f"PATCH {UPLOAD}", 413, "SIZE_INVALID"),
        ("U32-limit-put", f"PUT {UPLOAD}?digest={{absent}}", 413, "SIZE_INVALID"),
        ("U32-limit-post", f"POST {uploads}?digest={{absent}}", 413, "SIZE_INVALID"),
        ("U32-limit-manifest", "PUT /v2/{repo}/manifests/bad", 413, "MANIFEST_INVALID"),
        ("U29-no-session", f"PATCH {uploads}{{cancelled}}", 404, UNKNOWN),
        ("U29-bad-digest", f"POST {uploads}?digest=nonsense", 400, "DIGEST_INVALID"),
        ("U29-bad-name", "POST /v2/{repo}/R/blobs/uploads/?digest={absent}", 400, "NAME_INVALID"),
        ("U29-no-such-method", "PUT /v2/{repo}/tags/list", 405, "UNSUPPORTED"),
    ):
        yield asked(case, request, status, code, headers=over, answer={"connection": "close"})
