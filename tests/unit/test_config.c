/* The configuration: every mistake is refused with its place, every value means what it says, and what is printed reads
 * back. */
#include "tests/support/unit.h"

#include <unistd.h>

#include "base/memory.h"
#include "config/config.h"
#include "config/schema.h"
#include "observe/log.h"
#include "source/store.h"

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

/* With a message that begins with `place` and has `word` in it. */
static void refused(const char *text, const char *place, const char *reason, const char *word)
{
    struct error error;
    const struct config *config = config_parse(text, strlen(text), "/etc/store.yaml", &error);
    if (config)
        fail_msg("accepted: %s", text);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    if (strncmp(error.message, place, strlen(place)) != 0 || !strstr(error.message, word) ||
        strcmp(error.reason, reason) != 0)
        fail_msg("%s\ngives %s: %s\ninstead of %s ... %s", text, error.reason, error.message, place, word);
}

struct refusal {
    const char *text, *place, *word;
};

static void refused_all(const struct refusal *rows, size_t n_rows, const char *reason)
{
    char place[64];
    for (size_t i = 0; i < n_rows; i++) {
        snprintf(place, sizeof place, "/etc/store.yaml:%s: ", rows[i].place);
        bool is_twice = strstr(rows[i].word, " twice");
        refused(rows[i].text, place, is_twice ? "CONFIG_DUPLICATE_KEY" : reason, rows[i].word);
    }
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

TEST(an_empty_file_means_every_default)
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
    for (size_t i = 0; i < COUNT(empty); i++) {
        const struct config *config = parse(empty[i]);
        char *text = printed(config);
        assert_string_equal(text, expected);
        free(text);
        config_destroy(config);
    }
    free(expected);
}

