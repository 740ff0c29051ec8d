"""The small parts of the console: words, pictures, paths, what pushed documents may be."""

from __future__ import annotations

import re

import msgspec
import pytest

from registry.console.contents import (
    Configuration,
    Descriptor,
    Manifest,
    layers_of,
    platforms_of,
)
from registry.console.drawing import WIDTH, bar, layer_shares
from registry.console.messages import Response
from registry.console.referrers import kind_of
from registry.console.rendering import short_digest, size_of, span, who
from registry.console.routing import Route, Router
from registry.console.sign_in import HOME, page_of_ours
from registry.console.visit import Visit

ID = "01a1fe0c-d624-783e-a91d-7a6ce23df8b5"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (99.94 * 1024, "99.9 KiB"),
        (100 * 1024, "100 KiB"),
        (1023 * 1024, "1.0 MiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 63, "8.0 EiB"),
    ],
)
def test_sizes_have_three_digits_at_most(count: float, words: str) -> None:
    assert size_of(int(count)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "1 second"),
        (59, "59 seconds"),
        (60, "1 minute"),
        (3600, "1 hour"),
        (47 * 3600, "47 hours"),
        (7 * 86400 - 1, "7 days"),
        (90 * 86400, "3 months"),
        (3 * 365 * 86400, "3 years"),
    ],
)
def test_spans_are_told_roughly(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("crn", "name"),
    [
        ("crn:iam::a:service-account/ci", "ci (service account)"),
        ("crn:iam::a:role/admin", "admin (role)"),
        ("crn:registry:local:a:lifecycle-run/1", "lifecycle policy"),
        ("crn:iam::o:user/1", "user 1"),
        (None, "nobody signed in"),
        ("", "nobody signed in"),
    ],
)
def test_principals_have_names(crn: str | None, name: str) -> None:
    assert who(crn) == name


def test_digests_are_cut() -> None:
    assert short_digest("sha256:" + "ab" * 32) == "sha256:abababababab"


@pytest.mark.parametrize(
    ("artifact_type", "kind"),
    [
        ("application/vnd.cncf.notary.signature", "Signature"),
        ("application/vnd.dev.cosign.artifact.sig.v1+json", "Signature"),
        ("application/vnd.dev.sigstore.bundle.v0.3+json", "Signature"),
        ("application/spdx+json", "SBOM"),
        ("application/vnd.cyclonedx+json", "SBOM"),
        ("application/vnd.in-toto+json", "Attestation"),
        ("application/sarif+json", "Scan report"),
        ("application/x-else", "Artifact"),
        ("", "Artifact"),
    ],
)
def test_types_speak_of_something(artifact_type: str, kind: str) -> None:
    assert kind_of(artifact_type) == kind


def test_a_bar_is_as_wide_as_its_parts_and_no_wider() -> None:
    drawn = bar(layer_shares([1 << 30, 1, 1, 0, 1]), "layers")
    widths = [float(found) for found in re.findall(r'width="([0-9.]+)"', drawn)]
    assert len(widths) == 4  # what is empty is not drawn
    assert min(widths) > 2  # what is there is seen
    assert sum(widths) == pytest.approx(WIDTH, abs=0.1)
    half = bar([(50, "a", "only")], "half", 100)
    assert 'width="500.00"' in half
    assert "<rect" not in bar([], "nothing")


def test_a_bar_keeps_words_from_being_markup() -> None:
    drawn = bar([(1, "<b>", 'x" onload="y')], '"><script>')
    assert "<b>" not in drawn
    assert "<script>" not in drawn
    assert 'onload="' not in drawn


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        HOME,
        "/console/repositories?prefix=a%2Fb",
        f"{HOME}/{ID}/tags/1.0?said=tag-moved",
        f"{HOME}/{ID}/images/sha256:a1",
    ],
)
def test_the_way_back_may_be_a_page(path: str) -> None:
    assert page_of_ours(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/v1/repositories",
        "/consoles",
        "/console" + "/a" * 600,
        "/console#x",
        "/console%2f",
        "/console//evil.example",
        "/console/../v1/repositories",
        "/console@evil.example",
        "/console\r\nX: y",
        "/console/a\n",
        "//evil.example/console",
        "https://evil.example/console",
        "/\\evil.example",
        "javascript:alert(1)",
        "/console/sign-in",
        "/console/signed-in?code=1",
        "/console/signed-out",
    ],
)
def test_the_way_back_may_be_nothing_else(path: str) -> None:
    assert page_of_ours(path) == HOME


async def nothing(visit: Visit, _: object) -> Response:
    raise AssertionError(visit)


def test_paths_are_matched_whole_and_strictly() -> None:
    router = Router(
        [
            Route("GET", "/r/{repository}/images/{digest}", nothing),
            Route("GET", "/r/{repository}/tags/{tag}", nothing),
        ]
    )
    found = router.find("GET", f"/r/{ID}/images/sha256:{'0a' * 32}")
    assert found is not None
    assert found[1] == {"repository": ID, "digest": f"sha256:{'0a' * 32}"}
    assert router.find("POST", f"/r/{ID}/images/sha256:00") is None
    for path in (
        f"/r/{ID.upper()}/tags/a",
        f"/r/{ID}/tags/a/b",
        f"/r/{ID}/tags/",
        f"/r/{ID}/tags/.a",
        f"/r/{ID}/tags/a%2fb",
        f"/r/{ID}/tags/a\n",
        f"/r/{ID}/images/sha256:../..",
        f"/x/r/{ID}/tags/a",
    ):
        assert router.find("GET", path) is None, path


def test_layers_have_the_steps_that_made_them_or_none() -> None:
    manifest = Manifest(layers=[Descriptor("sha256:1", 1), Descriptor("sha256:2", 2)])
    steps = [{"created_by": "A"}, {"empty_layer": True}, {"created_by": "B"}]
    configuration = msgspec.convert({"history": steps}, Configuration)
    assert [layer.made_by for layer in layers_of(manifest, configuration)] == ["A", "B"]
    assert [layer.made_by for layer in layers_of(manifest, None)] == ["", ""]
    lying = msgspec.json.decode(b'{"history":[{"created_by":"A"}]}', type=Configuration)
    assert [layer.made_by for layer in layers_of(manifest, lying)] == ["", ""]
    assert layers_of(Manifest(), configuration) == []


def test_attestations_are_no_platforms() -> None:
    index = b"""{"manifests": [
      {"digest": "sha256:1", "size": 1, "platform": {"os": "linux", "architecture": "arm",
       "variant": "v7", "os.version": "1"}},
      {"digest": "sha256:2", "size": 1, "platform": {"os": "unknown", "architecture": "unknown"},
       "annotations": {"vnd.docker.reference.type": "attestation-manifest",
                       "vnd.docker.reference.digest": "sha256:1"}},
      {"digest": "sha256:3", "size": 1}
    ]}"""
    manifest = msgspec.json.decode(index, type=Manifest)
    assert platforms_of(manifest) == ["linux/arm/v7"]
    assert manifest.manifests is not None
    assert manifest.manifests[1].about == "sha256:1"
