"""What the forms of the console change, and what they say of what they are refused."""

from __future__ import annotations

import re

import pytest

from tests.clients.console_visitors import HOME, Site, Visitor, acting_as, complaint_in, found_in
from tests.clients.console_world import ATTESTATION, SIGNATURE, Descriptor

SETTINGS = "/console/settings"
RULES = f"{SETTINGS}/events"
COLLECTION = "/console/storage/collection"


def test_pins_policies_and_runs_are_set_by_forms(site: Site, admin: Visitor) -> None:
    repository = site.pusher.repository("by/forms")
    made = site.pusher.image("by/forms", [("layer", 10, "COPY")], "1")
    base = f"{HOME}/{repository}"
    image = f"{base}/images/{made['digest']}"

    assert ">production</b>" in admin.told(
        admin.send(f"{image}/pins", name="production", days="30")
    )
    for name, days in (("", "1"), ("a/b", "1"), ("a", "0"), ("a", "99999")):
        assert admin.send(f"{image}/pins", name=name, days=days).status_code == 400
    pinned = admin.send(f"{image}/delete")
    assert pinned.status_code == 409
    assert "production" in pinned.text
    assert "was taken away" in admin.told(admin.send(f"{image}/pins/production/delete"))

    rules = '[{"priority": 1, "selector": "untagged", "older_than_days": 1}]'
    lifecycle = f"{base}/lifecycle"
    assert admin.send(f"{lifecycle}/run", revision="1").status_code == 404
    assert "runs every day" in admin.told(admin.send(lifecycle, rules=rules))
    assert ">Runs<" in admin.told(admin.send(f"{lifecycle}/run", revision="1"))
    for wrong in ("", "{}", "[1]", '[{"priority": 1}]', '[{"priority": 1, "selector": "all"}]'):
        refused = admin.send(f"{lifecycle}/preview", rules=wrong)
        assert (refused.status_code, 'role="alert"' in refused.text) == (400, True)

    policy = (
        '{"version": "1", "statements": [{"effect": "allow", "principals": ["*"],'
        ' "actions": ["registry:PullImage"]}]}'
    )
    assert "Revision 1," in admin.told(admin.send(f"{base}/policy", document=policy))
    assert ">public<" in admin.http.get(base).text
    for wrong in ("", "[]", '{"version": "2"}'):
        refused = admin.send(f"{base}/policy", document=wrong)
        assert (refused.status_code, 'role="alert"' in refused.text) == (400, True)
    assert "There is no policy" in admin.told(admin.send(f"{base}/policy/delete"))


def test_settings_are_told_and_changed(site: Site, admin: Visitor) -> None:
    first = admin.http.get(SETTINGS).text
    assert 'value="7"' in first
    assert "and are the defaults" in first
    patterns = "crn:iam::acme:service-account/scan-*\r\n\r\n  *  \r\n"
    saved = admin.told(admin.send(SETTINGS, undelete_days="14", uncounted_pullers=patterns))
    assert "The settings were saved." in saved
    kept = site.pusher.call("GET", "/v1/registry-settings")["registry_settings"]
    assert kept["undelete_days"] == 14
    scan, everyone = kept["uncounted_pullers"]
    assert (scan.endswith(":service-account/scan-*"), everyone) == (True, "*")
    assert f"{scan}\n*</textarea>" in saved
    assert 'aria-describedby="keys-help" checked>' not in saved
    keys = {"undelete_days": "7", "access_key_login": "on"}
    back = admin.told(admin.send(SETTINGS, uncounted_pullers="", **keys))
    assert 'value="7"' in back
    assert 'aria-describedby="keys-help" checked>' in back
    kept = site.pusher.call("GET", "/v1/registry-settings")["registry_settings"]
    assert kept["access_key_login"]
    back = admin.told(admin.send(SETTINGS, undelete_days="7", uncounted_pullers=""))
    assert 'aria-describedby="keys-help" checked>' not in back


@pytest.mark.parametrize(
    ("days", "patterns", "words"),
    [
        ("", "", "The days are a whole number, 90 at the most."),
        ("-1", "", "The days are a whole number, 90 at the most."),
        ("91", "", "The days are a whole number, 90 at the most."),
        ("٣", "", "The days are a whole number, 90 at the most."),
        ("3", "*\n\nscanner", "scanner: "),
        ("3", "crn:iam::nobody-here:role/x", "crn:iam::nobody-here:role/x: name another"),
        ("3", "\n".join("*" * 51), ""),
    ],
)
def test_settings_that_cannot_be_are_told_beside_them(
    site: Site, admin: Visitor, days: str, patterns: str, words: str
) -> None:
    before = site.pusher.call("GET", "/v1/registry-settings")
    refused = admin.send(SETTINGS, undelete_days=days, uncounted_pullers=patterns)
    assert refused.status_code == 400
    assert complaint_in(refused).startswith(words)
    assert refused.text.count('aria-invalid="true"') == 1
    assert 'name="undelete_days" class="brief" inputmode="numeric" pattern="[0-9]*"' in refused.text
    assert f'value="{days}"' in refused.text
    assert patterns in refused.text
    assert site.pusher.call("GET", "/v1/registry-settings") == before


