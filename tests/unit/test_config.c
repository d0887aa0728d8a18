/* The configuration: every mistake is refused with its place, every value means what it says, and what is printed reads
 * back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/schema.h"
#include "observe/log.h"
#include "tests/support/config_refused.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define STRATEGY "engine:\n  materialization_strategy:\n    "

static const struct config *parse(const char *text)
{
    struct error error;
    const struct config *config = config_parse(text, strlen(text), "store.yaml", &error);
    if (!config)
        fail_msg("%s\n%s", text, error.message);
    return config;
}

static char *printed(const struct config *config)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    config_print(config, NULL, out);
    fclose(out);
    return text;
}

static void an_empty_file_means_every_default(void **state)
{
    static const char *const empty[] = {"",
                                        "\n",
                                        "# nothing\n",
                                        "---\n",
                                        "---\n...\n",
                                        "{}\n",
                                        "server:\nengine: ~\nmemory: null\n",
                                        "server: {}\n",
                                        "engine: { materialization_strategy: }\n",
                                        "\xef\xbb\xbf"};
    char *expected = printed(config_defaults());
    (void)state;
    for (size_t i = 0; i < COUNT(empty); i++) {
        const struct config *config = parse(empty[i]);
        char *text = printed(config);
        assert_string_equal(text, expected);
        free(text);
        config_destroy(config);
    }
    free(expected);
}

static void the_defaults_are_those_of_the_documents(void **state)
{
    const struct config *config = config_defaults();
    const struct materialization_strategy *strategy = &config->engine.strategy;
    (void)state;
    assert_string_equal(config->server.socket_path, "/run/tensorcast/daemon.sock");
    assert_string_equal(config->server.handoff_socket_path, "/run/tensorcast/daemon.handoff");
    assert_int_equal(config->server.socket_mode, 0660);
    assert_string_equal(config->server.socket_group, "");
    assert_string_equal(config->server.state_dir, "/var/lib/tensorcast");
    assert_int_equal(config->server.max_connections_per_uid, 256);
    assert_int_equal(config->server.max_message_bytes, 32 << 20);
    assert_int_equal(config->server.shutdown_grace_ms, 10000);
    assert_int_equal(config->logging.level, LOG_INFO);
    assert_int_equal(config->logging.format, LOG_LOGFMT);
    assert_string_equal(config->logging.file, "");
    assert_int_equal(config->memory.host_budget_bytes, 0);
    assert_int_equal(config->memory.staging_budget_bytes, 64 << 20);
    assert_int_equal(config->memory.extent_cache_bytes, 0);
    assert_int_equal(config->memory.replica_idle_ttl_ms, 600000);
    assert_int_equal(config->memory.pool_budget_bytes, 0);
    assert_int_equal(config->sources.disk.trusted_roots.n_items, 1);
    assert_string_equal(config->sources.disk.trusted_roots.items[0], "/models");
    assert_int_equal(config->engine.io_threads, 0);
    assert_int_equal(config->engine.collective_transport, COLLECTIVE_TRANSPORT_AUTO);
    assert_true(strategy->enable_local_batched_disk_load && strategy->enable_tensor_aware_mapped_executor);
    assert_true(strategy->allow_mixed_execution && !strategy->enable_owner_file_collective);
    assert_int_equal(strategy->executor_preference, EXECUTOR_PREFERENCE_AUTO);
    assert_true(strategy->owner_file_collective_peak_bytes_budget == 8ull << 30);
    assert_int_equal(strategy->owner_file_collective_batch_bytes, 512 << 20);
    assert_int_equal(strategy->owner_file_collective_dim1_staging_bytes, 256 << 20);
    assert_int_equal(strategy->owner_file_collective_max_inflight_batches, 1);
    assert_true(strategy->owner_file_collective_shared_fs_only);
    assert_true(strategy->owner_file_collective_max_owner_skew_ratio == 1.5);
    assert_int_equal(strategy->owner_file_collective_min_dedup_saving_bytes, 512 << 20);
    assert_int_equal(strategy->owner_file_collective_group_assemble_timeout_ms, 15000);
    assert_false(strategy->owner_file_collective_allow_mixed_residual);
    assert_int_equal(strategy->owner_file_collective_planner_cache_entries, 256);
    assert_int_equal(strategy->cost_gate, COST_GATE_TIME);
    assert_false(strategy->remote_fine_slices);
}

/* One written value per key that differs from its default, with what it prints as. */
static const struct {
    const char *path, *written, *shown;
} others[] = {
    {"server.socket_path", "/tmp/a b/d.sock", "\"/tmp/a b/d.sock\""},
    {"server.handoff_socket_path", "/tmp//x/./h/", "/tmp/x/h"},
    {"server.socket_mode", "0600", "\"0600\""},
    {"server.socket_group", "\"1000\"", "\"1000\""},
    {"server.state_dir", "/srv/sp\xc3\xa4t", "\"/srv/sp\xc3\xa4t\""},
    {"server.max_connections_per_uid", "1_000", "1000"},
    {"server.max_message_size", "1.5MiB", "1536KiB"},
    {"server.shutdown_grace", "0", "0s"},
    {"logging.level", "Warn", "warn"},
    {"logging.format", "json", "json"},
    {"logging.file", "/var/log/t.log", "/var/log/t.log"},
    {"memory.host_budget", "2GiB", "2GiB"},
    {"memory.staging_budget", "96 MB", "96MiB"},
    {"memory.extent_cache", "17 MiB", "17MiB"},
    {"memory.replica_idle_ttl", "1.5s", "1500ms"},
    {"memory.pool_budget", "4097", "4097"},
    {"memory.locked_pages_budget", "5GiB", "5GiB"},
    {"memory.share_gpu_between_users", "true", "true"},
    {"memory.metadata_budget", "32MiB", "32MiB"},
    {"limits.kept_for_others", "25", "25"},
    {"limits.shared_group", "ml", "\"ml\""},
    {"sources.disk.trusted_roots", "[/a/, \"/b c\"]", "[/a, \"/b c\"]"},
    {"sources.disk.immutable_roots", "[/images/]", "[/images]"},
    {"sources.verify", "Required", "required"},
    {"sources.trusted_urls", "[gs://a, \"hf://b/\"]", "[\"gs://a\", \"hf://b/\"]"},
    {"sources.http.max_connections", "128", "128"},
    {"sources.http.max_host_connections", "1", "1"},
    {"sources.http.request_size", "8MiB", "8MiB"},
    {"sources.http.max_tries", "3", "3"},
    {"sources.http.connect_timeout", "1s", "1s"},
    {"sources.http.first_byte_timeout", "60s", "1m"},
    {"sources.http.stall_timeout", "500ms", "500ms"},
    {"sources.http.progress_timeout", "10s", "10s"},
    {"sources.http.hedge_after", "2s", "2s"},
    {"sources.http.hedge_percent", "0", "0"},
    {"sources.http.ca_file", "/etc/ca.pem", "/etc/ca.pem"},
    {"sources.http.allow_plain", "true", "true"},
    {"sources.https.enabled", "false", "false"},
    {"sources.gcs.enabled", "false", "false"},
    {"sources.gcs.endpoint", "\"http://localhost:4443\"", "\"http://localhost:4443\""},
    {"sources.gcs.credentials_file", "/k.json", "/k.json"},
    {"sources.gcs.user_project", "payer", "\"payer\""},
    {"sources.gcs.anonymous", "true", "true"},
    {"sources.s3.enabled", "false", "false"},
    {"sources.s3.endpoint", "\"https://s3.example\"", "\"https://s3.example\""},
    {"sources.s3.region", "eu-west-1", "\"eu-west-1\""},
    {"sources.s3.profile", "training", "\"training\""},
    {"sources.s3.addressing", "path", "path"},
    {"sources.s3.anonymous", "true", "true"},
    {"sources.s3.requester_pays", "true", "true"},
    {"sources.hf.enabled", "false", "false"},
    {"sources.hf.endpoint", "\"https://hub.example\"", "\"https://hub.example\""},
    {"sources.hf.token_file", "/run/token", "/run/token"},
    {"sources.hf.cache_dir", "/cache/hub", "/cache/hub"},
    {"sources.hf.offline", "true", "true"},
    {"activations.roots", "[/stores]", "[/stores]"},
    {"activations.disk_quota", "1TiB", "1TiB"},
    {"activations.quota_timeout", "5s", "5s"},
    {"uploads.prefixes", "[gs://out]", "[\"gs://out\"]"},
    {"devices.plugin_folder", "/opt/plugins", "/opt/plugins"},
    {"devices.memory_budget", "64GiB", "64GiB"},
    {"engine.io_threads", "64", "64"},
    {"engine.collective_transport", "nccl", "nccl"},
    {"engine.materialization_strategy.enable_local_batched_disk_load", "False", "false"},
    {"engine.materialization_strategy.enable_tensor_aware_mapped_executor", "false", "false"},
    {"engine.materialization_strategy.allow_mixed_execution", "false", "false"},
    {"engine.materialization_strategy.enable_owner_file_collective", "true", "true"},
    {"engine.materialization_strategy.executor_preference",
     "MATERIALIZATION_STRATEGY_EXECUTOR_PREFERENCE_TENSOR_AWARE_LOCAL", "TENSOR_AWARE_LOCAL"},
    {"engine.materialization_strategy.owner_file_collective_peak_bytes_budget", "0", "0"},
    {"engine.materialization_strategy.owner_file_collective_batch_bytes", "0MB", "0"},
    {"engine.materialization_strategy.owner_file_collective_dim1_staging_bytes", "1024TiB", "1024TiB"},
    {"engine.materialization_strategy.owner_file_collective_max_inflight_batches", "0", "0"},
    {"engine.materialization_strategy.owner_file_collective_shared_fs_only", "false", "false"},
    {"engine.materialization_strategy.owner_file_collective_max_owner_skew_ratio", "2.25", "2.25"},
    {"engine.materialization_strategy.owner_file_collective_min_dedup_saving_bytes", "0", "0"},
    {"engine.materialization_strategy.owner_file_collective_group_assemble_timeout", "250ms", "250ms"},
    {"engine.materialization_strategy.owner_file_collective_allow_mixed_residual", "true", "true"},
    {"engine.materialization_strategy.owner_file_collective_planner_cache_entries", "0", "0"},
    {"engine.materialization_strategy.cost_gate", "source_bytes", "source_bytes"},
    {"engine.materialization_strategy.remote_fine_slices", "true", "true"},
    {"prewarm", "[{artifact: /m, pin: false}]", "[{artifact: \"disk:/m\"}]"},
};

