"""Tokens (A, K, O), roles (S), bodies (J), lists (I), retries (E): each case and where it is run.

These need signed-in callers, clocks and races, so they are not rows of one table of requests; each
names the test that sends it. `test_bad_input_identity` requires that every case has its test, that
the test exists, and runs what had no better place.
"""

from __future__ import annotations

from typing import Final

DOOR: Final = "tests/integration/test_tokens_door.py"
EXCHANGE: Final = "tests/integration/test_tokens_exchange.py"
HTTP: Final = "tests/integration/test_kernel_http.py"
JSON: Final = "tests/unit/test_kernel_strict_json.py"
QUERY: Final = "tests/unit/test_kernel_query.py"
PAGES: Final = "tests/integration/test_kernel_pagination.py"
RETRIES: Final = "tests/integration/test_kernel_idempotency.py"
RACES: Final = "tests/integration/test_kernel_idempotency_races.py"
TOKEN: Final = "tests/integration/test_oauth_token.py"
CODES: Final = "tests/integration/test_oauth_codes.py"
PAGE: Final = "tests/integration/test_oauth_page.py"
REVOCATION: Final = "tests/integration/test_oauth_revocation.py"
ASSUME: Final = "tests/integration/test_oauth_assume_role.py"
HERE: Final = "tests/integration/test_bad_input_identity.py"
ORACLES: Final = "tests/integration/test_oracles.py"

FORGED: Final = f"{DOOR}::test_no_forged_token_is_believed"
SCOPES: Final = f"{EXCHANGE}::test_scopes_are_granted_as_far_as_policies_go"
SEVERAL: Final = f"{JSON}::test_a_body_with_several_readings_or_none_is_refused"
NAMED: Final = f"{JSON}::test_the_first_field_that_is_wrong_is_named"
NUMBER: Final = f"{QUERY}::test_a_number_has_one_spelling"
KNOWN: Final = f"{QUERY}::test_what_is_known_is_checked"
SPENT: Final = f"{CODES}::test_a_wrong_attempt_spends_the_code"
ASKED: Final = f"{PAGE}::test_what_is_asked_for_is_checked_and_not_redirected"
ACROSS: Final = f"{ASSUME}::test_across_accounts_it_takes_permission_and_trust"
REFUSALS: Final = f"{TOKEN}::test_every_refusal_has_the_shape_of_oauth"

