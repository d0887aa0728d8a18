/* The object of `tensorcast load --json`, key by key: scripts rely on it. */
#include "tests/support/unit.h"

#include "client/report_json.h"
#include "client/status_text.h"

static Tensorcast__Daemon__V1__Candidate candidate = TENSORCAST__DAEMON__V1__CANDIDATE__INIT;
static Tensorcast__Daemon__V1__Candidate *candidates[] = {&candidate};
static Tensorcast__Daemon__V1__LoadReport report = TENSORCAST__DAEMON__V1__LOAD_REPORT__INIT;

static int set_up(void **state)
{
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
    report.peer_bytes = 21;
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
    "\"shared\":15,\"cached\":16,\"peer\":21},\"requests\":17,\"peak_temporary_bytes\":18,\"from_replica\":false,"          \
    "\"joined\":false,"                                                                                                     \
    "\"ms\":{\"resolve\":1.5,\"plan\":2," execute "\"total\":6.5}"
#define PLAN REPORT("", "") ",\"estimated\":{\"read_bytes\":18446744073709551615,\"execute_ms\":3}"
#define HOSTS ",\"hosts\":{\"choice\":\"owner_peers\",\"reason\":\"hosts_share:alive=4\",\"alive\":4"
#define LOAD REPORT("\"read\":18446744073709551615,", "\"execute\":3,")

TEST_IN(a_plan_has_no_id_no_memory_no_tensors_and_estimates_under_names_of_their_own, set_up, NULL)
{
    char *json = report_json(&report, NULL, 0, true);
    assert_string_equal(json, "{" PLAN "}");
    free(json);
}

TEST_IN(the_way_of_hosts_is_told_with_its_candidates_where_there_are_some, set_up, NULL)
{
    Tensorcast__Daemon__V1__HostsCandidate way = TENSORCAST__DAEMON__V1__HOSTS_CANDIDATE__INIT, *ways[] = {&way};
    Tensorcast__Daemon__V1__HostsReport hosts = TENSORCAST__DAEMON__V1__HOSTS_REPORT__INIT;
    hosts.choice = way.name = "owner_peers";
    hosts.reason = "hosts_share:alive=4";
    hosts.alive = 4;
    hosts.candidates = ways;
    way.estimated_ms = 2;
    way.reason = "eligible";
    report.hosts = &hosts;
    for (hosts.n_candidates = 0; hosts.n_candidates < 2; hosts.n_candidates++) {
        char *json = report_json(&report, NULL, 0, true);
        assert_string_equal(json,
                            hosts.n_candidates
                                ? "{" PLAN HOSTS
                                  ",\"candidates\":[{\"name\":\"owner_peers\",\"estimated_ms\":2,\"reason\":\"eligible\"}]}}"
                                : "{" PLAN HOSTS "}}");
        free(json);
    }
    report.hosts = NULL;
}

TEST_IN(a_load_tells_what_came_from_which_host, set_up, NULL)
{
    Tensorcast__Daemon__V1__HostBytes bytes[] = {TENSORCAST__DAEMON__V1__HOST_BYTES__INIT,
                                                 TENSORCAST__DAEMON__V1__HOST_BYTES__INIT};
    Tensorcast__Daemon__V1__HostBytes *from[] = {&bytes[0], &bytes[1]};
    Tensorcast__Daemon__V1__HostsReport hosts = TENSORCAST__DAEMON__V1__HOSTS_REPORT__INIT;
    bytes[0].host = "h1", bytes[0].bytes = 20;
    bytes[1].host = "h2", bytes[1].bytes = 1;
    hosts.choice = "owner_peers";
    hosts.reason = "hosts_share:alive=4";
    hosts.alive = 4;
    hosts.from_hosts = from;
    hosts.hedged_bytes = 5;
    report.load_id = "7";
    report.hosts = &hosts;
    for (hosts.n_from_hosts = 0; hosts.n_from_hosts < 3; hosts.n_from_hosts += 2) {
        char *json = report_json(&report, NULL, 0, true);
        assert_string_equal(json, hosts.n_from_hosts ? "{\"load_id\":\"7\"," LOAD HOSTS
                                                       ",\"from\":{\"h1\":20,\"h2\":1},\"hedged_bytes\":5}}"
                                                     : "{\"load_id\":\"7\"," LOAD HOSTS ",\"from\":{},\"hedged_bytes\":5}}");
        free(json);
    }
    report.hosts = NULL;
}

TEST_IN(a_load_lists_its_tensors_and_only_digests_what_it_is_given, set_up, NULL)
{
    static const uint64_t shape[] = {2, 4};
    const struct report_json_tensor tensors[] = {
        {.name = "a\"\0b", .name_length = 4, .dtype = "BF16", .shape = shape, .rank = 2, .offset = 64, .bytes = 16},
        {.name = "s", .name_length = 1, .dtype = "U8", .offset = 128, .bytes = 3, .data = "abc"},
    };
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

TEST_IN(a_load_whose_digests_nobody_wants_has_none, set_up, NULL)
{
    const struct report_json_tensor tensor = {.name = "s", .name_length = 1, .dtype = "U8", .bytes = 3, .data = "abc"};
    char *json = report_json(&report, &tensor, 1, false);
    assert_non_null(strstr(json, "\"tensors\":[{\"name\":\"s\",\"dtype\":\"U8\",\"shape\":[],\"offset\":0,\"bytes\":3}]}"));
    free(json);
}

TEST_IN(what_was_verified_is_told, set_up, NULL)
{
    Tensorcast__Daemon__V1__Verification verified = TENSORCAST__DAEMON__V1__VERIFICATION__INIT;
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

TEST_IN(a_load_without_tensors_still_has_the_list, set_up, NULL)
{
    char *json = report_json(&report, &(struct report_json_tensor){0}, 0, true);
    assert_non_null(strstr(json, "\"tensors\":[]}"));
    free(json);
}

/* --- status text --- */

/* Of a replica that one process holds, and what was measured of a disk and a store. The caller frees. */
static char *show(const char *command)
{
    Tensorcast__Daemon__V1__StatusResponse status = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    Tensorcast__Daemon__V1__ReplicaStatus replica = TENSORCAST__DAEMON__V1__REPLICA_STATUS__INIT, *replicas[] = {&replica};
    Tensorcast__Daemon__V1__LeaseStatus lease = TENSORCAST__DAEMON__V1__LEASE_STATUS__INIT, *leases[] = {&lease};
    Tensorcast__Daemon__V1__CalibrationStatus disk = TENSORCAST__DAEMON__V1__CALIBRATION_STATUS__INIT, *disks[] = {&disk};
    Tensorcast__Daemon__V1__StoreStatus store = TENSORCAST__DAEMON__V1__STORE_STATUS__INIT, *stores[] = {&store};
    char name[32], device[16] = "8:0", origin[32] = "https://store";
    strcpy(name, command);
    lease.pid = 3447;
    lease.command = name;
    replica.leases = 1;
    replica.n_held_by = 1, replica.held_by = leases;
    status.n_replicas = 1, status.replicas = replicas;
    disk.device = device;
    disk.copy_gbps = 10.73741824;
    status.n_calibration = 1, status.calibration = disks;
    store.origin = origin;
    store.connection_gbps = 0.00524288;
    store.total_gbps = 2.147483648;
    status.n_stores = 1, status.stores = stores;
    return status_text(&status, 80);
}

static void assert_shows(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is not in '%s'", words, text);
}

TEST(a_holder_has_one_blank_between_its_words_also_when_its_command_is_hidden)
{
    char *named = show("VLLM::Worker"), *hidden = show("");
    assert_shows(named, "held by 3447 VLLM::Worker (root)\n");
    assert_shows(hidden, "held by 3447 (root)\n");
    free(named);
    free(hidden);
}

TEST(rates_are_binary_and_of_the_fitting_unit)
{
    char *text = show("x");
    assert_shows(text, "copy GiB/s");
    assert_shows(text, " 10.00 ");
    assert_shows(text, " 5.00 MiB/s 2.00 GiB/s ");
    assert_null(strstr(text, "GB/s"));
    free(text);
}
