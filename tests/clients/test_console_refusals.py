"""What the console says to those who were refused: what was typed stays, and a way on is shown."""

from __future__ import annotations

import html
from importlib.metadata import version

import httpx
import pytest

from tests.clients.console_visitors import HOME, Site, Visitor, acting_as, complaint_in, found_in
from tests.clients.console_world import EMPTY, EMPTY_TYPE
from tests.clients.images import OCI


@pytest.fixture(scope="module")
def image(site: Site) -> str:
    """Return the page of an image with the tag `1`."""
    repository = site.pusher.repository("refused/image")
    made = site.pusher.image("refused/image", [("layer", 1, "COPY")], "1")
    return f"{HOME}/{repository}/images/{made['digest']}"


def check_kept(answer: httpx.Response, status: int, complaint: str, *values: str) -> None:
    """Check that a page complains in these words, beside a form with these values."""
    assert answer.status_code == status
    said = complaint_in(answer)
    assert said.startswith(complaint)
    for value in values:
        assert f'value="{html.escape(value)}"' in answer.text


@pytest.mark.parametrize(
    ("name", "status", "complaint"),
    [
        ("Not A Name", 400, "A repository's name is "),
        ("", 400, "Name: "),
        ("refused/image", 409, "There is a repository of this name."),
    ],
)
def test_a_repository_that_cannot_be_keeps_its_form(
    admin: Visitor, image: str, name: str, status: int, complaint: str
) -> None:
    assert image
    refused = admin.send(HOME, name=name, description='What "we" see', immutable="on")
    check_kept(refused, status, complaint, name)
    assert 'value="What &#34;we&#34; see"' in refused.text
    assert 'name="immutable" checked' in refused.text
    assert '<details class="new" open>' in refused.text


def test_a_description_that_cannot_be_is_named(admin: Visitor) -> None:
    refused = admin.send(HOME, name="fine", description="x" * 2000)
    check_kept(refused, 400, "Description: ", "fine")
    field = found_in(r'(<input id="description"[^>]*>)', refused.text)
    assert 'aria-invalid="true"' in field
    assert 'aria-describedby="refusal"' in field


@pytest.mark.parametrize(
    ("tag", "target", "status", "complaint"),
    [
        ("two words", "1", 400, "A tag is 1 to 128 letters"),
        ("next", "no-such", 404, "There is no tag no-such to point to."),
        ("next", f"sha256:{'0' * 64}", 404, "The repository has no such image."),
        ("next", "no digest", 400, "A digest is sha256:"),
    ],
)
def test_a_tag_that_cannot_be_keeps_its_form(
    admin: Visitor, image: str, tag: str, target: str, status: int, complaint: str
) -> None:
    tags = f"{image.partition('/images/')[0]}/tags"
    check_kept(admin.send(tags, tag=tag, target=target), status, complaint, tag, target)
    if " " not in tag:
        moved = admin.send(f"{tags}/1", target=target)
        check_kept(moved, status, complaint, target)
        assert ">History<" in moved.text


def test_a_tag_that_another_moved_meanwhile_is_looked_at_again(site: Site, admin: Visitor) -> None:
    name, call = "refused/moved", site.pusher.call
    repository = site.pusher.repository(name)
    first, second, third = (
        site.pusher.image(name, [(f"moved-{each}", 1, "COPY")], each)["digest"] for each in "abc"
    )
    tag = f"/v1/repositories/{repository}/tags/stable"
    call("PUT", tag, {"digest": first})
    page = f"{HOME}/{repository}/tags/stable"
    was = r'name="was" value="([^"]*)"'
    assert found_in(was, admin.http.get(page).text) == first
    call("PUT", tag, {"digest": second})
    refused = admin.send(page, was=first, target="c")
    check_kept(refused, 412, "The tag was moved meanwhile.", "c")
    assert found_in(was, refused.text) == second
    assert call("GET", tag)["tag"]["digest"] == second
    assert "Move stable?" in admin.send(page, was=second, target="c").text
    moved = admin.send(page, was=second, target="c", confirmed="yes")
    assert "The tag was moved." in admin.told(moved)
    assert call("GET", tag)["tag"]["digest"] == third


@pytest.mark.parametrize("was", ['sha256:"', "a\nb", "x", "é"])
def test_where_a_tag_was_may_be_anything(admin: Visitor, image: str, was: str) -> None:
    tags = f"{image.partition('/images/')[0]}/tags"
    assert admin.send(f"{tags}/1", was=was, target="1").status_code in (400, 412)


@pytest.mark.parametrize(
    ("name", "days", "complaint"),
    [
        ("a/b", "1", "A pin has a name"),
        ("Production", "1", "A pin's name is"),
        ("production", "0", "A pin lasts 1 to 3650 days"),
    ],
)
def test_a_pin_that_cannot_be_keeps_its_form(
    admin: Visitor, image: str, name: str, days: str, complaint: str
) -> None:
    check_kept(admin.send(f"{image}/pins", name=name, days=days), 400, complaint, name, days)


