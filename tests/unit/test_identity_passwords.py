"""Passwords: kept as scrypt strings, checked at one cost."""

from __future__ import annotations

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.iam import passwords
from cloudcore.iam.passwords import check_new_password, hash_password, match_passwords
from tests.passwords import CHEAP


def test_a_kept_password_is_known_again_and_another_is_not() -> None:
    kept = hash_password("correct horse")
    assert kept.startswith("scrypt$15$8$3$")
    assert "correct" not in kept
    assert match_passwords("correct horse", [kept]) == [True]
    assert match_passwords("correct horsf", [kept]) == [False]


def test_the_same_password_is_never_kept_the_same() -> None:
    assert hash_password("correct horse", CHEAP) != hash_password("correct horse", CHEAP)


def test_a_kept_password_says_its_own_cost() -> None:
    kept = hash_password("old", CHEAP)
    assert kept.startswith("scrypt$4$8$1$")
    assert match_passwords("old", [kept]) == [True]
    assert match_passwords("new", [kept]) == [False]


def test_nobody_costs_what_somebody_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same derivation is done for an address that is not known."""
    done: list[passwords.ScryptCost] = []
    derive = passwords.ScryptCost.derive

    def counted(cost: passwords.ScryptCost, password: str, salt: bytes) -> bytes:
        done.append(cost)
        return derive(cost, password, salt)

    kept = hash_password("correct horse")
    monkeypatch.setattr(passwords.ScryptCost, "derive", counted)
    assert match_passwords("wrong", [kept]) == [False]
    assert match_passwords("wrong", []) == []
    assert done == [passwords.COST, passwords.COST]


@pytest.mark.parametrize("password", ["", "x" * 11, "x" * 1025, "\u00e9" * 513])
def test_a_new_password_has_a_length(password: str) -> None:
    with pytest.raises(InvalidInput):
        check_new_password(password)


def test_a_long_password_is_refused_before_it_costs() -> None:
    long = "x" * 100_000
    assert match_passwords(long, [hash_password(long, CHEAP)]) == [False]
    check_new_password("x" * 12)
    check_new_password("x" * 1024)
