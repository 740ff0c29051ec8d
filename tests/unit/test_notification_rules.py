"""Rules of notifications that need no database: retries, filters, addresses, tokens."""

from __future__ import annotations

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.keyring import Keyring
from cloudcore.notifications.delivery_policy import Retries, merged
from cloudcore.notifications.envelope import read_unsubscribe_token, unsubscribe_token
from cloudcore.notifications.topic import mailbox, matches

ONE = "01890000-0000-7000-8000-000000000001"
TWO = "01890000-0000-7000-8000-000000000002"


@pytest.mark.parametrize(
    ("retries", "pauses"),
    [
        (Retries(), [20, 20, 20]),
        (Retries(min_delay_seconds=10, max_delay_seconds=25, backoff="linear"), [10, 20, 25]),
        (Retries(min_delay_seconds=10, max_delay_seconds=90, backoff="exponential"), [10, 20, 40]),
        (Retries(min_delay_seconds=60), [60, 60, 60]),  # above the longest of the topic
    ],
)
def test_pauses_grow_as_the_policy_says(retries: Retries, pauses: list[int]) -> None:
    assert [retries.delay_seconds(attempts) for attempts in (1, 2, 3)] == pauses


def test_policies_are_merged_field_by_field() -> None:
    found = merged({"max_retries": 1, "backoff": "linear"}, {"max_retries": 0})
    assert found == Retries(max_retries=0, backoff="linear")


@pytest.mark.parametrize(
    ("attributes", "is_match"),
    [
        ({"a": "1", "b": "3"}, True),
        ({"a": "2", "b": "3", "c": "x"}, True),
        ({"a": "1"}, False),
        ({"a": "3", "b": "3"}, False),
        ({}, False),
    ],
)
def test_a_filter_is_and_across_names_and_or_within_values(
    attributes: dict[str, str], is_match: bool
) -> None:
    assert matches({"a": ["1", "2"], "b": ["3"]}, attributes) == is_match
    assert matches({}, attributes)


def test_addresses_have_their_domain_in_lower_case() -> None:
    assert mailbox("Jo.Doe+x@Example.ORG") == "Jo.Doe+x@example.org"
    for wrong in (
        *("a", "a@", "@b", "a@b c", "a\r\nBcc: x@y", "a@b\n", ".a@b", "a@-b"),
        "a" * 65 + "@b",
        "=?utf-8?q?a?=@b",  # a mail would go to a@b
    ):
        with pytest.raises(InvalidInput):
            mailbox(wrong)


def test_tokens_to_unsubscribe_are_those_of_one_subscription() -> None:
    keyring = Keyring(bytes(32))
    token = unsubscribe_token(keyring, ONE, TWO)
    assert read_unsubscribe_token(keyring, token) == (ONE, TWO)
    for wrong in ("", token.replace(TWO, ONE), token + "A", token[:-1], token.upper()):
        assert read_unsubscribe_token(keyring, wrong) is None
    assert read_unsubscribe_token(Keyring(bytes([1]) * 32), token) is None