@pytest.mark.parametrize("prefix", ["two words", "שלום", "Shop", "x" * 500])
def test_no_repository_begins_like_that(admin: Visitor, prefix: str) -> None:
    found = admin.http.get(HOME, params={"prefix": prefix})
    assert found.status_code == 200
    assert f"No repository has a name that begins with <b>{prefix}</b>" in found.text


def test_a_preview_has_no_page_of_its_own(admin: Visitor, image: str) -> None:
    lifecycle = f"{image.partition('/images/')[0]}/lifecycle"
    there = admin.http.get(f"{lifecycle}/preview").headers["location"]
    assert there == "/console/acme/refused/image/-/lifecycle"


def test_who_may_not_see_a_policy_is_not_told_there_is_none(
    site: Site, admin: Visitor, image: str
) -> None:
    lifecycle = f"{image.partition('/images/')[0]}/lifecycle"
    assert "There is no policy" in admin.http.get(lifecycle).text
    reading = ("registry:DescribeRepositories", "registry:DescribeImages")
    with acting_as(site, "onlooker", reading) as onlooker:
        page = onlooker.http.get(lifecycle)
        assert page.status_code == 200
        assert "You may not see whether there is a policy." in page.text
        assert "Try rules" not in page.text
        assert "There is no policy" not in page.text


def test_a_form_after_the_sign_in_is_told_that_it_was_not_done(site: Site) -> None:
    with site.visitor() as stranger:
        sent = stranger.http.post(HOME, data={"name": "late"})
        assert "If you sent a form, sign in and send it again." in stranger.told(sent)


def test_a_forged_form_is_no_matter_of_roles(admin: Visitor) -> None:
    refused = admin.http.post(HOME, data={"csrf": "x", "name": "forged"})
    assert refused.status_code == 403
    assert "Another role" not in refused.text


def test_what_is_not_there_may_be_among_the_deleted(site: Site, admin: Visitor) -> None:
    repository = site.pusher.repository("refused/gone")
    made = site.pusher.image("refused/gone", [("gone", 1, "COPY")], "1")
    base = f"{HOME}/{repository}"
    page = f"{base}/images/{made['digest']}"
    assert admin.send(f"{page}/delete").status_code == 303
    back = admin.http.get(page)
    assert back.status_code == 404
    deleted = found_in(r'look under <a href="([^"]*)"', back.text)
    assert deleted == "/console/acme/refused/gone/-/deleted"
    assert made["digest"] in admin.http.get(deleted).text
    assert admin.send(f"{base}/delete").status_code == 303
    back = admin.http.get(base)
    assert found_in(r'look under <a href="([^"]*)"', back.text) == f"{HOME}/deleted"


def test_a_sign_in_begins_at_the_host_that_it_leads_back_to(site: Site, admin: Visitor) -> None:
    other = {"Host": "registry.example:5000"}
    asked = {"to": f"{HOME}?prefix=a"}
    with site.visitor() as stranger:
        moved = stranger.http.get("/console/sign-in", params=asked, headers=other)
        assert moved.status_code == 303
        assert "set-cookie" not in moved.headers
        there = httpx.URL(moved.headers["location"])
        assert str(there).startswith(f"{site.url}/console/sign-in?")
        assert there.params["to"] == asked["to"]
        begun = stranger.http.get(there)
        assert begun.headers["location"].startswith(f"{site.url}/v1/oauth/authorize?")
        behind_a_proxy = stranger.http.get(there, headers=other)  # it never comes by our name
        assert behind_a_proxy.headers["location"].startswith(f"{site.url}/v1/oauth/authorize?")


def test_who_has_signed_in_learns_the_version(site: Site, admin: Visitor) -> None:
    words = f"entrepot {version('entrepot')}</span></footer>"
    assert words in admin.http.get(HOME).text
    with site.visitor() as stranger:
        assert "<footer" not in stranger.http.get("/console/signed-out").text


def test_the_page_of_a_vast_manifest_is_bounded(site: Site, admin: Visitor) -> None:
    name, pusher = "refused/vast", site.pusher
    repository = pusher.repository(name)
    layer = pusher.blob(name, b"layer", OCI.layer)
    document = {
        "schemaVersion": 2,
        "mediaType": OCI.manifest,
        "config": pusher.blob(name, EMPTY, EMPTY_TYPE),
        "layers": [layer] * 1001,
        "annotations": {f"key-{number}": "value" for number in range(1101)},
    }
    image = pusher.image(name, [("child", 1, "COPY")])
    part = {key: image[key] for key in ("mediaType", "digest", "size")}
    attestation = {**part, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    page = admin.http.get(f"{HOME}/{repository}/images/{pusher.manifest(name, document)['digest']}")
    assert "and 801 layers more" in page.text
    assert "and 1,001 annotations more" in page.text
    assert page.text.count("<rect") < 300
    assert len(page.content) < 250_000
    index = pusher.index(name, [attestation] * 1000)
    page = admin.http.get(f"{HOME}/{repository}/images/{index['digest']}")
    assert "There is more than is shown." in page.text
    assert len(page.content) < 150_000