/* "a.b.c" and a value as {a: {b: {c: value}}}. */
static void nest(const char *path, const char *written, char *out, size_t room)
{
    size_t used = 0, depth = 1;
    for (; *path; path++) {
        used += (size_t)snprintf(out + used, room - used, *path == '.' ? ": { " : "%c", *path);
        depth += *path == '.';
    }
    used += (size_t)snprintf(out + used, room - used, ": %s", written);
    while (--depth)
        used += (size_t)snprintf(out + used, room - used, " }");
    snprintf(out + used, room - used, "\n");
}

static void every_key_can_be_set_and_is_printed_with_its_value(void **state)
{
    (void)state;
    assert_int_equal(COUNT(others), schema_n_keys);
    for (size_t i = 0; i < COUNT(others); i++) {
        char text[512], line[256];
        assert_string_equal(others[i].path, schema_keys[i].path);
        nest(others[i].path, others[i].written, text, sizeof text);
        const struct config *config = parse(text);
        char *shown = printed(config);
        snprintf(line, sizeof line, "%s: %s  # from the configuration file", schema_last_name(&schema_keys[i]),
                 others[i].shown);
        if (!strstr(shown, line))
            fail_msg("%s is not in\n%s", line, shown);
        free(shown);
        config_destroy(config);
    }
}

