"""A return path names its delivery to whoever has the key, and nobody else can make one."""

from __future__ import annotations

from string import ascii_lowercase, digits
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from cloudcore.email.bounces.verp import read_return_path, return_path

KEY = bytes(range(32))
MOST_POSITION = 0xFFFF
DOMAIN = "bounces.cloud.example"
IDS = st.uuids().map(str)
POSITIONS = st.integers(0, MOST_POSITION)
ID = str(UUID(int=5))
DOTLESS = "\u0131"
"""In upper case it is a letter of ASCII."""


@given(IDS, POSITIONS, st.randoms(use_true_random=False))
@example(ID, MOST_POSITION, None)
def test_a_return_path_names_its_delivery_in_letters_of_any_case(
    message_id: str, position: int, random: object
) -> None:
    address = return_path(DOMAIN, KEY, message_id, position)
    choose = getattr(random, "choice", lambda both: both[1])
    written = "".join(choose((each, each.upper())) for each in address)
    assert read_return_path(DOMAIN, KEY, written) == (message_id, position)


@given(IDS, POSITIONS)
def test_a_return_path_fits_into_an_address_and_is_plain(message_id: str, position: int) -> None:
    local, _, domain = return_path(DOMAIN, KEY, message_id, position).partition("@")
    assert domain == DOMAIN
    assert len(local) <= 64
    assert set(local) <= {*ascii_lowercase, *digits, "-"}


@given(IDS, POSITIONS, st.data())
def test_a_return_path_that_was_changed_names_nothing(
    message_id: str, position: int, data: st.DataObject
) -> None:
    address = return_path(DOMAIN, KEY, message_id, position)
    at = data.draw(st.integers(0, len(address) - 1))
    letter = data.draw(st.sampled_from([*ascii_lowercase, *digits, "-", "=", "İ", "\0"]))
    changed = f"{address[:at]}{letter}{address[at + 1 :]}"
    if changed != address:
        assert read_return_path(DOMAIN, KEY, changed) is None


@given(IDS, POSITIONS, st.integers(1, 60))
def test_a_return_path_that_was_cut_or_drawn_out_names_nothing(
    message_id: str, position: int, count: int
) -> None:
    address = return_path(DOMAIN, KEY, message_id, position)
    local, _, domain = address.partition("@")
    for other in (local[:-count], local + "a" * count, local + "=", local[8:], f"x{local}"):
        assert read_return_path(DOMAIN, KEY, f"{other}@{domain}") is None


@given(IDS, POSITIONS, st.binary(min_size=32, max_size=32))
def test_a_return_path_of_another_key_or_domain_names_nothing(
    message_id: str, position: int, other: bytes
) -> None:
    address = return_path(DOMAIN, KEY, message_id, position)
    if other != KEY:
        assert read_return_path(DOMAIN, other, address) is None
    assert read_return_path("cloud.example", KEY, address) is None


@given(st.text(max_size=120))
@example(f"bounces-{'a' * 45}@{DOMAIN}")
@example(f"bounces-{'ß' * 45}@{DOMAIN}")
@example(f"bounces-{DOTLESS * 45}@{DOMAIN}")
def test_other_addresses_name_nothing(address: str) -> None:
    assert read_return_path(DOMAIN, KEY, address) is None


@given(IDS, POSITIONS, IDS, POSITIONS)
def test_each_delivery_has_a_return_path_of_its_own(
    one: str, first: int, other: str, second: int
) -> None:
    same = return_path(DOMAIN, KEY, one, first) == return_path(DOMAIN, KEY, other, second)
    assert same is ((one, first) == (other, second))