def test_event_rules_come_and_go(site: Site, admin: Visitor) -> None:
    assert "There is no rule" in admin.http.get(RULES).text
    site.pusher.call("POST", "/v1/topics", {"name": "deployments"})
    ticked = {"registry.image.pushed": "on", "registry.tag.moved": "on"}
    made = admin.send(RULES, topic="deployments", repository_prefix="shop/", **ticked)
    page = admin.told(made)
    assert "The rule was created." in page
    (rule,) = site.pusher.call("GET", "/v1/event-rules")["event_rules"]
    assert rule["topic"]["name"] == "deployments"
    assert rule["event_types"] == list(ticked)
    assert rule["repository_prefix"] == "shop/"
    assert f'title="{rule["topic"]["crn"]}">deployments<' in page
    assert "A tag was created, moved or restored</span>" in page
    assert "<code>shop/</code>" in page

    again = admin.send(RULES, topic=rule["topic"]["crn"], repository_prefix="shop/", **ticked)
    assert again.status_code == 409
    assert complaint_in(again) == "There is an equal rule."
    assert again.text.count(" checked>") == len(ticked)
    both = {"registry.*": "on", "registry.image.pushed": "on"}
    admin.told(admin.send(RULES, topic=rule["topic"]["crn"], **both))
    everything = site.pusher.call("GET", "/v1/event-rules")["event_rules"][1]
    assert (everything["event_types"], everything["repository_prefix"]) == (["registry.*"], "")

    for each in (rule, everything):
        gone = admin.told(admin.send(f"{RULES}/{each['id']}/delete"))
        assert "The rule was deleted." in gone
        assert admin.send(f"{RULES}/{each['id']}/delete").status_code == 404
    assert "There is no rule" in gone


@pytest.mark.parametrize(
    ("topic", "prefix", "ticked", "words"),
    [
        ("t", "", (), "Choose the events to send to the topic."),
        ("t", "", ("registry.image.exploded",), "Choose the events to send to the topic."),
        ("", "", ("registry.*",), "Topic: is the id, the name or the CRN of a topic"),
        ("two words", "", ("registry.*",), "Topic: is the id, the name or the CRN of a topic"),
        ("crn:iam::acme:role/admin", "", ("registry.*",), "Topic: the CRN of a topic is crn:"),
        (
            "crn:notifications:local:other:topic/t",
            "",
            ("registry.*",),
            "Topic: must be a topic of your account",
        ),
        ("t", "Shop", ("registry.*",), "No repository name can begin with this."),
    ],
)
def test_rules_that_cannot_be_are_told_beside_the_form(
    site: Site, admin: Visitor, topic: str, prefix: str, ticked: tuple[str, ...], words: str
) -> None:
    fields = {"topic": topic, "repository_prefix": prefix, **dict.fromkeys(ticked, "on")}
    refused = admin.send(RULES, **fields)
    assert refused.status_code == 400
    assert complaint_in(refused).startswith(words)
    assert f'value="{topic}"' in refused.text
    assert f'value="{prefix}"' in refused.text
    assert site.pusher.call("GET", "/v1/event-rules")["event_rules"] == []


def test_who_may_not_publish_to_a_topic_is_told_so(site: Site) -> None:
    with acting_as(site, "keeper", ["registry:*"]) as keeper:
        refused = keeper.send(RULES, topic="deployments", **{"registry.*": "on"})
    assert refused.status_code == 403
    assert complaint_in(refused).startswith("You may not do notifications:Publish on what ")
    assert 'name="topic"' not in refused.text  # no rule can be made, so there is no form


def named_in(page: str) -> list[str]:
    """Return the digests that the form of an index names, in its order."""
    return found_in(r'name="digests" value="([^"]*)"', page).split()


def digests_of(images: list[Descriptor]) -> set[str]:
    return {str(image["digest"]) for image in images}