struct change {
    size_t n;
    const char *key;
    bool reloadable;
};

static void note_change(void *data, const struct config_change *found)
{
    struct change *change = data;
    assert_string_not_equal(found->from, found->to);
    *change = (struct change){change->n + 1, found->key, found->reloadable};
}

static void comparing_names_exactly_the_key_that_differs(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(others); i++) {
        char text[512];
        struct change change = {0};
        nest(others[i].path, others[i].written, text, sizeof text);
        const struct config *config = parse(text);
        config_compare(config_defaults(), config, note_change, &change);
        bool moves_handoff = strcmp(others[i].path, "server.socket_path") == 0; /* derived, so it differs as well */
        assert_int_equal(change.n, moves_handoff ? 2 : 1);
        assert_true(moves_handoff || strcmp(change.key, others[i].path) == 0);
        assert_int_equal(change.reloadable, schema_keys[i].reloadable);
        config_destroy(config);
    }
    struct change none = {0};
    config_compare(config_defaults(), config_defaults(), note_change, &none);
    assert_int_equal(none.n, 0);
}

static void what_is_printed_reads_back_and_prints_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(others); i++) {
        char text[512];
        struct change change = {0};
        nest(others[i].path, others[i].written, text, sizeof text);
        const struct config *config = parse(text);
        char *first = printed(config);
        const struct config *again = parse(first);
        char *second = printed(again);
        config_compare(config, again, note_change, &change);
        assert_int_equal(change.n, 0);
        assert_string_equal(first, second);
        free(first);
        free(second);
        config_destroy(config);
        config_destroy(again);
    }
}

