"""The registry that the scale benchmark lays row by row, and what its report makes of numbers."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from benchmarks.scale import LIMIT, Row, Waited
from benchmarks.scale_data import BLOCK, LATEST, Contents
from benchmarks.scale_rows import SLOW
from benchmarks.scale_site import Costs
from registry.metadata.control_tables import tag_events
from registry.oci.digest import digest_of
from registry.oci.manifest import parse_manifest

DAY = 24 * 3600 * 10**6
NOW = 1_800_000_000 * 10**6


def contents(images: int = 3 * BLOCK, tags: int = 100) -> Contents:
    return Contents("0190c3f0-0000-7000-8000-000000000001", images, tags, BLOCK, NOW)


def laid(of: Contents) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table by column."""
    return {
        each.table: [dict(zip(each.columns.split(","), row, strict=True)) for row in each.rows]
        for each in of.tables()
    }


def costs(latency: float, cpu: float) -> Costs:
    return Costs([latency, latency, 10 * latency], cpu)


def test_every_row_has_the_columns_of_its_table() -> None:
    for each in contents().tables():
        assert set(each.columns.split(",")) <= set(tag_events.metadata.tables[each.table].c.keys())


def test_what_rows_refer_to_is_there() -> None:
    rows = laid(contents())
    of = {
        table: {row[column] for row in rows[table]}
        for table, column in (
            *(("manifests", "id"), ("repository_blobs", "digest"), ("blob_objects", "id")),
            *(("manifest_bodies", "digest"), ("deleted_manifests", "id")),
        )
    }
    assert {row["manifest_id"] for row in rows["tags"]} <= of["manifests"]
    assert {row["child_id"] for row in rows["manifest_children"]} <= of["manifests"]
    assert {row["digest"] for row in rows["manifest_blobs"]} == of["repository_blobs"]
    assert {row["object_id"] for row in rows["repository_blobs"]} <= of["blob_objects"]
    assert {row["object_id"] for row in rows["deleted_manifest_blobs"]} <= of["blob_objects"]
    assert {row["manifest_id"] for row in rows["deleted_manifest_blobs"]} == of["deleted_manifests"]
    both = rows["manifests"] + rows["deleted_manifests"]
    assert {row["digest"] for row in both} == of["manifest_bodies"]


def test_counters_are_what_a_recount_finds() -> None:
    rows = laid(contents())
    tags = Counter(row["manifest_id"] for row in rows["tags"])
    edges = Counter((row["repository_id"], row["digest"]) for row in rows["manifest_blobs"])
    assert {row["image_count"] for row in rows["repositories"]} == {3 * BLOCK, 1, 0}
    for row in rows["repositories"]:

        def of(table: str, repository_id: str = row["id"]) -> list[dict[str, Any]]:
            return [each for each in rows[table] if each["repository_id"] == repository_id]

        assert row["image_count"] == len(of("manifests"))
        assert row["tag_count"] == len(of("tags"))
        assert row["tagged_image_count"] == len({tag["manifest_id"] for tag in of("tags")})
        assert row["deleted_image_count"] == len(of("deleted_manifests"))
        assert row["deleted_tag_count"] == len(of("deleted_tags"))
        assert row["size_bytes"] == sum(link["size"] for link in of("repository_blobs"))
    names = [row["name"] for row in rows["repositories"] if row["deleted_at"] is None]
    for row in rows["repository_folders"]:
        held = [name for name in names if name.startswith(row["folder"])]
        assert row["repository_count"] == len(held)
    deletions = {
        number: row["tag"]
        for number, row in enumerate(rows["tag_events"], 1)
        if row["action"] == "deleted"
    }
    assert {row["sequence"]: row["name"] for row in rows["deleted_tags"]} == deletions
    for row in rows["manifests"]:
        assert row["tag_count"] == tags[row["id"]]
    for row in rows["repository_blobs"]:
        assert row["manifest_refs"] == edges[row["repository_id"], row["digest"]]