def test_an_index_goes_with_what_nothing_else_needs(site: Site, admin: Visitor) -> None:
    pusher, name = site.pusher, "index/tangled"
    repository = pusher.repository(name)
    api = f"/v1/repositories/{repository}/images"

    def image(seed: str, *tags: str) -> Descriptor:
        return pusher.image(name, [("base", 50, "FROM"), (seed, 10, "RUN")], *tags)

    free, late, leaf = image("free"), image("late"), image("leaf")
    attestation = pusher.attach(name, free, ATTESTATION, 5)  # it is about what goes with it
    nested = pusher.index(name, [leaf])
    tagged, pinned, signed, shared = image("t", "kept"), image("p"), image("s"), image("o")
    pusher.call("PUT", f"{api}/{pinned['digest']}/pins/production", {"expires_at": None})
    pusher.attach(name, signed, SIGNATURE, 5)
    pusher.index(name, [shared], "other")
    goes = [free, late, leaf, attestation, nested]
    stays = [tagged, pinned, signed, shared]
    index = pusher.index(name, goes[:2] + goes[3:] + stays, "all")
    path = f"{HOME}/{repository}/images/{index['digest']}"

    page = admin.http.get(path).text
    named = named_in(page)
    assert named[:2] == [index["digest"], nested["digest"]]
    assert set(named) == digests_of([index, *goes])
    for why in (
        "it has a tag",
        "it is pinned",
        "something is attached to it",
        "another index lists it",
    ):
        assert page.count(f"stays: {why}<") == 1

    pusher.call("PUT", f"/v1/repositories/{repository}/tags/late", {"digest": late["digest"]})
    done = admin.send(f"{path}/delete-with-children", digests=" ".join([*named, tagged["digest"]]))
    assert done.status_code == 200
    assert "5 images were deleted." in done.text
    assert done.text.count("stays: it has a tag by now<") == 2
    there = {each["digest"] for each in pusher.call("GET", f"{api}?limit=200")["images"]}
    assert digests_of([*stays, late]) <= there
    assert not digests_of([index, free, leaf, attestation, nested]) & there
    assert admin.send(f"{path}/delete-with-children", digests=" ".join(named)).status_code == 404


def test_what_goes_with_an_index_frees_what_was_said(site: Site, admin: Visitor) -> None:
    pusher, name = site.pusher, "index/plain"
    repository = pusher.repository(name)
    other = pusher.image(name, [("shared", 300, "FROM")], "other")
    parts = [
        pusher.image(name, [("shared", 300, "FROM"), (arch, 70, "RUN")], architecture=arch)
        for arch in ("amd64", "arm64")
    ]
    index = pusher.index(name, parts, "1")
    path = f"{HOME}/{repository}/images/{index['digest']}"
    storage = pusher.call("GET", f"/v1/repositories/{repository}/images/{index['digest']}/storage")
    page = admin.http.get(path).text
    freed = found_in(r'It frees <b><span title="([0-9,]+) bytes">', page)
    assert int(freed.replace(",", "")) == storage["storage"]["exclusive_bytes"] > 0
    assert "Delete index and 2 images" in page
    assert (
        "delete-with-children"
        not in admin.http.get(f"{HOME}/{repository}/images/{other['digest']}").text
    )
    assert (
        admin.send(
            f"{HOME}/{repository}/images/{other['digest']}/delete-with-children",
            digests=str(other["digest"]),
        ).status_code
        == 409
    )

    admin.send(f"{path}/pins", name="production", days="")
    whole = {"digests": " ".join(named_in(page))}
    refused = admin.send(f"{path}/delete-with-children", **whole)
    assert refused.status_code == 409
    assert "No image was deleted." in refused.text
    assert refused.text.count("stays: ") == 3
    assert refused.text.count("<b>production</b>") == 1
    assert admin.send(f"{path}/delete-with-children", digests="x").status_code == 409
    done = admin.send(f"{path}/delete-with-children", force="on", **whole)
    assert "3 images were deleted." in done.text
    assert pusher.call("GET", f"/v1/repositories/{repository}/images")["meta"]["total"] == 1


def test_what_an_outer_index_lists_cannot_go(site: Site, admin: Visitor) -> None:
    pusher, name = site.pusher, "index/nested"
    repository = pusher.repository(name)
    inner = pusher.index(name, [pusher.image(name, [("inner", 10, "RUN")])])
    outer = pusher.index(name, [inner], "1")
    base = f"{HOME}/{repository}/images"
    assert "delete-with-children" not in admin.http.get(f"{base}/{inner['digest']}").text
    assert "Delete index and 2 images" in admin.http.get(f"{base}/{outer['digest']}").text


def test_the_collector_is_shown_and_started(site: Site, admin: Visitor) -> None:
    pusher = site.pusher
    pusher.repository("collected")
    pusher.fill_stages("collected")
    status = pusher.call("GET", "/v1/garbage-collection")["garbage_collection"]
    page = admin.http.get(COLLECTION).text
    for stage in ("unreferenced", "condemned", "quarantined"):
        held = status[f"{stage}_bytes"]
        assert held > 0
        style = rf'class="swatch {stage}"[^/]*></span>[\w ]+</p>\s*'
        shown = found_in(rf'{style}<p class="held"><b><span title="([^"]*)">', page)
        assert shown == f"{held:,} bytes"
    usage = pusher.call("GET", "/v1/storage-usage")["storage_usage"]
    late = [status["condemned_bytes"], status["quarantined_bytes"]]
    drawn = usage["pending_sweep_bytes"] - sum(late), *late
    words = ", unreferenced: {} B, condemned: {} B, in quarantine: {} B".format(*drawn)
    assert f'{words}"' in page

    assert "A run of the collector has started." in admin.told(admin.send(COLLECTION))
    pusher.collect()
    page = admin.http.get(COLLECTION).text
    assert "Collect now" in page
    row = found_in(r"(?s)<tbody>\s*<tr>(.*?)</tr>", page)
    assert ">succeeded<" in row
    assert re.search(r'title="crn:[^"]*">(?:admin \(service account\)|\S+ as admin)<', row)