static void unknown_keys_are_refused_with_the_nearest_known_one(void **state)
{
    (void)state;
    refused("servr:\n  socket_path: /x\n", "/etc/store.yaml:1:1: ", "CONFIG_UNKNOWN_KEY", "did you mean server?");
    refused("server:\n  socket_path: /x\n  socket_pth: /y\n", "/etc/store.yaml:3:3: ", "CONFIG_UNKNOWN_KEY",
            "unknown key server.socket_pth; did you mean server.socket_path?");
    refused(STRATEGY "enable_local_batch_disk_load: true\n", "/etc/store.yaml:3:5: ", "CONFIG_UNKNOWN_KEY",
            "enable_local_batched_disk_load?");
    refused("socket_path: /x\n", "/etc/store.yaml:1:1: ", "CONFIG_UNKNOWN_KEY", "did you mean server.socket_path?");
    refused("nonsense: true\n", "/etc/store.yaml:1:1: ", "CONFIG_UNKNOWN_KEY",
            "known here: server, logging, memory, limits, sources, activations, uploads, devices, engine, prewarm");
    refused("server.socket_path: /x\n", "/etc/store.yaml:1:1: ", "CONFIG_UNKNOWN_KEY", "server.socket_path");
    refused("server: { \"a\\nb\": 1 }\n", "/etc/store.yaml:1:11: ", "CONFIG_UNKNOWN_KEY", "server.a\\nb;");
    refused("\"\": 1\n", "/etc/store.yaml:1:1: ", "CONFIG_UNKNOWN_KEY", "unknown key");
    refused("server: { [a]: 1 }\n", "/etc/store.yaml:1:11: ", "CONFIG_UNKNOWN_KEY", "a key is a name");
}

static void keys_and_sections_given_twice_are_refused(void **state)
{
    (void)state;
    refused("server: {}\nmemory: {}\nserver: {}\n", "/etc/store.yaml:3:1: ", "CONFIG_DUPLICATE_KEY",
            "server is given twice; the first is on line 1");
    refused("memory:\n  staging_budget: 1MB\n  staging_budget: 1MB\n", "/etc/store.yaml:3:3: ", "CONFIG_DUPLICATE_KEY",
            "memory.staging_budget is given twice; the first is on line 2");
}

