/* The object of `tensorcast load --json`, key by key: scripts rely on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/report_json.h"

#include <cmocka.h>

static Tensorcast__Daemon__V1__Candidate candidate = TENSORCAST__DAEMON__V1__CANDIDATE__INIT;
static Tensorcast__Daemon__V1__Candidate *candidates[] = {&candidate};
static Tensorcast__Daemon__V1__LoadReport report = TENSORCAST__DAEMON__V1__LOAD_REPORT__INIT;

static int set_up(void **state)
{
    (void)state;
    candidate.executor = "generic_byte_range";
    candidate.eligible = true;
    candidate.reason = "eligible";
    candidate.requested_bytes = 1;
    candidate.unique_source_bytes = 2;
    candidate.read_bytes = 3;
    candidate.requests = 4;
    candidate.peak_temporary_bytes = 5;
    candidate.estimated_ms = 0.5;
    report.artifact = "disk:/m";
    report.identity = "abc";
    report.executor = "generic_byte_range";
    report.selection_reason = "because";
    report.n_candidates = 1;
    report.candidates = candidates;
    report.view_bytes = 10;
    report.unique_source_bytes = 11;
    report.read_bytes = UINT64_MAX;
    report.copied_bytes = 13;
    report.residual_bytes = 14;
    report.shared_bytes = 15;
    report.cached_bytes = 16;
    report.requests = 17;
    report.peak_temporary_bytes = 18;
    report.resolve_ms = 1.5;
    report.plan_ms = 2;
    report.execute_ms = 3;
    report.total_ms = 6.5;
    return 0;
}

#define REPORT(read, execute)                                                                                               \
    "\"artifact\":\"disk:/m\",\"identity\":\"abc\",\"executor\":\"generic_byte_range\",\"selection_reason\":\"because\","   \
    "\"candidates\":[{\"executor\":\"generic_byte_range\",\"eligible\":true,\"reason\":\"eligible\",\"requested_bytes\":1," \
    "\"unique_source_bytes\":2,\"read_bytes\":3,\"requests\":4,\"peak_temporary_bytes\":5,\"estimated_ms\":0.5}],"          \
    "\"bytes\":{\"view\":10,\"unique_source\":11," read "\"copied\":13,\"residual\":14,"                                    \
    "\"shared\":15,\"cached\":16},\"requests\":17,\"peak_temporary_bytes\":18,\"from_replica\":false,\"joined\":false,"     \
    "\"ms\":{\"resolve\":1.5,\"plan\":2," execute "\"total\":6.5}"
#define PLAN REPORT("", "") ",\"estimated\":{\"read_bytes\":18446744073709551615,\"execute_ms\":3}"
#define LOAD REPORT("\"read\":18446744073709551615,", "\"execute\":3,")

static void a_plan_has_no_id_no_memory_no_tensors_and_estimates_under_names_of_their_own(void **state)
{
    (void)state;
    char *json = report_json(&report, NULL, 0, true);
    assert_string_equal(json, "{" PLAN "}");
    free(json);
}

static void a_load_lists_its_tensors_and_only_digests_what_it_is_given(void **state)
{
    static const uint64_t shape[] = {2, 4};
    const struct report_json_tensor tensors[] = {
        {.name = "a\"\0b", .name_length = 4, .dtype = "BF16", .shape = shape, .rank = 2, .offset = 64, .bytes = 16},
        {.name = "s", .name_length = 1, .dtype = "U8", .offset = 128, .bytes = 3, .data = "abc"},
    };
    (void)state;
    report.load_id = "7";
    report.memory = "thp";
    char *json = report_json(&report, tensors, 2, true);
    assert_string_equal(json,
                        "{\"load_id\":\"7\",\"memory\":\"thp\"," LOAD
                        ",\"tensors\":[{\"name\":\"a\\\"\\u0000b\",\"dtype\":\"BF16\",\"shape\":[2,4],\"offset\":64,"
                        "\"bytes\":16},{\"name\":\"s\",\"dtype\":\"U8\",\"shape\":[],\"offset\":128,\"bytes\":3,\"sha256\":"
                        "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"}]}");
    free(json);
}

static void a_load_whose_digests_nobody_wants_has_none(void **state)
{
    const struct report_json_tensor tensor = {.name = "s", .name_length = 1, .dtype = "U8", .bytes = 3, .data = "abc"};
    (void)state;
    char *json = report_json(&report, &tensor, 1, false);
    assert_non_null(strstr(json, "\"tensors\":[{\"name\":\"s\",\"dtype\":\"U8\",\"shape\":[],\"offset\":0,\"bytes\":3}]}"));
    free(json);
}

static void what_was_verified_is_told(void **state)
{
    Tensorcast__Daemon__V1__Verification verified = TENSORCAST__DAEMON__V1__VERIFICATION__INIT;
    (void)state;
    verified.status = "partial";
    verified.by = "crc32c";
    verified.bytes = 9;
    verified.reason = "a: only part of the file was read";
    verified.healed = 1;
    report.verified = &verified;
    char *json = report_json(&report, NULL, 0, true);
    assert_non_null(
        strstr(json, ",\"verified\":{\"status\":\"partial\",\"by\":\"crc32c\",\"bytes\":9,\"reason\":\"a: only part of "
                     "the file was read\",\"healed\":1}"));
    free(json);
    report.verified = NULL;
}

static void a_load_without_tensors_still_has_the_list(void **state)
{
    (void)state;
    char *json = report_json(&report, &(struct report_json_tensor){0}, 0, true);
    assert_non_null(strstr(json, "\"tensors\":[]}"));
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_plan_has_no_id_no_memory_no_tensors_and_estimates_under_names_of_their_own, set_up),
        cmocka_unit_test_setup(a_load_lists_its_tensors_and_only_digests_what_it_is_given, set_up),
        cmocka_unit_test_setup(a_load_whose_digests_nobody_wants_has_none, set_up),
        cmocka_unit_test_setup(what_was_verified_is_told, set_up),
        cmocka_unit_test_setup(a_load_without_tensors_still_has_the_list, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
