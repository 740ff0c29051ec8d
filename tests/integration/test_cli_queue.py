"""``entrepot queues``, and with it what all described nouns do, against a served registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.cli.commands.completion import nouns_of
from registry.cli.main import make_parser
from registry.cli.nouns.commands import CommandTable
from tests.entrepot import Home
from tests.integration.cli_world import World, cli_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with cli_world(tmp_path_factory.mktemp("world")) as made:
        yield made


def test_a_queue_is_made_listed_changed_and_deleted(world: World) -> None:
    world.done("queues", "create", "dead")
    made = world.done(
        *("queues", "create", "jobs", "--tag", "team=web", "--lease-seconds", "60"),
        *("--dead-letter-queue", "dead", "--max-leases", "3"),
    )
    assert made.text == "Created jobs; 'entrepot queues send jobs TEXT' sends it a message\n"
    shown = world.read("queues", "show", "jobs")
    assert (shown["name"], shown["tags"], shown["lease_seconds"]) == ("jobs", {"team": "web"}, 60)
    assert shown["redrive_policy"]["dead_letter_queue"]["name"] == "dead"
    for written in (shown["id"], shown["id"].upper(), shown["crn"]):
        assert world.read("queues", "show", written) == shown
    assert world.done("queues", "list", "--quiet").text.endswith("dead\njobs\n")
    head, *_, dead, jobs = world.done("queues", "list").lines
    assert head == "NAME RETENTION LEASE DEAD LETTERS CREATED ID"
    assert dead.startswith("dead 96 h 30 s - 20")
    assert jobs.startswith("jobs 96 h 1 min dead 20")
    changed = world.read("queues", "update", "jobs", "--no-redrive-policy", "--no-tags")
    assert (changed["redrive_policy"], changed["tags"]) == (None, {})
    assert world.done("queues", "update", "jobs", "--description", "Of jobs.").text == (
        "Changed jobs\n"
    )
    status, words = world.told("queues", "update", "jobs")
    assert (status, words) == (
        2,
        (
            "say what is to change: --description, --retention-seconds, --lease-seconds, "
            "--delay-seconds, --tag, --dead-letter-queue or --max-leases"
        ),
    )
    status, words = world.told(
        "queues", "update", "jobs", "--no-redrive-policy", "--max-leases", "3"
    )
    assert (status, words) == (2, "either redrive_policy is taken away, or it is set")
    assert world.told("queues", "show", "") == (2, "which queue? an empty text names none")
    assert world.told("queues", "show", "nothing") == (
        3,
        "there is no queue 'nothing'; 'entrepot queues list' shows those there are",
    )
    status, words = world.told("queues", "create", "jobs")
    assert (status, words.partition(" (")[0]) == (1, "CONFLICT: there is a queue of this name")
    assert world.done("queues", "delete", "jobs", "--yes").text == "Deleted jobs\n"
    assert "jobs" not in world.done("queues", "list", "--quiet").text.split()
    world.done("queues", "delete", "dead")


def test_messages_are_sent_leased_extended_and_acknowledged(world: World) -> None:
    world.done("queues", "create", "mail")
    sent = world.done("queues", "send", "mail", "first", "--attribute", "kind=a").lines
    assert sent[0] == "ID SENT"
    world.done("queues", "send", "mail", "-", stdin="of the standard input\n")
    leased = world.read("queues", "lease", "mail", "--max", "5", "--wait", "1")
    assert [each["body"] for each in leased] == ["first", "of the standard input\n"]
    assert leased[0]["attributes"] == {"kind": "a"}
    first, second = (each["lease_id"] for each in leased)
    extended = world.done("queues", "extend", "mail", first, "--lease-seconds", "600")
    assert extended.text == "Extended 1 of 1\n"
    ended = world.run("queues", "ack", "mail", first, "nothing")
    assert (ended.status, ended.text) == (1, "Acknowledged 1 of 2\n")
    assert ended.err == (
        "entrepot: nothing: NOT_FOUND: there is no such lease: it was acknowledged, or its "
        "message is gone\n"
    )
    answer = world.read("queues", "ack", "mail", second)
    assert answer == {"acknowledged": [second], "failures": []}
    world.done("queues", "send", "mail", "again")
    assert world.done("queues", "purge", "mail").text == "Purged mail\n"
    assert world.read("queues", "lease", "mail") == []
    assert world.read("queues", "show", "mail")["depth"]["visible"] == 0


def test_names_of_described_nouns_are_completed(world: World) -> None:
    for name in ("web-1", "web-2", "other"):
        world.done("queues", "create", name)
    ended = world.run("__complete", "queue", "web-", "--line", "entrepot queues show web-")
    assert ended.text == "web-1\nweb-2\n"
    (commands,) = (each for each in make_parser()._actions if isinstance(each, CommandTable))
    assert "queue" in nouns_of(commands)
    assert world.done("__complete", "key", "platf").text == "platform\n"


def test_who_may_not_list_queues_is_told_to_give_the_id(world: World, tmp_path: Path) -> None:
    made = world.read("queues", "create", "narrow")
    producer = Home(tmp_path)
    world.sign_in(
        producer, {"effect": "allow", "actions": ["queue:SendMessage"], "resources": [made["crn"]]}
    )
    for name in ("narrow", made["crn"]):
        status, words = world.told("queues", "send", name, "text", home=producer)
        assert status == 1
        assert words.startswith("ACCESS_DENIED: you may not do queue:ListQueues here")
        assert words.endswith("; the id of the queue is found without a list: give that")
    sent = world.done("queues", "send", made["id"], "text", home=producer)
    assert sent.lines[0] == "ID SENT"