CASES: Final[dict[str, str]] = {
    "A1": f"{DOOR}::test_each_request_asks_for_what_it_needs",
    "A2": f"{HERE}::test_what_is_no_bearer_is_refused",
    "A3": FORGED,
    "A4": f"{HERE}::test_a_value_of_64_kilobytes_is_refused",
    "A9": FORGED,
    "A10": FORGED,
    "A11": FORGED,
    "A12": f"{DOOR}::test_bearers_do_not_open_the_control_plane",
    "A14": f"{HERE}::test_an_end_that_is_no_number_is_no_end",
    "A15": FORGED,
    "A16": FORGED,
    "A17": f"{DOOR}::test_a_token_for_less_asks_for_more_and_a_refused_one_does_not",
    "A18": f"{DOOR}::test_a_token_for_less_asks_for_more_and_a_refused_one_does_not",
    "A22": f"{DOOR}::test_missing_and_private_look_alike_to_strangers",
    "A23": f"{DOOR}::test_missing_and_private_look_alike_to_strangers",
    "A24": f"{HERE}::test_200_kilobytes_of_claims_are_refused",
    "K1": f"{EXCHANGE}::test_the_answer_is_that_of_the_token_specification",
    "K2": SCOPES,
    "K3": SCOPES,
    "K5": f"{EXCHANGE}::test_any_service_will_do",
    "K6": f"{EXCHANGE}::test_every_wrong_credential_gets_the_same_answer",
    "K7": f"{EXCHANGE}::test_every_wrong_credential_gets_the_same_answer",
    "K9": f"{EXCHANGE}::test_the_form_of_oauth",
    "K10": SCOPES,
    "J2": NAMED,
    "J3": SEVERAL,
    "J4": SEVERAL,
    "J6": f"{HERE}::test_text_that_is_none_is_refused_in_every_body",
    "J7": f"{HERE}::test_text_that_is_none_is_refused_in_every_body",
    "J8": f"{HTTP}::test_a_body_of_another_type_is_415",
    "J10": f"{HTTP}::test_a_body_over_a_mebibyte_is_413",
    "J11": NAMED,
    "J14": NAMED,
    "J16": "tests/integration/test_isolation_operations.py::test_foreign_ids_are_as_unknown_ones",
    "J17": "tests/integration/test_isolation_operations.py::test_foreign_ids_are_as_unknown_ones",
    "J19": f"{HTTP}::test_a_failure_tells_nothing_of_itself",
    "I3": f"{QUERY}::test_a_limit_out_of_range_is_not_clamped",
    "I5": NUMBER,
    "I7": "tests/unit/test_kernel_query.py::test_a_limit_out_of_range_is_not_clamped",
    "I10": KNOWN,
    "I11": f"{PAGES}::test_prefixes_are_literal_and_total_counts_the_filter",
    "I12": KNOWN,
    "I13": f"{PAGES}::test_rows_that_come_and_go_disturb_nobody_else",
    "E1": f"{RETRIES}::test_a_retry_has_the_outcome_of_the_first_time",
    "E3": f"{RACES}::test_of_twenty_at_once_one_has_the_effect",
    "E4": f"{RETRIES}::test_a_malformed_key_is_refused_and_changes_nothing",
    "E7": f"{RETRIES}::test_another_request_under_the_key_is_refused",
    "E8": f"{RETRIES}::test_a_quoted_key_is_another_key",
    "E11": f"{RETRIES}::test_a_key_is_honoured_for_a_day",
    "E12": f"{RETRIES}::test_permission_is_checked_before_a_replay",
    "O1": f"{TOKEN}::test_unknown_key_and_wrong_secret_answer_byte_for_byte_alike",
    "O2": f"{TOKEN}::test_unknown_key_and_wrong_secret_answer_byte_for_byte_alike",
    "O3": f"{TOKEN}::test_two_ways_to_authenticate_are_refused",
    "O6": REFUSALS,
    "O7": f"{TOKEN}::test_a_duration_is_clamped_and_reported",
    "O8": f"{TOKEN}::test_a_duration_is_a_whole_number",
    "O9": REFUSALS,
    "O10": f"{HERE}::test_no_answer_of_oauth_is_stored",
    "O11": f"{CODES}::test_a_second_use_ends_what_the_first_gave",
    "O12": SPENT,
    "O13": SPENT,
    "O14": ASKED,
    "O15": ASKED,
    "O16": f"{HERE}::test_no_code_lacks_a_challenge",
    "O17": SPENT,
    "O18": SPENT,
    "O21": f"{REVOCATION}::test_a_client_that_says_who_it_is_ends_its_own_tokens_only",
    "O22": f"{TOKEN}::test_a_token_goes_into_the_header_and_nothing_else_does",
    "O23": f"{TOKEN}::test_a_token_goes_into_the_header_and_nothing_else_does",
    "O24": f"{TOKEN}::test_a_token_goes_into_the_header_and_nothing_else_does",
    "O25": f"{REVOCATION}::test_a_token_ends_at_once_with_what_it_hangs_on",
    "S1": f"{ORACLES}::test_no_permission_no_trust_and_no_role_are_one_refusal",
    "S2": f"{ORACLES}::test_no_permission_no_trust_and_no_role_are_one_refusal",
    "S3": f"{ORACLES}::test_no_permission_no_trust_and_no_role_are_one_refusal",
    "S6": f"{ASSUME}::test_a_session_has_two_forms_and_one_end",
    "S7": "tests/integration/test_identity_organizations.py"
    "::test_only_persons_have_to_do_with_organizations",
    "S8": "tests/integration/test_identity_users.py"
    "::test_a_person_without_a_role_calls_no_account_service",
    "S9": f"{ASSUME}::test_a_chain_is_bounded_and_never_lasts_longer",
}
"""By case, the one test that is its own; other tests may touch it too."""

GROUPS: Final = {
    "A": "1 2 3 4 9 10 11 12 14 15 16 17 18 22 23 24",
    "K": "1 2 3 5 6 7 9 10",
    "J": "2 3 4 6 7 8 10 11 14 16 17 19",
    "I": "3 5 7 10 11 12 13",
    "E": "1 3 4 7 8 11 12",
    "O": "1 2 3 6 7 8 9 10 11 12 13 14 15 16 17 18 21 22 23 24 25",
    "S": "1 2 3 6 7 8 9",
}
"""The numbers of each group; the numbering has gaps."""
