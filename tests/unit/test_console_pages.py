"""The small parts of the console: words, pictures, paths, what pushed documents may be."""

from __future__ import annotations

import re
from importlib import resources
from typing import get_args

import pytest

from cloudcore.commands.records import size_text
from cloudcore.errors import Conflict
from cloudcore.identity.oauth.pages import code_page
from cloudcore.web.reference_pages import page
from registry.composition.families import FAMILIES
from registry.console.addresses import HOME
from registry.console.control_plane import Refused
from registry.console.form_refusals import line_of, takes_own_rights
from registry.console.form_refusals import refusal_of as refused_form
from registry.console.pages.access.policies import matches, principal_of, resource_of
from registry.console.pages.access.sign_in import own_page
from registry.console.pages.account.event_rules import chosen_types
from registry.console.pages.account.settings import settings_refusal
from registry.console.pages.repositories.image_contents import layers_of
from registry.console.pages.repositories.image_deletion import REASONS
from registry.console.pages.repositories.image_rows import kind_of
from registry.console.rendering import (
    WIDTH,
    bar,
    layer_shares,
    short_digest,
    span,
    template_engine,
    who,
)
from registry.console.sessions import Acting, ConsoleSession, Token
from registry.oci.image_contents import ContentDescriptor, ManifestContents, parse_contents
from registry.services.images import index_deletion

ID = "01a1fe0c-d624-783e-a91d-7a6ce23df8b5"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_940, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1 << 20, "1.0 MB"),
        (3 << 30, "3.2 GB"),
        (1 << 50, "1.1 PB"),
        (1 << 63, "9223.4 PB"),
    ],
)
def test_sizes_have_units_of_powers_of_1000(count: int, words: str) -> None:
    assert size_text(count) == words


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
        ("crn:registry:local:a:garbage-collection-run/1", "garbage collection"),
        ("crn:iam::o:user/1", "user 1"),
        (None, "nobody signed in"),
        ("", "nobody signed in"),
    ],
)
def test_principals_have_names(crn: str | None, name: str) -> None:
    assert who(crn) == name


@pytest.mark.parametrize(
    ("session", "words"),
    [
        ("ann@example.com", "ann@example.com as ops"),
        ("friday-fix", "ann@example.com as ops, session friday-fix"),
        (None, "ops (role)"),
    ],
)
def test_who_is_the_person_behind_a_role(session: str | None, words: str) -> None:
    source = {"crn": "crn:iam::1:user/2", "name": "ann@example.com", "session_name": session}
    assert who("crn:iam::1:role/ops", source) == words
    if session is None:
        assert who("crn:iam::1:user/2", source) == "ann@example.com"


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


def test_a_search_has_all_words_in_any_case() -> None:
    assert matches("PULL image", "registry:PullImage")
    assert not matches("pull role", "registry:PullImage")
    assert matches("", "anything")


def test_an_error_is_at_the_line_of_its_value() -> None:
    assert line_of("b", '{\n "a",\n "b"}') == 3
    assert line_of("c", '{"a"}') == 0


def test_names_stand_for_what_is_meant() -> None:
    assert principal_of("ci", "acme") == "crn:iam::acme:service-account/ci"
    assert principal_of("role/admin", "acme") == "crn:iam::acme:role/admin"
    for written in ("*", "crn:iam::acme:role/admin", "person/x"):
        assert principal_of(written, "acme") == written
    assert resource_of("web/app", "acme", "eu") == "crn:registry:eu:acme:repository/web/app"
    assert resource_of("crn:iam::acme:role/x", "acme", "eu") == "crn:iam::acme:role/x"


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        HOME,
        "/console/repositories?prefix=a%2Fb",
        f"{HOME}/{ID}/tags/1.0?said=tag-moved",
        f"{HOME}/{ID}/images/sha256:a1",
        "/console/acme/web/frontend@sha256:a1",
        "/console/acme/web/frontend:1.4?marker=a",
    ],
)
def test_the_way_back_may_be_a_page(path: str) -> None:
    assert own_page(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/v1/repositories",
        "/consoles",
        "/console" + "/a" * 600,
        *("/console#x", "/console%2f", "/console//evil.example", "/console/../v1/repositories"),
        *("/console@evil.example", "/console\r\nX: y", "/console/a\n", "//evil.example/console"),
        *("https://evil.example/console", "/\\evil.example", "javascript:alert(1)"),
        *("/console/sign-in", "/console/signed-in?code=1", "/console/signed-out"),
    ],
)
def test_the_way_back_may_be_nothing_else(path: str) -> None:
    assert own_page(path) == HOME


