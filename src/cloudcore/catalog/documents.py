"""Load and check the operator's JSON file of regions and prices.

`docs/reference/catalog.md` describes the file for operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from cloudcore.errors import InvalidInput
from cloudcore.metering.sku import SKUS, Sku
from cloudcore.ports import Opening, Port
from cloudcore.resource_names import REGION_PATTERN
from cloudcore.web.strict_json import convert, parse
from cloudcore.wire import RequestBody, ResponseBody

T = TypeVar("T", bound=Hashable)

MAX_BYTES: Final = 1 << 20
"""Maximum size of the file."""

RegionName = Annotated[str, Meta(pattern=rf"\A{REGION_PATTERN}\Z")]
SkuName = Annotated[str, Meta(pattern=r"\A[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?\Z")]
Word = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9-]{0,62}\Z")]
Label = Annotated[str, Meta(min_length=1, max_length=100)]
Url = Annotated[str, Meta(pattern=r"\Ahttps?://[!-~]+\Z", max_length=2000)]
Currency = Annotated[str, Meta(pattern=r"\A[A-Z]{3}\Z")]
Amount = Annotated[str, Meta(pattern=r"\A(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,12})?\Z")]


class CatalogInvalid(InvalidInput):
    """The file of the catalogues is unreadable or invalid."""


class Region(ResponseBody, forbid_unknown_fields=True):
    """A region, and the URLs of its services."""

    name: RegionName
    """As it appears in CRNs."""
    display_name: Label
    status: Literal["available", "degraded", "unavailable"]
    endpoints: dict[Word, Url]
    """Base URLs, by the name of the service."""


class Price(ResponseBody, forbid_unknown_fields=True):
    """The price of one unit of something in a region."""

    sku: SkuName
    """The name under which use of the service is counted."""
    service: Word
    region: RegionName
    unit: Label
    currency: Currency
    """ISO 4217."""
    amount: Amount
    """Of one unit, as a decimal number."""


class CatalogFile(RequestBody):
    """The content of the catalogue file."""

    regions: Annotated[tuple[Region, ...], Meta(min_length=1)]
    prices: tuple[Price, ...]


def load_catalog(
    path: Path,
    region: str,
    url: str,
    skus: Iterable[Sku],
    own_urls: Iterable[tuple[str, str]] = (),
) -> CatalogFile:
    """Load the catalogues from a file.

    In the file's texts, ``{region}`` and ``{url}`` stand for the region and the base URL of this
    install. The services in `own_urls` (name, URL) become endpoints of that region too. Every price
    must name one of `skus`, which are metered; a SKU without a price is free.

    Raise `CatalogInvalid` if the file cannot be read, is not JSON, or has an invalid field.
    """
    try:
        with path.open("rb") as file:
            document = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CatalogInvalid(f"the catalog {path}: {error.strerror or error}") from None
    if len(document) > MAX_BYTES:
        raise CatalogInvalid(f"the catalog {path} has more than {MAX_BYTES} bytes")
    try:
        filled = _filled(parse(document), {"{region}": region, "{url}": url})
        catalog = convert(filled, CatalogFile)
    except InvalidInput as error:
        words = error.message.replace("the body", "the file", 1)
        raise CatalogInvalid(f"the catalog {path}: {words}") from None
    for fault in (*_faults(catalog), *_unmetered(catalog, {each.name: each for each in skus})):
        raise CatalogInvalid(f"the catalog {path}: {fault}")
    own = dict(own_urls)
    regions = (
        replace(each, endpoints={**each.endpoints, **own}) if each.name == region else each
        for each in catalog.regions
    )
    return replace(catalog, regions=tuple(regions)) if own else catalog


def _filled(value: object, words: dict[str, str]) -> object:
    """Replace the placeholders in all texts of a JSON value."""
    if isinstance(value, str):
        for word, meaning in words.items():
            value = value.replace(word, meaning)
        return value
    if isinstance(value, list):
        return [_filled(each, words) for each in value]
    if isinstance(value, dict):
        return {name: _filled(each, words) for name, each in value.items()}
    return value


def _faults(catalog: CatalogFile) -> Iterable[str]:
    """Describe the contradictions in the file: duplicates and unknown regions."""
    names = [region.name for region in catalog.regions]
    for name in _repeated(names):
        yield f"the region {name} is there twice"
    for sku, region in _repeated([(price.sku, price.region) for price in catalog.prices]):
        yield f"the price of {sku} in {region} is there twice"
    for price in catalog.prices:
        if price.region not in names:
            yield f"the price of {price.sku} is of the region {price.region}, which is not listed"


def _unmetered(catalog: CatalogFile, skus: Mapping[str, Sku]) -> Iterable[str]:
    """Describe the prices that never apply: nothing is metered by their SKU or unit."""
    for price in catalog.prices:
        sku = skus.get(price.sku)
        if sku is None:
            yield f"the price of {price.sku}: nothing is metered as that, only {', '.join(skus)}"
        elif (price.service, price.unit) != (sku.service, sku.unit):
            yield f"the price of {price.sku} is of the service {sku.service}, for 1 {sku.unit}"


def _repeated(values: Sequence[T]) -> list[T]:
    return [value for value, count in Counter(values).items() if count > 1]


FILE: Final[Port[Path]] = Port("catalog.file")


class CatalogNeeds(NamedTuple):
    """The catalogue file, and the values of its placeholders."""

    file: Path
    region: str
    url: str
    """Base URL of this install."""
    skus: tuple[Sku, ...]
    """All SKUs that are metered."""
    own_urls: tuple[tuple[str, str], ...]
    """Names and base URLs of the services that have their own URL."""


async def open_needs(opening: Opening) -> CatalogNeeds:
    """Return what the catalogue needs in this process."""
    install = opening.install
    return CatalogNeeds(
        await opening.get(FILE),
        install.region,
        install.url,
        await opening.get(SKUS),
        tuple(install.own_urls.items()),
    )
