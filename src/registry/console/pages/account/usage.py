"""Usage of the account or of an organization, by day or hour, and quotas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from litestar import get

from cloudcore.clock import MICROSECONDS
from cloudcore.family import skus_of
from cloudcore.metering.sku import Sku
from registry.console.addresses import PEOPLE, SETTINGS, USAGE
from registry.console.admission import Requires
from registry.console.control_plane import ControlPlaneClient
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.account.audit import organizations_of
from registry.quotas import UNLIMITED

_SPANS: Final = (1, 7, 30, 90)
"""Numbers of days that a person can choose; a single day is shown by hours."""
_DEFAULT_DAYS: Final = 30
_STEPS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_FORMS: Final = {"hour": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d"}
_SCALE: Final = Decimal(10) ** 12
"""Quantities have at most 12 decimal places."""


class SkuUsage(NamedTuple):
    """The usage of one SKU."""

    sku: str
    words: str
    unit: str
    total: str
    cost: str
    """Empty if it costs nothing."""
    spans: Sequence[tuple[str, str]]
    """Each hour or day, and its usage."""
    points: Sequence[tuple[int, str]]
    """The height and text of each column of the plot."""
    accounts: Sequence[tuple[str, str]]
    """What each account used, largest first."""


@get(USAGE, opt={"requires": Requires.PERSON_IN_ROLE})
async def show_usage(page: InjectedPage) -> PageResponse:
    """Show the usage of the account."""
    return await _show(page, page.api)


@get(f"{PEOPLE}/{{organization:str}}/usage", opt={"requires": Requires.PERSON})
async def show_organization_usage(page: InjectedPage) -> PageResponse:
    """Show the usage of all accounts of an organization, to its owners and billing members."""
    return await _show(page, page.person, page.parameters["organization"])


async def _show(
    page: PageRequest, api: ControlPlaneClient, organization_id: str = ""
) -> PageResponse:
    written = page.query.get("days", "")
    days = next((each for each in _SPANS if str(each) == written), _DEFAULT_DAYS)
    step = "hour" if days == 1 else "day"
    end = datetime.fromtimestamp(page.now / MICROSECONDS, UTC)
    # The span ends with the current hour or day.
    first = _whole(end, step) - timedelta(days=days) + _STEPS[step]
    rows = [
        row
        async for row in api.each(
            "/v1/usage",
            "usage",
            granularity=step,
            organization_id=organization_id,
            **{"from": first.isoformat()},
        )
    ]
    prices = (await api.get("/v1/prices"))["prices"]
    region = page.console.settings.region
    amounts = {each["sku"]: each for each in prices if each["region"] == region}
    words = {each.name: each for each in skus_of(page.console.settings.families)}
    times = _times(first, end, step)
    return page.show(
        "usage.html",
        days=days,
        spans=_SPANS,
        step=step,
        used=_used(rows, times, words, amounts),
        organization_id=organization_id,
        owned=await organizations_of(page, "owner", "billing"),
    )


def _whole(moment: datetime, step: str) -> datetime:
    whole = moment.replace(minute=0, second=0, microsecond=0)
    return whole if step == "hour" else whole.replace(hour=0)


def _times(first: datetime, end: datetime, step: str) -> dict[datetime, str]:
    """Map every hour or day from `first` to `end` to its text."""
    count = -((first - end) // _STEPS[step])
    moments = (first + number * _STEPS[step] for number in range(count))
    return {moment: moment.strftime(_FORMS[step]) for moment in moments}


def _used(
    rows: Sequence[Mapping[str, Any]],
    times: Mapping[datetime, str],
    words: Mapping[str, Sku],
    prices: Mapping[str, Mapping[str, str]],
) -> list[SkuUsage]:
    """Return the usage of each SKU, in the order of the price list."""
    by_time: dict[str, dict[datetime, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    by_account: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for row in rows:
        sku, quantity = row["sku"], Decimal(row["quantity"])
        by_time[sku][datetime.fromisoformat(row["from"])] += quantity
        by_account[sku][row["account"]["name"]] += quantity
    units = {row["sku"]: row["unit"] for row in rows}
    shown = []
    for sku in sorted(by_time, key=lambda name: ([*words, name].index(name), name)):
        amounts = [(text, by_time[sku][moment]) for moment, text in times.items()]
        total = sum(by_time[sku].values(), Decimal())
        accounts = sorted(by_account[sku].items(), key=lambda pair: (-pair[1], pair[0]))
        shown.append(
            SkuUsage(
                sku=sku,
                words=words[sku].words if sku in words else sku,
                unit=units[sku],
                total=_text(total),
                cost=_cost(total, prices.get(sku)),
                spans=[(text, _text(amount)) for text, amount in amounts],
                points=[
                    (int(amount * _SCALE), f"{text}: {_text(amount)} {units[sku]}")
                    for text, amount in amounts
                ],
                accounts=[(name, _text(amount)) for name, amount in accounts],
            )
        )
    return shown


def _cost(quantity: Decimal, price: Mapping[str, str] | None) -> str:
    cost = Decimal() if price is None else quantity * Decimal(price["amount"])
    return f"{cost:.2f} {price['currency']}" if price is not None and cost else ""


def _text(amount: Decimal) -> str:
    """Format an amount with at least four significant digits, without trailing zeros."""
    if not amount:
        return "0"
    places = max(0, 3 - amount.adjusted())
    text = f"{amount:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


@get(f"{SETTINGS}/quotas")
async def list_quotas(page: InjectedPage) -> PageResponse:
    """Show the quotas by name."""
    found = await page.api.get("/v1/quotas", marker=page.marker, limit=100)
    shown = {"quotas": found["quotas"], "meta": found["meta"]}
    return page.show("quotas.html", **shown, unlimited=UNLIMITED)
