"""The file of the catalogues: what is wrong is said before anything is served."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.catalog.documents import MAX_BYTES, CatalogFile, CatalogInvalid, load_catalog
from cloudcore.family import skus_of
from cloudcore.metering.sku import GIB, Sku
from registry.cli.main import main
from registry.composition.families import FAMILIES
from registry.settings.settings import Settings

SKUS: Final = (Sku("storage.b", "What is stored", "GiB", GIB), Sku("queue.c", "Sent", "message"))
GOOD: Final[dict[str, Any]] = {
    "regions": [
        {
            "name": "{region}",
            "display_name": "Region {region}",
            "status": "available",
            "endpoints": {"api": "{url}/v1"},
        }
    ],
    "prices": [
        {
            "sku": "storage.b",
            "service": "storage",
            "region": "{region}",
            "unit": "GiB",
            "currency": "EUR",
            "amount": "0.10",
        }
    ],
}


def load(folder: Path, document: object) -> CatalogFile:
    file = folder / "catalog.json"
    file.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return load_catalog(file, "eu-1", "https://cloud.example.com", SKUS)


def test_the_words_of_the_install_are_filled_in(tmp_path: Path) -> None:
    catalog = load(tmp_path, GOOD)
    (region,) = catalog.regions
    assert (region.name, region.display_name) == ("eu-1", "Region eu-1")
    assert region.endpoints == {"api": "https://cloud.example.com/v1"}
    assert catalog.prices[0].region == "eu-1"


def test_the_packaged_file_is_good() -> None:
    catalog = load_catalog(
        Settings(data=Path()).catalog, "local", "http://[::1]:5000", skus_of(FAMILIES)
    )
    assert [region.name for region in catalog.regions] == ["local"]
    assert [(each.sku, each.service, each.unit) for each in catalog.prices] == [
        (each.name, each.service, each.unit) for each in skus_of(FAMILIES)
    ]
    assert {each.amount for each in catalog.prices} == {"0.00"}


def test_what_has_no_price_costs_nothing(tmp_path: Path) -> None:
    assert [each.sku for each in load(tmp_path, GOOD).prices] == ["storage.b"]
    assert load(tmp_path, {**GOOD, "prices": []}).prices == ()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("regions",), [], "regions"),
        (("regions", 0, "name"), "EU", "regions[0].name"),
        (("regions", 0, "status"), "fine", "regions[0].status"),
        (("regions", 0, "endpoints"), {"api": "ftp://x"}, "regions[0].endpoints"),
        (("regions", 0, "zone"), "a", "zone is not a field here"),
        (("prices", 0, "amount"), 0.1, "prices[0].amount"),
        (("prices", 0, "amount"), "-1", "prices[0].amount"),
        (("prices", 0, "amount"), "1e3", "prices[0].amount"),
        (("prices", 0, "amount"), "01", "prices[0].amount"),
        (("prices", 0, "currency"), "eur", "prices[0].currency"),
        (("prices", 0, "region"), "us-1", "storage.b is of the region us-1, which is not listed"),
        (("prices", 0, "sku"), "storage.d", "metered as that, only storage.b, queue.c"),
        (("prices", 0, "service"), "queue", "the price of storage.b is of the service storage"),
        (("prices", 0, "unit"), "GB", "is of the service storage, for 1 GiB"),
        (("regions",), GOOD["regions"] * 2, "the region eu-1 is there twice"),
        (("prices",), GOOD["prices"] * 2, "the price of storage.b in eu-1 is there twice"),
    ],
)
def test_the_first_wrong_field_is_named(
    tmp_path: Path, place: tuple[Any, ...], value: object, words: str
) -> None:
    document = copy.deepcopy(GOOD)
    inside: Any = document
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    with pytest.raises(CatalogInvalid) as refused:
        load(tmp_path, document)
    assert str(refused.value).startswith(f"the catalog {tmp_path / 'catalog.json'}: ")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "the file is not JSON"),
        (b'{"regions": [], "regions": []}', "the file has an object with the same key twice"),
        (b"\xff", "the file is not UTF-8"),
        (b" " * (MAX_BYTES + 1), f"has more than {MAX_BYTES} bytes"),
        (b'{"prices": []}', "regions is required"),
    ],
)
def test_what_is_no_catalog_is_refused(tmp_path: Path, document: bytes, words: str) -> None:
    with pytest.raises(CatalogInvalid, match=words):
        load(tmp_path, document)


def test_nothing_is_served_with_a_wrong_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENTREPOT_CATALOG_FILE", str(tmp_path / "absent.json"))
    data = str(tmp_path / "data")
    assert (
        main(["init", "--account", "acme", "--admin-email", "a@example.org", "--data", data]) == 0
    )
    capsys.readouterr()
    assert main(["serve", "--data", data]) == 2
    told = capsys.readouterr().err
    assert told == f"entrepot: the catalog {tmp_path / 'absent.json'}: No such file or directory\n"
