"""Deletes, mounts (X) and policies (F): each case, by group and number, and where it is run.

The cases about deleting are asked of both planes. As those of `identity` they need
callers who signed in, so each names the tests that send it; the rows are in `reads`.
"""

from __future__ import annotations

from typing import Final

ROWS: Final = "tests/integration/test_bad_input.py::test_case"
RULES: Final = "tests/integration/test_registry_rules.py"
LIVE: Final = "tests/integration/test_tokens_live.py"
HERE: Final = "tests/integration/test_bad_input_control.py"
POLICY: Final = "tests/integration/test_policy_lock_out.py::test_no_document_is_taken_by_half"
TAKEN: Final = f"{RULES}::test_rule_3_deleting_by_digest_takes_the_manifest_and_all_its_tags"

CASES: Final[dict[str, tuple[str, ...]]] = {
    "X1": (ROWS, "tests/integration/test_control_tags.py::test_names_of_no_tag"),
    "X2": (TAKEN,),
    "X3": (TAKEN,),
    "X5": (ROWS,),
    "X6": (f"{HERE}::test_who_may_push_deletes_nothing",),
    "X8": (f"{LIVE}::test_a_source_one_may_not_pull_is_as_good_as_none",),
    "X9": ("tests/integration/test_oracles.py::test_a_mount_one_may_not_make_is_an_upload",),
    "X10": (f"{LIVE}::test_nothing_is_mounted_across_accounts",),
    "X12": (ROWS,),
    "X13": (ROWS,),
    "X14": (ROWS,),
    "X16": (ROWS, f"{HERE}::test_another_method_is_405_and_changes_nothing"),
    "F9": (
        POLICY,
        "tests/integration/test_resource_policy.py::test_what_cannot_be_a_policy_changes_nothing",
        "tests/integration/test_lifecycle_http.py::test_a_bad_document_is_refused_whole",
    ),
    "F10": (POLICY,),
}

GROUPS: Final = {"X": "1 2 3 5 6 8 9 10 12 13 14 16", "F": "9 10"}
"""The numbers of each group, of F those that are the registry's."""