def test_one_image_in_five_is_untagged_and_one_in_twenty_an_index_or_about_another() -> None:
    of = contents(images=10 * BLOCK, tags=10 * BLOCK)
    rows = [r for r in laid(of)["manifests"] if r["repository_id"] == of.repository_id]
    assert sum(row["tag_count"] == 0 for row in rows) == 40
    assert sum(row["is_index"] for row in rows) == 10
    assert sum(row["subject_digest"] is not None for row in rows) == 10


def test_every_body_is_the_manifest_that_its_row_describes() -> None:
    for number in range(BLOCK):
        image = contents().image(number)
        parsed = parse_manifest(image.body, None)
        assert image.digest == digest_of(image.body)
        assert (parsed.is_index, parsed.subject) == (image.is_index, image.subject)
        assert {blob.digest for blob in parsed.blobs} == {blob.digest for blob in image.blobs}
        assert [c.digest for c in parsed.children] == [c.digest for c in image.children]


def test_ids_sort_as_images_were_pushed_and_none_is_used_twice() -> None:
    of = contents()
    ids = [of.image(number).id for number in range(of.images)]
    assert ids == sorted(ids)
    rows = laid(of)
    every = [row["id"] for row in itertools.chain(*rows.values()) if "id" in row]
    assert len(set(every)) == len(every)


def test_tags_have_each_prefix_and_the_rarest_belong_to_the_oldest_images() -> None:
    of = contents(tags=1000)
    names = [of.tag_name(tag) for tag in range(of.tags)]
    assert len(set(names)) == of.tags
    assert Counter(name.partition("-")[0] for name in names) == {
        "rare": 5,
        "mid": 40,
        "old": 80,
        "v": 875,
    }
    assert names[-1] == LATEST
    assert [of.carrier(tag) for tag in range(3)] == [2, 4, 5]


def test_the_history_of_the_tag_that_moves_ends_where_it_points() -> None:
    of = contents()
    events = [row for row in laid(of)["tag_events"] if row["tag"] == LATEST]
    assert [row["action"] for row in events] == ["created", *["moved"] * of.moves]
    assert events[-1]["digest"] == of.image(of.carrier(of.tags - 1)).digest
    for before, after in itertools.pairwise(events):
        assert before["digest"] == after["previous_digest"]


@pytest.mark.parametrize(("images", "tags"), [(BLOCK, 100), (50, 100), (100, 10)])
def test_a_registry_with_too_little_of_something_is_refused(images: int, tags: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        contents(images, tags)


def test_ratios_are_medians_of_neighbours_and_latencies_lower_quartiles() -> None:
    row = Row("a row", [(costs(1, 1), costs(2, 1)), (costs(2, 1), costs(2, 3))])
    row.rounds.append((costs(1, 1), costs(4, 2)))
    assert (row.latency_ratio, row.cpu_ratio) == (2, 2)
    assert row.latency_ms(0) == pytest.approx(1000)
    assert row.cells() == ["a row", *("1,000", "2,000", "2.00"), *("1,000,000",), *row.cells()[5:]]


@pytest.mark.parametrize(("ratio", "mark"), [(LIMIT, ""), (LIMIT * 1.01, " >")])
def test_a_row_is_marked_beyond_the_limit(ratio: float, mark: str) -> None:
    by_time = Row("a row", [(costs(1, 1), costs(ratio, 1))])
    by_processor = Row("a row", [(costs(1, 1), costs(1, ratio))])
    assert [by_time.cells()[-1], by_processor.cells()[-1]] == [mark, mark]


def test_a_row_that_failed_shows_no_numbers() -> None:
    row = Row("a row", [(costs(1, 1), costs(1, 1))], failure="404")
    assert not row.valid
    assert row.cells()[1] == "INVALID"
    assert row.record() == {"row": "a row", "failure": "404"}


def test_something_slow_is_marked_beyond_its_own_limit() -> None:
    limited, unlimited = SLOW[0], SLOW[-1]
    assert limited.limit is not None
    assert unlimited.limit is None
    slow = [limited.limit * 2] * 3
    assert Waited(limited, slow, [0.1], [0.1]).cells()[-1] == " >"
    assert Waited(unlimited, slow, [0.1], [0.1]).cells()[-1] == ""
    assert Waited(limited, failure="404").cells()[1] == "INVALID"