def test_layers_have_the_steps_that_made_them_or_none() -> None:
    manifest = ManifestContents(
        layers=[ContentDescriptor("sha256:1", 1), ContentDescriptor("sha256:2", 2)]
    )
    steps = [{"created_by": step, "empty_layer": not step} for step in ("A", "", "B")]
    configuration = {"history": steps}
    assert [layer.made_by for layer in layers_of(manifest, configuration)] == ["A", "B"]
    assert [layer.made_by for layer in layers_of(manifest, None)] == ["", ""]
    lying = {"history": steps[:1]}
    assert [layer.made_by for layer in layers_of(manifest, lying)] == ["", ""]
    assert layers_of(ManifestContents(), configuration) == []


def test_attestations_are_no_platforms() -> None:
    index = b"""{"manifests": [
      {"digest": "sha256:1", "size": 1, "platform": {"os": "linux", "architecture": "arm",
       "variant": "v7", "os.version": "1"}},
      {"digest": "sha256:2", "size": 1, "platform": {"os": "unknown", "architecture": "unknown"},
       "annotations": {"vnd.docker.reference.type": "attestation-manifest",
                       "vnd.docker.reference.digest": "sha256:1"}},
      {"digest": "sha256:3", "size": 1}
    ]}"""
    manifest = parse_contents(index)
    assert manifest is not None
    assert manifest.platforms == ["linux/arm/v7"]
    assert manifest.manifests is not None
    assert manifest.manifests[1].about == "sha256:1"


def test_each_reason_to_stay_has_words() -> None:
    assert set(REASONS) == set(get_args(index_deletion.KeptReason))


def test_each_type_of_event_can_be_chosen() -> None:
    told = {f"{each.name}.*": ("", each.events_in_words) for each in FAMILIES if each.events}
    each = {name: "on" for _, types in told.values() for name in types}
    assert set(each) == {name for family in FAMILIES for name in family.events}
    form = {"csrf": "x", "topic": "registry.tag.moved", **each}
    assert set(chosen_types(told, form)) == set(each)
    kept = {"storage.*", *each} - set(told["storage.*"][1])
    assert set(chosen_types(told, each | {"storage.*": "on"})) == kept
    assert chosen_types(told, {"registry.else": "on"}) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("queue.queue.purged", "A queue was purged"),
        ("email.suppression.created", "A suppression was created"),
        ("registry.image.pushed", "An image was pushed"),
        ("registry.tag.moved", "A tag was created, moved or restored"),
        ("kms.key.deletion_scheduled", "The deletion of a key was scheduled"),
        ("certificate.renewal.failed", "A certificate could not be renewed"),
    ],
)
def test_events_are_told_in_sentences(name: str, words: str) -> None:
    (family,) = [each for each in FAMILIES if each.name == name.partition(".")[0]]
    assert family.events_in_words[name] == words