/* What every default is, tests/golden/test_config_docs.c compares as text: here, what the text means. */
TEST(defaults_mean_what_they_say)
{
    const struct config *config = config_defaults();
    const struct materialization_strategy *strategy = &config->engine.strategy;
    assert_string_equal(config->server.handoff_socket_path, "/run/tensorcast/daemon.handoff");
    assert_int_equal(config->server.socket_mode, 0660);
    assert_string_equal(config->server.socket_group, "");
    assert_int_equal(config->server.max_message_bytes, 32 << 20);
    assert_int_equal(config->server.shutdown_grace_ms, 10000);
    assert_int_equal(config->logging.level, LOG_INFO);
    assert_int_equal(config->memory.host_budget_bytes, 0);
    assert_int_equal(config->memory.replica_idle_ttl_ms, 600000);
    assert_int_equal(config->sources.disk.trusted_roots.n_items, 1);
    assert_string_equal(config->sources.disk.trusted_roots.items[0], "/models");
    assert_int_equal(config->engine.collective_transport, COLLECTIVE_TRANSPORT_AUTO);
    assert_true(strategy->allow_mixed_execution && !strategy->enable_owner_file_collective);
    assert_int_equal(strategy->executor_preference, EXECUTOR_PREFERENCE_AUTO);
    assert_true(strategy->owner_file_collective_peak_bytes_budget == 8ull << 30);
    assert_true(strategy->owner_file_collective_max_owner_skew_ratio == 1.5);
    assert_int_equal(strategy->cost_gate, COST_GATE_TIME);
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
    {"server.metrics_address", "\"[::1]:0\"", "\"[::1]:0\""},
    {"server.max_connections_per_uid", "1_000", "1000"},
    {"server.max_message_size", "1.5MiB", "1536KiB"},
    {"server.sandbox", "false", "off"},
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
    {"hosts.name", "h1", "\"h1\""},
    {"hosts.listen", "10.0.0.7:7070", "\"10.0.0.7:7070\""},
    {"hosts.cluster_key_file", "/etc/key", "/etc/key"},
    {"hosts.domain", "rack1", "\"rack1\""},
    {"hosts.etcd.endpoints", "[https://10.0.0.1:2379]", "[\"https://10.0.0.1:2379\"]"},
    {"hosts.etcd.prefix", "/t", "/t"},
    {"hosts.etcd.username", "u", "\"u\""},
    {"hosts.etcd.password_file", "/etc/p", "/etc/p"},
    {"hosts.etcd.ca_file", "/etc/c", "/etc/c"},
    {"hosts.etcd.cert_file", "/etc/c", "/etc/c"},
    {"hosts.etcd.key_file", "/etc/k", "/etc/k"},
    {"hosts.tls.cert_file", "/etc/c", "/etc/c"},
    {"hosts.tls.key_file", "/etc/k", "/etc/k"},
    {"hosts.tls.ca_file", "/etc/c", "/etc/c"},
    {"tracing.otlp_endpoint", "http://127.0.0.1:4318", "\"http://127.0.0.1:4318\""},
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

TEST(every_key_can_be_set_alone_is_printed_with_its_value_and_reads_back)
{
    struct change none = {0};
    assert_int_equal(COUNT(others), schema_n_keys);
    for (size_t i = 0; i < COUNT(others); i++) {
        char text[512], line[256];
        struct change change = {0};
        assert_string_equal(others[i].path, schema_keys[i].path);
        nest(others[i].path, others[i].written, text, sizeof text);
        const struct config *config = parse(text);
        config_compare(config_defaults(), config, note_change, &change);
        bool moves_handoff = strcmp(others[i].path, "server.socket_path") == 0; /* derived, so it differs as well */
        assert_int_equal(change.n, moves_handoff ? 2 : 1);
        assert_true(moves_handoff || strcmp(change.key, others[i].path) == 0);
        assert_int_equal(change.reloadable, schema_keys[i].reloadable);

        char *shown = printed(config);
        snprintf(line, sizeof line, "%s: %s  # from the configuration file", schema_last_name(&schema_keys[i]),
                 others[i].shown);
        if (!strstr(shown, line))
            fail_msg("%s is not in\n%s", line, shown);
        const struct config *again = parse(shown);
        char *second = printed(again);
        config_compare(config, again, note_change, &none);
        assert_int_equal(none.n, 0);
        assert_string_equal(shown, second);
        free(shown);
        free(second);
        config_destroy(config);
        config_destroy(again);
    }
    config_compare(config_defaults(), config_defaults(), note_change, &none);
    assert_int_equal(none.n, 0);
}

TEST(unknown_keys_and_those_given_twice_are_refused)
{
    static const struct refusal rows[] = {
        {"servr:\n  socket_path: /x\n", "1:1", "did you mean server?"},
        {"server:\n  socket_path: /x\n  socket_pth: /y\n", "3:3",
         "unknown key server.socket_pth; did you mean server.socket_path?"},
        {STRATEGY "enable_local_batch_disk_load: true\n", "3:5", "enable_local_batched_disk_load?"},
        {"socket_path: /x\n", "1:1", "did you mean server.socket_path?"},
        {"nonsense: true\n", "1:1",
         "known here: server, logging, memory, limits, sources, activations, uploads, devices, engine, hosts, tracing, "
         "prewarm"},
        {"server.socket_path: /x\n", "1:1", "server.socket_path"},
        {"server: { \"a\\nb\": 1 }\n", "1:11", "server.a\\nb;"},
        {"\"\": 1\n", "1:1", "unknown key"},
        {"server: { [a]: 1 }\n", "1:11", "a key is a name"},
        {"server: {}\nmemory: {}\nserver: {}\n", "3:1", "server is given twice; the first is on line 1"},
        {"memory:\n  staging_budget: 1MB\n  staging_budget: 1MB\n", "3:3",
         "memory.staging_budget is given twice; the first is on line 2"},
    };
    refused_all(rows, COUNT(rows), "CONFIG_UNKNOWN_KEY");
}

TEST(values_of_the_wrong_kind_or_range_are_refused_with_what_is_expected)
{
    static const struct refusal rows[] = {
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
        {"server: { metrics_address: 9464 }\n", "1:28", "expected ADDRESS:PORT"},
        {"server: { metrics_address: \"localhost:9464\" }\n", "1:28", "a number as address"},
        {"server: { metrics_address: \"127.0.0.1:65536\" }\n", "1:28", "expected ADDRESS:PORT"},
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
    refused_all(rows, COUNT(rows), "CONFIG_INVALID_VALUE");
}

TEST(a_file_that_cannot_be_read_is_named)
{
    struct error error;
    assert_null(config_load(&(struct config_source){.path = "/nowhere/store.yaml"}, &error));
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nowhere/store.yaml"));
    assert_null(config_load(&(struct config_source){.path = "/tmp"}, &error));
    assert_non_null(strstr(error.message, "/tmp"));
}

TEST(a_path_may_begin_with_the_folder_of_systemds_credentials)
{
    static const char text[] = "hosts: {cluster_key_file: $CREDENTIALS_DIRECTORY/key}\n",
                      other[] = "hosts: {cluster_key_file: $CREDENTIALS_DIRECTORY2/key}\n";
    setenv("CREDENTIALS_DIRECTORY", "/run/credentials/x.service", 1);
    const struct config *config = parse(text);
    assert_string_equal(config->hosts.cluster_key_file, "/run/credentials/x.service/key");
    config_destroy(config);
    refused(other, "/etc/store.yaml:1:27: ", "CONFIG_INVALID_VALUE", "$CREDENTIALS_DIRECTORY2/key");
    unsetenv("CREDENTIALS_DIRECTORY");
    refused(text, "/etc/store.yaml:1:27: ", "CONFIG_INVALID_VALUE", "$CREDENTIALS_DIRECTORY/key");
}

static char drop_in_folder[64];
static char *drop_ins[3];

static void put_drop_in(size_t i, const char *text)
{
    char *path = drop_ins[i] = memory_print("%s/%zu.yaml", drop_in_folder, i);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static int begin_drop_ins(void **state)
{
    (void)state;
    snprintf(drop_in_folder, sizeof drop_in_folder, "/tmp/tc-drop-ins-XXXXXX");
    assert_non_null(mkdtemp(drop_in_folder));
    put_drop_in(0, "server: {state_dir: /a, shutdown_grace: 1s}\nsources: {disk: {trusted_roots: [/a, /b]}}\n");
    put_drop_in(1, "# nothing\n");
    put_drop_in(2, "sources: {disk: {trusted_roots: [/c]}}\nserver: {shutdown_grace: 2s}\n");
    return 0;
}

static int end_drop_ins(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(drop_ins); i++) {
        unlink(drop_ins[i]);
        free(drop_ins[i]);
    }
    return rmdir(drop_in_folder);
}

static struct config *load_drop_ins(struct error *error)
{
    return config_load(
        &(struct config_source){
            .path = drop_ins[0], .drop_ins = drop_ins + 1, .n_drop_ins = COUNT(drop_ins) - 1, .name = "(none)"},
        error);
}

TEST_IN(of_several_files_the_last_that_has_a_key_counts_and_lists_are_replaced, begin_drop_ins, end_drop_ins)
{
    struct error error;
    struct config *config = load_drop_ins(&error);
    assert_non_null(config);
    assert_string_equal(config->server.state_dir, "/a");
    assert_int_equal(config->server.shutdown_grace_ms, 2000);
    assert_int_equal(config->sources.disk.trusted_roots.n_items, 1);
    assert_string_equal(config->sources.disk.trusted_roots.items[0], "/c");
    assert_string_equal(config_name(config), drop_ins[0]);
    assert_int_equal(config_drop_ins(config).n_items, 2);
    assert_string_equal(config_drop_ins(config).items[1], drop_ins[2]);
    char *text = printed(config), *wanted = memory_print("shutdown_grace: 2s  # from %s; default 10s\n", drop_ins[2]);
    assert_non_null(strstr(text, wanted));
    assert_non_null(strstr(text, "state_dir: /a  # from the configuration file;"));
    free(text);
    free(wanted);
    config_destroy(config);
}

static void assert_drop_in_refused(size_t i, const char *text, size_t named, const char *wanted)
{
    struct error error;
    free(drop_ins[i]);
    put_drop_in(i, text);
    assert_null(load_drop_ins(&error));
    char *place = memory_print("%s:%s", drop_ins[named], wanted);
    if (strncmp(error.message, place, strlen(place)) != 0)
        fail_msg("%s\ninstead of %s", error.message, place);
    free(place);
}

TEST_IN(a_mistake_is_told_with_the_file_that_has_it, begin_drop_ins, end_drop_ins)
{
    struct error error;
    assert_drop_in_refused(1, "\nserver: {shutdown_grce: 1s}\n", 1, "2:10: unknown key server.shutdown_grce");
    assert_drop_in_refused(1, "server: {state_dir: x}\n", 1, "1:21: server.state_dir: ");
    assert_drop_in_refused(1, "server: {metrics_address: nowhere}\n", 1, "1:27: server.metrics_address: "); /* at the end */
    assert_drop_in_refused(0, "server: {metrics_address: nowhere}\n", 1, "1:27: server.metrics_address: ");
    assert_drop_in_refused(1, "{}\n", 0, "1:27: server.metrics_address: ");
    unlink(drop_ins[2]);
    assert_null(load_drop_ins(&error));
    assert_non_null(strstr(error.message, "cannot read the configuration"));
    assert_non_null(strstr(error.message, drop_ins[2]));
}

TEST(socket_paths_fit_into_a_socket_address)
{
    char name[200], text[512];
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

TEST(the_handoff_socket_is_derived_and_is_another_one)
{
    static const struct {
        const char *text, *handoff;
    } cases[] = {{"server: { socket_path: /a/d.sock }", "/a/d.handoff"},
                 {"server: { socket_path: /a/d }", "/a/d.handoff"},
                 {"server: { socket_path: /a/d.sock, handoff_socket_path: \"\" }", "/a/d.handoff"},
                 {"server: { socket_path: /a.sock/d }", "/a.sock/d.handoff"},
                 {"server: { socket_path: /a/d.sock, handoff_socket_path: /b/h.sock }", "/b/h.sock"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct config *config = parse(cases[i].text);
        assert_string_equal(config->server.handoff_socket_path, cases[i].handoff);
        config_destroy(config);
    }
    refused("server: { socket_path: /a, handoff_socket_path: //a }", "/etc/store.yaml:1:49: ", "CONFIG_INVALID_VALUE",
            "the same as");
}

TEST(trusted_roots_are_absolute_tidy_and_apart)
{
    const struct config *config =
        parse("sources:\n  disk:\n    trusted_roots:\n      - /a//b/./c/\n      - /a/b/cd\n      - \"/x y\"\n");
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

TEST(trusted_roots_that_overlap_or_are_relative_are_refused)
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
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(text, sizeof text, "sources: { disk: { trusted_roots: %s } }", cases[i].roots);
        assert_null(config_parse(text, strlen(text), "store.yaml", &error));
        if (!strstr(error.message, cases[i].word))
            fail_msg("%s: %s", cases[i].roots, error.message);
    }
}

TEST(at_most_256_roots_are_taken)
{
    char *text;
    size_t length;
    struct error error;
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

/* --- prewarm --- */

static struct config *parse_prewarm(const char *yaml, struct error *error)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    fprintf(out, "prewarm:\n%s\n", yaml);
    fclose(out);
    struct config *config = config_parse(text, length, "store.yaml", error);
    free(text);
    return config;
}

TEST(prewarm_is_a_list_of_artifacts_with_options)
{
    struct error error;
    struct config *config =
        parse_prewarm("  - {artifact: /models/a, pin: true}\n"
                      "  - artifact: gs://b/c\n    tp_rank: 1\n    tp_size: 4\n    tensors: [\"x.*\", y]\n",
                      &error);
    assert_non_null(config);
    assert_int_equal(config->prewarm.texts.n_items, 2);
    assert_string_equal(config->prewarm.entries[0].artifact, "disk:/models/a");
    assert_true(config->prewarm.entries[0].pin);
    assert_int_equal(config->prewarm.entries[1].tp_size, 4);
    assert_int_equal(config->prewarm.entries[1].n_tensors, 2);
    char *shown = printed(config);
    assert_non_null(strstr(shown,
                           "prewarm: [{artifact: \"disk:/models/a\", pin: true}, {artifact: \"gs://b/c\", tp_size: 4, "
                           "tp_rank: 1, tensors: [\"x.*\", \"y\"]}]"));
    struct config *again = config_parse(shown, strlen(shown), "again", &error);
    assert_non_null(again);
    assert_string_equal(again->prewarm.entries[1].text, config->prewarm.entries[1].text);
    free(shown);
    config_destroy(again);
    config_destroy(config);
}

TEST(a_size_without_a_rank_is_every_rank)
{
    struct error error;
    struct config *config = parse_prewarm("  - {artifact: /a, tp_size: 3, tensors: [x], pin: true}\n"
                                          "  - {artifact: /b, tp_size: 61}\n",
                                          &error);
    assert_non_null(config);
    assert_int_equal(config->prewarm.texts.n_items, 64);
    assert_string_equal(config->prewarm.texts.items[0],
                        "{artifact: \"disk:/a\", tp_size: 3, tp_rank: 0, tensors: [\"x\"], pin: true}");
    assert_string_equal(config->prewarm.entries[2].text,
                        "{artifact: \"disk:/a\", tp_size: 3, tp_rank: 2, tensors: [\"x\"], pin: true}");
    assert_int_equal(config->prewarm.entries[63].tp_rank, 60);
    config_destroy(config);
    assert_null(parse_prewarm("  - {artifact: /a, tp_size: 3}\n  - {artifact: /b, tp_size: 62}\n", &error));
    assert_non_null(strstr(error.message, "store.yaml:3:5: prewarm: at most 64 entries are allowed"));
}

TEST(wrong_entries_of_prewarm_are_refused_with_their_line)
{
    static const char *const wrong[][2] = {
        {"  - {pin: true}", "store.yaml:2:5: prewarm: an entry needs artifact"},
        {"  - {artifact: models/a}", "store.yaml:2:16: prewarm: artifact: expected a reference"},
        {"  - {artifact: /a, pni: true}", "prewarm: unknown key pni; did you mean pin"},
        {"  - {artifact: /a, pin: 7}", "prewarm: pin: expected true or false, got 7"},
        {"  - {artifact: /a, artifact: /b}", "prewarm: given twice: artifact"},
        {"  - {artifact: /a, tp_rank: 4}", "tp_rank needs tp_size"},
        {"  - {artifact: /a, tp_size: 0}", "tp_size is at least 1"},
        {"  - {artifact: /a, tp_size: 65536}", "store.yaml:2:5: prewarm: at most 64 entries are allowed"},
        {"  - {artifact: /a, tp_size: 4, tp_rank: 4}", "tp_rank is from 0 to tp_size - 1"},
        {"  - {artifact: /a, tp_size: 65537, tp_rank: 0}", "tp_size: expected a whole number of at most 65536, got 65537"},
        {"  - {artifact: /a, tensors: []}", "tensors: expected a list"},
        {"  - {artifact: /a, tensors: x}", "tensors: expected a list"},
        {"  - /a", "an entry: expected a mapping"},
        {"  artifact: /a", "prewarm: expected a list"},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct error error;
        assert_null(parse_prewarm(wrong[i][0], &error));
        if (!strstr(error.message, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], error.message);
    }
}

TEST(at_most_64_artifacts_are_prewarmed_of_256_patterns_each)
{
    for (int more = 0; more < 2; more++) {
        struct error error;
        char *text;
        size_t length;
        FILE *out = open_memstream(&text, &length);
        for (int i = 0; i < 64 + more; i++)
            fprintf(out, "  - {artifact: /a%d, tp_size: 65536, tp_rank: 65535}\n", i);
        fclose(out);
        struct config *config = parse_prewarm(text, &error);
        assert_int_equal(config != NULL, !more);
        config_destroy(config);
        free(text);
        out = open_memstream(&text, &length);
        fputs("  - {artifact: /a, tensors: [", out);
        for (int i = 0; i < 256 + more; i++)
            fprintf(out, "%st%d", i ? ", " : "", i);
        fputs("]}", out);
        fclose(out);
        config = parse_prewarm(text, &error);
        assert_int_equal(config != NULL, !more);
        config_destroy(config);
        free(text);
    }
}

/* --- YAML --- */

TEST(what_is_not_one_plain_yaml_mapping_is_refused)
{
    static const struct refusal rows[] = {
        {"server: {\n", "2:1", "no YAML"},
        {"\tserver: {}\n", "1:1", "tab"},
        {"server:\n \tsocket_path: /x\n", "2:2", "tab"},
        {"- a\n- b\n", "1:1", "mapping"},
        {"just words\n", "1:1", "mapping"},
        {"null\n", "1:1", "mapping"},
        {"server: {}\n---\nmemory: {}\n", "2:1", "second document"},
        {"---\n---\n", "2:1", "second document"},
        {"server: &s {}\n", "1:9", "anchors"},
        {"&s server: {}\n", "1:1", "anchors"},
        {"server: *s\n", "1:9", "aliases"},
        {"server: { socket_path: *s }\n", "1:24", "aliases"},
        {"&a {}\n", "1:1", "anchors"},
        {"server: !!map {}\n", "1:9", "tags"},
        {"logging: { level: !!str info }\n", "1:19", "tags"},
        {"server: \xff\n", "1:9", "0xff is not UTF-8"},
        {"a: b\n\xe2\x82", "2:1", "not UTF-8"},
        {"server: {}\n\x01", "2:1", "control characters"},
        {"server: { socket_group: \"a\\0b\" }\n", "1:25", "NUL"},
        {"memory:\n  pool_budget: \"64MiB\n", "3:1", "began on line 2"},
    };
    refused_all(rows, COUNT(rows), "CONFIG_NOT_YAML");
}

TEST(bombs_of_brackets_and_aliases_end_at_once)
{
    enum { LENGTH = 1 << 19 };
    static const char *const starts[] = {"", "server: ", "server: { socket_path: ", "sources: { disk: { trusted_roots: [ ",
                                         "? "};
    char *text = malloc(LENGTH);
    struct error error;
    for (size_t i = 0; i < COUNT(starts); i++) {
        for (const char *bracket = "[{"; *bracket; bracket++) {
            memset(text, *bracket, LENGTH);
            memcpy(text, starts[i], strlen(starts[i]));
            assert_null(config_parse(text, LENGTH, "bomb.yaml", &error));
            assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        }
    }
    free(text);
    refused("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "/etc/store.yaml:1:1", "CONFIG_UNKNOWN_KEY", "a");
}

TEST(a_file_of_one_mebibyte_is_read_and_one_byte_more_is_refused)
{
    enum { LIMIT = 1 << 20 };
    char *text = malloc(LIMIT + 1), path[] = "/tmp/test_config.XXXXXX";
    struct error error;
    memset(text, 'x', LIMIT + 1);
    text[0] = '#';
    for (size_t length = LIMIT; length <= LIMIT + 1; length++) {
        int fd = length == LIMIT ? mkstemp(path) : -1;
        FILE *file = fd >= 0 ? fdopen(fd, "w") : fopen(path, "w");
        assert_int_equal(fwrite(text, 1, length, file), length);
        fclose(file);
        const struct config *config = config_load(&(struct config_source){.path = path}, &error);
        assert_int_equal(config != NULL, length == LIMIT);
        if (!config)
            assert_string_equal(error.reason, "CONFIG_TOO_LARGE");
        config_destroy(config);
    }
    unlink(path);
    free(text);
}

TEST(executor_names_are_those_of_the_wire)
{
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_AUTO], "AUTO");
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE], "GENERIC_BYTE_RANGE");
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL], "TENSOR_AWARE_LOCAL");
    assert_string_equal(executor_preference_names[EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE], "OWNER_FILE_COLLECTIVE");
}

TEST(an_executor_may_have_the_name_that_reports_give_it)
{
    static const char *const names[] = {"tensor_batched_local", "TENSOR_BATCHED_LOCAL", "tensor_aware_local",
                                        "MATERIALIZATION_STRATEGY_EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL"};
    char text[256];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(text, sizeof text, STRATEGY "executor_preference: %s\n", names[i]);
        const struct config *config = parse(text);
        assert_int_equal(config->engine.strategy.executor_preference, EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL);
        config_destroy(config);
    }
}

TEST(destroying_nothing_or_the_defaults_is_harmless)
{
    config_destroy(NULL);
    config_destroy(config_defaults());
    assert_string_equal(config_defaults()->server.state_dir, "/var/lib/tensorcast");
}

static int link_stores(void **state)
{
    (void)state;
    store_find(""); /* whose sections are a part of the configuration */
    return 0;
}
TESTS_IN(link_stores, NULL)
