"""Answers that are made of rows: which fields they get, and in which form."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from cloudcore.iam.principal import SourceIdentity, stored_source
from cloudcore.web.answers import answer_of
from cloudcore.web.bodies import ActingSource
from cloudcore.wire import RFC3339, ResponseBody


class Row(NamedTuple):
    name: str
    size: int | None = 3
    kind: str | None = None
    seen_at: int | None = 1
    made_by: str | None = stored_source(SourceIdentity("crn:iam::a:user/u", "u"))
    secret: str = "not an answer's"

    @property
    def twice(self) -> int:
        return 2 * (self.size or 0)


class Answer(ResponseBody):
    name: str
    size: int | None
    twice: int
    seen_at: RFC3339 | None
    made_by: ActingSource | None
    kind: str | UnsetType = UNSET
    other: int = 7


def shown(row: Row, **more: object) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(answer_of(Answer, row, **more))
    return found


def test_an_answer_has_the_fields_of_its_row_in_their_wire_form() -> None:
    assert shown(Row("a", kind="k")) == {
        "name": "a",
        "size": 3,
        "twice": 6,
        "seen_at": "1970-01-01T00:00:00.000001Z",
        "made_by": {"crn": "crn:iam::a:user/u", "name": "u", "session_name": None},
        "kind": "k",
        "other": 7,
    }


def test_what_a_row_lacks_is_null_or_absent_as_the_answer_says() -> None:
    found = shown(Row("a", size=None, seen_at=None, made_by=None))
    assert (found["size"], found["seen_at"], found["made_by"]) == (None, None, None)
    assert "kind" not in found


def test_what_is_given_comes_before_the_row() -> None:
    assert (shown(Row("a"), name="b", other=1)["name"]) == "b"


def test_a_field_that_nobody_gives_is_missed() -> None:
    with pytest.raises(TypeError, match="size"):
        answer_of(Answer, object(), name="b")
