"""What records of ``/v1`` say of other things: a reference is ``{id, crn, name}``, all of it."""

from __future__ import annotations

from typing import Any, Final

from tests.integration.answer_schemas import answers

REFERENCES: Final = ("kms_key", "redrive_policy")
"""Fields of requests that name another thing, which may be missing."""
NOUNS: Final = frozenset(
    {
        *("account", "kms_key", "organization", "policy", "repository", "role"),
        *("service_account", "topic", "user"),
    }
)
"""Fields that name another thing."""
BARE: Final = {
    ("TagAnswer", "image_id"): "an image has no CRN and no name",
    ("ImageConfiguration", "user"): "the user that a container runs as",
    ("InstancePoolRecord", "image"): "a name with a tag, as clients say it",
    ("InstanceRecord", "image"): "as its pool's",
    ("LimitAnswer", "account"): "as in the request of an operator",
    ("AssumedRole", "account_id"): "the specification's field (part 5, item 12)",
    ("AssumedRole", "role_id"): "the specification's field (part 5, item 12)",
}


def test_references_are_whole(described: dict[str, Any]) -> None:
    found = dict(answers(described))
    assert len(found) > 80
    references = {
        name
        for name, schema in found.items()
        if schema.get("properties", {}).keys() <= {"id", "crn", "name"}
        and {"id", "crn"} & schema["properties"].keys()
    }
    may_lack: dict[str, set[str]] = {
        "KeyReference": {"crn", "name"},  # of a deleted key
        "ResourceRef": set(),
        "TopicReference": {"id"},  # of a topic that was deleted
    }
    # What the specification shows without a name.
    assert references == may_lack.keys() | {"SourceMessage"}
    for name, fields in may_lack.items():
        assert set(found[name]["required"]) == {"id", "crn", "name"} - fields


def test_no_record_names_another_thing_by_a_bare_text(described: dict[str, Any]) -> None:
    bare = set()
    for name, schema in answers(described):
        for field, shape in schema.get("properties", {}).items():
            is_text = "string" in str(shape.get("type", "")) or any(
                choice.get("type") == "string" for choice in shape.get("anyOf", ())
            )
            if is_text and (field in NOUNS or field.removesuffix("_id") in NOUNS | {"image"}):
                bare.add((name, field))
    assert bare == BARE.keys()


def test_a_request_can_be_told_that_what_it_names_is_missing(described: dict[str, Any]) -> None:
    schemas: dict[str, Any] = described["components"]["schemas"]
    naming = {}
    for methods in described["paths"].values():
        for operation in methods.values():
            content = operation.get("requestBody", {}).get("content", {})
            sent = str(content.get("application/json", {}).get("schema", {}).get("$ref", ""))
            shape = schemas.get(sent.rpartition("/")[2], {})
            if shape.get("properties", {}).keys() & set(REFERENCES):
                naming[operation["operationId"]] = "404" in operation["responses"]
    assert {"create_repository", "create_bucket", "create_queue"} <= naming.keys()
    assert all(naming.values()), naming


def test_only_json_is_described_as_an_object(described: dict[str, Any]) -> None:
    wrong = [
        (operation["operationId"], status, media_type)
        for methods in described["paths"].values()
        for operation in methods.values()
        for status, response in operation["responses"].items()
        for media_type, content in response.get("content", {}).items()
        if status == "304"
        or (content.get("schema", {}).get("type") == "object" and not media_type.endswith("json"))
    ]
    assert wrong == []
