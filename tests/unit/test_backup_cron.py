"""Which moments five fields of cron mean."""

from datetime import UTC, datetime, timedelta

import pytest

from cloudcore.databases.backups.cron import read_cron


def _after(text: str, moment: str) -> str:
    start = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    found = read_cron(text).after(int(start.timestamp()) * 1_000_000)
    return datetime.fromtimestamp(found // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("text", "moment", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00:00", "2026-01-01 00:01:00"),
        ("0 3 * * *", "2026-01-01 02:59:59", "2026-01-01 03:00:00"),
        ("0 3 * * *", "2026-01-01 03:00:00", "2026-01-02 03:00:00"),
        ("*/20 * * * *", "2026-12-31 23:45:00", "2027-01-01 00:00:00"),
        ("5/20 * * * *", "2026-01-01 00:06:00", "2026-01-01 00:25:00"),
        ("0 0 29 2 *", "2026-03-01 00:00:00", "2028-02-29 00:00:00"),
        ("30 4 1,15 * 5", "2026-01-02 05:00:00", "2026-01-09 04:30:00"),
        ("30 4 1,15 * 5", "2026-01-10 05:00:00", "2026-01-15 04:30:00"),
        ("0 12 * * sun", "2026-01-01 00:00:00", "2026-01-04 12:00:00"),
        ("0 12 * * 7", "2026-01-01 00:00:00", "2026-01-04 12:00:00"),
        ("0 12 * JUN-Aug mon-fri", "2026-01-01 00:00:00", "2026-06-01 12:00:00"),
        ("0 0 */10 * 1", "2026-01-02 00:00:00", "2026-05-11 00:00:00"),
    ],
)
def test_the_next_moment(text: str, moment: str, expected: str) -> None:
    assert _after(text, moment) == expected


def test_every_minute_of_a_month_is_as_its_fields_say() -> None:
    found = read_cron("*/7 1-5,22 3-9 * 2")
    start = datetime(2026, 4, 1, tzinfo=UTC)
    minutes = [start + timedelta(minutes=number) for number in range(30 * 24 * 60)]
    expected = [
        each
        for each in minutes
        if each.minute % 7 == 0
        and each.hour in (1, 2, 3, 4, 5, 22)
        and (3 <= each.day <= 9 or each.isoweekday() == 2)
    ]
    walked, moment = [], int(start.timestamp()) * 1_000_000 - 1
    while (moment := found.after(moment)) < int(minutes[-1].timestamp()) * 1_000_000:
        walked.append(datetime.fromtimestamp(moment // 1_000_000, UTC))
    assert walked == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *"),
        *("* * * * 8", "5-1 * * * *", "*/0 * * * *", "1,,2 * * * *", "@daily * * * *"),
        *("* * * foo *", "0 0 30 2 *", "٣ * * * *"),
    ],
)
def test_what_no_cron_means_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no |has five fields"):
        read_cron(text)
