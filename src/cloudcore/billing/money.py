"""Amounts of money: exact decimals, until an invoice line is rounded.

A line is rounded half up to the smallest unit of its currency (ISO 4217); a total is the sum of
rounded lines, so that people can check it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Final

EXACT: Final = Context(prec=120, rounding=ROUND_HALF_UP)
"""More digits than a quantity, a unit and a price have together, so that nothing else is
rounded."""
_DECIMALS: Final = {
    **dict.fromkeys(
        ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND"), 0
    ),
    **dict.fromkeys(("VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}
_QUANTITY_DECIMALS: Final = Decimal("0.000001")


def smallest(currency: str) -> Decimal:
    """Return the smallest unit of a currency: 0.01 for most."""
    return Decimal(1).scaleb(-_DECIMALS.get(currency, 2))


def amount_of(quantity: int, per_unit: int, unit_amount: str, currency: str) -> Decimal:
    """Return the cost of a quantity, rounded half up.

    `quantity` is in the smallest unit of usage. A price unit has `per_unit` of these, and costs
    `unit_amount`.
    """
    with localcontext(EXACT):
        exact = Decimal(quantity) * Decimal(unit_amount) / Decimal(per_unit)
        return exact.quantize(smallest(currency), ROUND_HALF_UP)


def total_of(amounts: Iterable[Decimal], currency: str) -> Decimal:
    """Return the sum of amounts in a currency."""
    with localcontext(EXACT):
        return sum(amounts, start=Decimal(0)).quantize(smallest(currency))


def shown_quantity(quantity: int, per_unit: int) -> str:
    """Return a quantity in price units, with at most six decimals."""
    with localcontext(EXACT):
        found = (Decimal(quantity) / Decimal(per_unit)).quantize(_QUANTITY_DECIMALS)
        return f"{found.normalize():f}"


def in_smallest(amount: str, currency: str) -> int:
    """Return an amount as a number of the currency's smallest units, as processors expect."""
    with localcontext(EXACT):
        return int(Decimal(amount) / smallest(currency))