static void values_of_the_wrong_kind_or_range_are_refused_with_what_is_expected(void **state)
{
    static const struct {
        const char *text, *place, *word;
    } cases[] = {
        {"memory:\n  staging_budget: lots\n", "2:19",
         "memory.staging_budget: expected a size from 64KiB to 1024TiB, such as 64MiB, got \"lots\""},
        {"memory:\n  staging_budget: -1\n", "2:19", "\"-1\""},
        {"memory:\n  staging_budget: 65535\n", "2:19", "from 64KiB"},
        {"memory:\n  staging_budget: [1]\n", "2:19", "got a list"},
        {"memory:\n  staging_budget: {a: 1}\n", "2:19", "got a section"},
        {"memory:\n  staging_budget:\n", "2:18", "got nothing"},
        {"memory:\n  staging_budget: 99999999999TB\n", "2:19", "to 1024TiB"},
        {"memory:\n  staging_budget: 1025TiB\n", "2:19", "to 1024TiB"},
        {"memory: { host_budget: 0 }\n", "1:24", "expected auto or a size from 4KiB"},
        {"memory:\n  replica_idle_ttl: 15\n", "2:21", "a duration with its unit"},
        {"memory:\n  replica_idle_ttl: 8761h\n", "2:21", "to 8760h"},
        {"server: { max_connections_per_uid: 0 }\n", "1:36", "a whole number from 1 to 65536"},
        {"server: { max_connections_per_uid: 65537 }\n", "1:36", "65537"},
        {"server: { max_connections_per_uid: 1.5 }\n", "1:36", "1.5"},
        {"server: { max_connections_per_uid: \"256\" }\n", "1:36", "got the text \"256\""},
        {"server: { max_connections_per_uid: 0256 }\n", "1:36", "0256"},
        {"server: { max_connections_per_uid: 99999999999999999999 }\n", "1:36", "9999"},
        {"server: { socket_mode: \"0999\" }\n", "1:24", "0999"},
        {"server: { socket_mode: 432 }\n", "1:24", "leading zero"},
        {"server: { socket_mode: 01777 }\n", "1:24", "0777"},
        {"server: { state_dir: state }\n", "1:22", "an absolute path"},
        {"server: { state_dir: \"\" }\n", "1:22", "an absolute path"},
        {"server: { state_dir: \"/a\\tb\" }\n", "1:22", "/a\\tb"},
        {"server: { socket_group: \"a\\nb\" }\n", "1:25", "one line"},
        {"logging: { level: loud }\n", "1:19", "one of trace, debug, info, warn, error"},
        {"logging: { level: inof }\n", "1:19", "did you mean info?"},
        {"logging: { file: log }\n", "1:18", "an absolute path, or \"\""},
        {"engine: { io_threads: 65 }\n", "1:23", "from 0 to 64"},
        {STRATEGY "enable_local_batched_disk_load: maybe\n", "3:37", "true or false"},
        {STRATEGY "enable_local_batched_disk_load: \"true\"\n", "3:37", "got the text"},
        {STRATEGY "executor_preference: FASTEST\n", "3:26",
         "AUTO, GENERIC_BYTE_RANGE, TENSOR_AWARE_LOCAL, OWNER_FILE_COLLECTIVE"},
        {STRATEGY "owner_file_collective_max_owner_skew_ratio: wide\n", "3:49", "a number from 0 to 1000"},
        {STRATEGY "owner_file_collective_max_owner_skew_ratio: 1000.1\n", "3:49", "1000.1"},
        {STRATEGY "owner_file_collective_max_owner_skew_ratio: .inf\n", "3:49", ".inf"},
        {"sources: { trusted_urls: [\"https://h:x@evil/m\"] }\n", "1:27", "expected the beginning of a reference"},
        {"sources: { trusted_urls: [\"http://127.1/\"] }\n", "1:27", "expected the beginning of a reference"},
        {"server: 7\n", "1:9", "server: expected a section with keys such as server.socket_path, got 7"},
        {"server: [1]\n", "1:9", "got a list"},
    };
    char place[64];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(place, sizeof place, "/etc/store.yaml:%s: ", cases[i].place);
        refused(cases[i].text, place, "CONFIG_INVALID_VALUE", cases[i].word);
    }
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    struct error error;
    (void)state;
    assert_null(config_load(&(struct config_source){.path = "/nowhere/store.yaml"}, &error));
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nowhere/store.yaml"));
    assert_null(config_load(&(struct config_source){.path = "/tmp"}, &error));
    assert_non_null(strstr(error.message, "/tmp"));
}

