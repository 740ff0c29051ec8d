"""The one reader of ids: any case is accepted, lower case is canonical."""

from __future__ import annotations

import pytest

from cloudcore.resource_names import is_canonical_uuid, parse_uuid

ID = "01890000-0000-7000-8000-00000000abcd"


def test_an_id_is_read_in_any_case() -> None:
    assert parse_uuid(ID) == parse_uuid(ID.upper()) == parse_uuid(ID[:30] + ID[30:].upper()) == ID


def test_only_lower_case_is_canonical() -> None:
    assert is_canonical_uuid(ID)
    assert not is_canonical_uuid(ID.upper())


@pytest.mark.parametrize(
    "text",
    ["", ID[:-1], f"{ID}0", f"{ID}\n", f" {ID}", f"{{{ID}}}", ID.replace("-", ""), f"urn:uuid:{ID}",
     ID.replace("a", "g"), ID.replace("1", "\u0661"), "../" + ID[3:]],
)  # fmt: skip
def test_no_other_text_is_an_id(text: str) -> None:
    assert parse_uuid(text) is None
    assert not is_canonical_uuid(text)