@pytest.mark.parametrize(
    ("field", "message", "told"),
    [
        (
            "uncounted_pullers[1]",
            "uncounted_pullers[1]: no such",
            ("uncounted_pullers", "b: no such"),
        ),
        ("uncounted_pullers[2]", "x", ("uncounted_pullers[2]", "X.")),
        ("uncounted_pullers", "too many", ("uncounted_pullers", "Too many.")),
        ("undelete_days", "expected int", ("undelete_days", "The days are a whole number, 90 at")),
        ("body", "it is odd", ("body", "It is odd.")),
    ],
)
def test_refused_settings_are_told_in_words(
    field: str, message: str, told: tuple[str, str]
) -> None:
    refused = Refused(400, "INVALID_INPUT", message, "request", {"field": field})
    _, words, found = settings_refusal(refused, ["a", "b"])
    assert found == told[0]
    assert words.startswith(told[1])


def test_another_conflict_is_no_question() -> None:
    error = Refused(409, Conflict.__name__, "the policy is attached there", "id")
    assert not takes_own_rights(error)
    assert refused_form(error).status == 409


_NOTHING: dict[str, object] = {"schemas": {}}
_COLOUR = re.compile(r"(--[a-z-]+): (#[0-9a-f]{6});")


def test_other_pages_have_the_colours_of_the_console() -> None:
    style = resources.files("registry.console").joinpath("static/console.css").read_text()
    light, dark = style.split("@media (prefers-color-scheme: dark)", 1)
    reference = page({"info": {"title": "", "version": ""}, "paths": {}, "components": _NOTHING})
    for other, least in ((code_page("x"), 10), (reference, 7)):
        page_light, page_dark = other.split("@media (prefers-color-scheme: dark)", 1)
        for mine, theirs in ((page_light, light), (page_dark, dark)):
            colours = dict(_COLOUR.findall(mine))
            assert len(colours) > least
            assert colours.items() <= dict(_COLOUR.findall(theirs)).items()
        font = re.findall(r"font: (.*);", page_light)[0]
        assert f"font: {font};" in light
    base = resources.files("registry.console").joinpath("templates/base.html").read_text()
    (box,) = re.findall(r'<path d="([^"]+)"', code_page("x"))
    assert box in base


def render(template: str, values: dict[str, object]) -> bytes:
    return template_engine().get_template(template).render({"now": 0, **values}).encode()


def test_a_collection_can_be_shown_whatever_is_known_of_it() -> None:
    acting = Acting("1", "reader", "2", "acme", Token("", 0))
    session = ConsoleSession("3", "ann@example.com", "csrf", 0, Token("", 0), "", acting)
    run = {
        **dict.fromkeys(("unlinked", "condemned", "swept", "removed", "kept"), 1234),
        "freed_bytes": 1 << 20,
        "status": "running",
        "started_by": None,
        "fault": "IO: <disk>",
        "started_at": "2026-11-02T08:15:00.000000Z",
    }
    known: dict[str, object] = {
        "session": session,
        "path": "/console/storage/collection",
        "is_repository": False,
        "query": {},
        "said": None,
        "services": [],
        "usage": None,
        "may_all": lambda _: True,
        "may_some": lambda _: True,
        "meta": {"total": 1, "has_more": False},
    }
    stages = ("unreferenced", "condemned", "quarantined")
    zeros = {
        **{f"{stage}_{what}": 0 for stage in stages for what in ("bytes", "blobs")},
        **dict.fromkeys(("grace_seconds", "condemned_seconds", "quarantine_seconds"), 0),
    }

    def shown(status: str, *runs: object) -> bytes:
        collection = {**zeros, "status": status, "last_run": runs[0] if runs else None}
        values = {**known, "collection": collection, "runs": runs}
        return render("garbage_collection.html", values)

    nothing_known = shown("idle")
    assert b"There was no run yet." in nothing_known
    assert b"You may not see this." in nothing_known
    assert nothing_known.count(b"at the next run") == 3
    assert b"<rect" not in nothing_known
    running = shown("running", run)
    assert b"Collect now" not in running
    assert b"IO: &lt;disk&gt;" in running
    assert b"itself" in running
    assert b'1.0 MB</span></b> <span class="quiet">1,234 blobs' in running