static void socket_paths_fit_into_a_socket_address(void **state)
{
    char name[200], text[512];
    (void)state;
    memset(name, 'x', sizeof name);
    for (int length = 96; length <= 110; length++) { /* with .sock; .handoff is three bytes longer */
        struct error error;
        snprintf(text, sizeof text, "server: { socket_path: /%.*s.sock }\n", length - 6, name);
        const struct config *config = config_parse(text, strlen(text), "store.yaml", &error);
        assert_int_equal(config != NULL, length <= 104);
        if (!config)
            assert_non_null(strstr(error.message, "server.socket_path"));
        config_destroy(config);
        snprintf(text, sizeof text, "server: { socket_path: /%.*s.sock, handoff_socket_path: /h }\n", length - 6, name);
        config = config_parse(text, strlen(text), "store.yaml", &error);
        assert_int_equal(config != NULL, length <= 107);
        config_destroy(config);
    }
}

static void the_handoff_socket_is_derived_and_is_another_one(void **state)
{
    static const struct {
        const char *text, *handoff;
    } cases[] = {{"server: { socket_path: /a/d.sock }", "/a/d.handoff"},
                 {"server: { socket_path: /a/d }", "/a/d.handoff"},
                 {"server: { socket_path: /a/d.sock, handoff_socket_path: \"\" }", "/a/d.handoff"},
                 {"server: { socket_path: /a.sock/d }", "/a.sock/d.handoff"},
                 {"server: { socket_path: /a/d.sock, handoff_socket_path: /b/h.sock }", "/b/h.sock"}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct config *config = parse(cases[i].text);
        assert_string_equal(config->server.handoff_socket_path, cases[i].handoff);
        config_destroy(config);
    }
    refused("server: { socket_path: /a, handoff_socket_path: //a }", "/etc/store.yaml:1:49: ", "CONFIG_INVALID_VALUE",
            "the same as");
}

static void trusted_roots_are_absolute_tidy_and_apart(void **state)
{
    const struct config *config =
        parse("sources:\n  disk:\n    trusted_roots:\n      - /a//b/./c/\n      - /a/b/cd\n      - \"/x y\"\n");
    (void)state;
    assert_int_equal(config->sources.disk.trusted_roots.n_items, 3);
    assert_string_equal(config->sources.disk.trusted_roots.items[0], "/a/b/c");
    assert_string_equal(config->sources.disk.trusted_roots.items[1], "/a/b/cd");
    assert_string_equal(config->sources.disk.trusted_roots.items[2], "/x y");
    config_destroy(config);
    config = parse("sources: { disk: { trusted_roots: [] } }");
    assert_int_equal(config->sources.disk.trusted_roots.n_items, 0);
    config_destroy(config);
    config = parse("sources: { disk: { trusted_roots: [//] } }");
    assert_string_equal(config->sources.disk.trusted_roots.items[0], "/");
    config_destroy(config);
}

static void trusted_roots_that_overlap_or_are_relative_are_refused(void **state)
{
    static const struct {
        const char *roots, *word;
    } cases[] = {
        {"[/a, /a]", "/a and /a overlap"},
        {"[/a, /a/]", "overlap"},
        {"[/a, /b, /a/x]", "/a/x and /a overlap"},
        {"[/a/x, /a]", "overlap"},
        {"[/, /a]", "overlap"},
        {"[/a, /]", "overlap"},
        {"[models]", "absolute"},
        {"[./models]", "absolute"},
        {"[~/models]", "absolute"},
        {"[\"\"]", "absolute"},
        {"[]x", ""},
        {"[/a/../b]", "\"..\""},
        {"[/a/..]", "\"..\""},
        {"7", "a list"},
        {"/a", "a list"},
        {"{/a: /b}", "a list"},
        {"[[/a]]", "got a list"},
        {"[\"/a\\nb\"]", "/a\\nb"},
    };
    char text[256];
    struct error error;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(text, sizeof text, "sources: { disk: { trusted_roots: %s } }", cases[i].roots);
        assert_null(config_parse(text, strlen(text), "store.yaml", &error));
        if (!strstr(error.message, cases[i].word))
            fail_msg("%s: %s", cases[i].roots, error.message);
    }
}

static void at_most_256_roots_are_taken(void **state)
{
    char *text;
    size_t length;
    struct error error;
    (void)state;
    for (int n = 256; n <= 257; n++) {
        FILE *out = open_memstream(&text, &length);
        fputs("sources:\n  disk:\n    trusted_roots:\n", out);
        for (int i = 0; i < n; i++)
            fprintf(out, "      - /r%d\n", i);
        fclose(out);
        const struct config *config = config_parse(text, length, "store.yaml", &error);
        assert_int_equal(config != NULL, n == 256);
        config_destroy(config);
        free(text);
    }
}

static void executor_names_are_those_of_the_wire(void **state)
{
    (void)state;
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_AUTO], "AUTO");
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE], "GENERIC_BYTE_RANGE");
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL], "TENSOR_AWARE_LOCAL");
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE], "OWNER_FILE_COLLECTIVE");
}

static void an_executor_may_have_the_name_that_reports_give_it(void **state)
{
    static const char *const names[] = {"tensor_batched_local", "TENSOR_BATCHED_LOCAL", "tensor_aware_local",
                                        "MATERIALIZATION_STRATEGY_EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL"};
    char text[256];
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(text, sizeof text, STRATEGY "executor_preference: %s\n", names[i]);
        const struct config *config = parse(text);
        assert_int_equal(config->engine.strategy.executor_preference, EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL);
        config_destroy(config);
    }
}

static void destroying_nothing_or_the_defaults_is_harmless(void **state)
{
    (void)state;
    config_destroy(NULL);
    config_destroy(config_defaults());
    assert_string_equal(config_defaults()->server.state_dir, "/var/lib/tensorcast");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_file_means_every_default),
        cmocka_unit_test(the_defaults_are_those_of_the_documents),
        cmocka_unit_test(every_key_can_be_set_and_is_printed_with_its_value),
        cmocka_unit_test(comparing_names_exactly_the_key_that_differs),
        cmocka_unit_test(what_is_printed_reads_back_and_prints_the_same),
        cmocka_unit_test(unknown_keys_are_refused_with_the_nearest_known_one),
        cmocka_unit_test(keys_and_sections_given_twice_are_refused),
        cmocka_unit_test(values_of_the_wrong_kind_or_range_are_refused_with_what_is_expected),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(socket_paths_fit_into_a_socket_address),
        cmocka_unit_test(the_handoff_socket_is_derived_and_is_another_one),
        cmocka_unit_test(trusted_roots_are_absolute_tidy_and_apart),
        cmocka_unit_test(trusted_roots_that_overlap_or_are_relative_are_refused),
        cmocka_unit_test(at_most_256_roots_are_taken),
        cmocka_unit_test(executor_names_are_those_of_the_wire),
        cmocka_unit_test(an_executor_may_have_the_name_that_reports_give_it),
        cmocka_unit_test(destroying_nothing_or_the_defaults_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
