/* Where settings come from, and what may be asked for. */
#include "tests/support/unit.h"

#include "source/gcs/gcs_client.h"
#include "source/gcs/source_gcs.h"
#include "source/hf/source_hf.h"
#include "source/s3/source_s3.h"
#include "source/s3/source_s3.h"
#include "source/stores.h"
#include "source/web/source_https.h"

static const char *const names[] = {
    "STORAGE_EMULATOR_HOST",
    "TENSORSTORE_GCS_HTTP_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "RUNAI_STREAMER_S3_ENDPOINT",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "XDG_CACHE_HOME",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "AWS_REQUEST_PAYER",
    "TENSORCAST_S3_ADDRESSING",
    "LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS",
};

static int forget(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("HOME", "/home/somebody", 1);
    return 0;
}

/* From the text of a configuration, "" = defaults. */
static struct stores *make(const char *text)
{
    struct stores *stores;
    struct error error;
    const struct config *config = config_parse(text, strlen(text), "test.yaml", &error);
    if (!config || stores_create(config, NULL, &stores, &error) < 0)
        fail_msg("%s", error.message);
    config_destroy(config); /* what is needed of it was copied */
    return stores;
}

static const struct gcs_settings *gcs_of(const struct stores *stores)
{
    return stores_settings(stores, &source_gcs_store);
}

static const struct s3_settings *s3_of(const struct stores *stores)
{
    return stores_settings(stores, &source_s3_store);
}

static const struct hf_settings *hf_of(const struct stores *stores)
{
    return stores_settings(stores, &source_hf_store);
}

TEST_IN(without_anything_defaults_hold, forget, NULL)
{
    struct stores *stores = make("");
    assert_string_equal(gcs_of(stores)->base.endpoint, "https://storage.googleapis.com");
    assert_false(gcs_of(stores)->is_anonymous);
    assert_string_equal(s3_of(stores)->base.endpoint, "");
    assert_int_equal(s3_of(stores)->addressing, S3_ADDRESSING_AUTO);
    assert_string_equal(hf_of(stores)->base.endpoint, "https://huggingface.co");
    assert_string_equal(hf_of(stores)->token_file, "/home/somebody/.cache/huggingface/token");
    assert_string_equal(hf_of(stores)->cache_dir, "/home/somebody/.cache/huggingface/hub");
    assert_false(hf_of(stores)->is_offline);
    assert_int_equal(stores->request_bytes, 16 << 20);
    assert_int_equal(stores->parallel_requests, 32);
    stores_destroy(stores);
}

TEST_IN(the_environment_counts_where_the_configuration_is_silent, forget, NULL)
{
    setenv("STORAGE_EMULATOR_HOST", "localhost:4443", 1);
    setenv("AWS_ENDPOINT_URL", "http://localhost:1/", 1);
    setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
    setenv("AWS_REQUEST_PAYER", "requester", 1);
    setenv("TENSORCAST_S3_ADDRESSING", "path", 1);
    setenv("HF_HOME", "/hf", 1);
    setenv("HF_HUB_OFFLINE", "yes", 1);
    setenv("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", "7", 1);
    struct stores *stores = make("sources: {s3: {region: us-west-2}}");
    assert_string_equal(gcs_of(stores)->base.endpoint, "http://localhost:4443");
    assert_true(gcs_of(stores)->is_anonymous);
    assert_string_equal(s3_of(stores)->base.endpoint, "http://localhost:1");
    assert_string_equal(s3_of(stores)->region, "us-west-2");
    assert_true(s3_of(stores)->requester_pays);
    assert_int_equal(s3_of(stores)->addressing, S3_ADDRESSING_PATH);
    assert_string_equal(hf_of(stores)->token_file, "/hf/token");
    assert_string_equal(hf_of(stores)->cache_dir, "/hf/hub");
    assert_true(hf_of(stores)->is_offline);
    assert_int_equal(stores->parallel_requests, 7);
    stores_destroy(stores);
}

TEST_IN(the_more_particular_name_wins, forget, NULL)
{
    setenv("RUNAI_STREAMER_S3_ENDPOINT", "http://localhost:0", 1);
    struct stores *least = make("");
    assert_string_equal(s3_of(least)->base.endpoint, "http://localhost:0");
    stores_destroy(least);
    setenv("AWS_ENDPOINT_URL", "http://localhost:1", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://localhost:2", 1);
    setenv("HF_HOME", "/hf", 1);
    setenv("HF_HUB_CACHE", "/cache", 1);
    setenv("HF_TOKEN", "secret", 1);
    struct stores *stores = make("");
    assert_string_equal(s3_of(stores)->base.endpoint, "http://localhost:2");
    assert_string_equal(hf_of(stores)->cache_dir, "/cache");
    assert_string_equal(hf_of(stores)->token_file, ""); /* HF_TOKEN itself */
    stores_destroy(stores);
    stores = make("sources: {hf: {token_file: /run/token}}");
    assert_string_equal(hf_of(stores)->token_file, "/run/token");
    stores_destroy(stores);
}

TEST_IN(as_many_as_1024_chunks_may_be_asked_for_and_what_is_no_such_number_is_an_error, forget, NULL)
{
    static const char *const numbers[] = {"1024", "1025", "0", "-1", "many", "1e9", "99999999999999999999"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct stores *stores = NULL;
        struct error error;
        setenv("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", numbers[i], 1);
        assert_int_equal(stores_create(config_defaults(), NULL, &stores, &error), i ? -1 : 0);
        assert_true(i || stores->parallel_requests == 1024);
        assert_true(!i || error.code == ERROR_INVALID_ARGUMENT);
        assert_true(!i || strstr(error.message, "LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS"));
        stores_destroy(stores);
    }
}

TEST_IN(plain_http_is_for_this_host_alone, forget, NULL)
{
    static const char *const good[] = {"https://h/x",         "http://localhost/x",   "http://LOCALHOST:80",
                                       "http://127.0.0.1:8/", "http://127.9.9.9?x=1", "http://[::1]:80/x"};
    static const char *const bad[] = {
        "http://h/x",          "http://localhost.evil/",        "http://127.0.0.1.evil/", "http://127.0.0.1@h/",
        "http://localhost@h/", "http://localhost:x@h/",         "http://[::1].evil/",     "http://[::2]/",
        "http://127.0.0.256/", "http://169.254.169.254/latest", "ftp://localhost/",       ""};
    struct stores *stores = make("");
    struct error error;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(http_fence_check(&stores->fence, good[i], &error), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (http_fence_check(&stores->fence, bad[i], &error) == 0)
            fail_msg("%s is let pass", bad[i]);
        assert_true(error.code == ERROR_PERMISSION_DENIED || error.code == ERROR_INVALID_ARGUMENT);
    }
    stores_destroy(stores);
    stores = make("sources: {http: {allow_plain: true}}");
    assert_int_equal(http_fence_check(&stores->fence, "http://h/x", &error), 0);
    assert_int_equal(http_fence_check(&stores->fence, "ftp://h/x", &error), -1);
    stores_destroy(stores);
}

TEST_IN(trusted_urls_are_prefixes_of_whole_parts, forget, NULL)
{
    static const char *const good[] = {"gs://models", "gs://models/llama", "hf://org/model@main", "https://h/m/x?y=%2F..",
                                       "https://h/m/x#sha256=0"};
    static const char *const bad[] = {
        "gs://models-of-others/x", "gs://models/../x",     "hf://organ/model",  "https://h/mm",
        "https://h/m/%2e%2e/x",    "https://h/m/..%2Fx/y", "s3://models/llama", "https://h/m/\\x"};
    struct stores *stores = make("sources: {trusted_urls: ['gs://models', 'hf://org', 'https://h/m/']}");
    struct error error;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(stores_check_reference(stores, good[i], &error), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (stores_check_reference(stores, bad[i], &error) == 0)
            fail_msg("%s is trusted", bad[i]);
        assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
    }
    stores_destroy(stores);
    stores = make("sources: {hf: {enabled: false}}");
    assert_int_equal(stores_check_reference(stores, "hf://org/model", &error), -1);
    assert_int_equal(stores_check_reference(stores, "https://h/m/../x", &error), 0);
    stores_destroy(stores);
}

TEST_IN(what_a_store_keeps_is_made_once, forget, NULL)
{
    struct stores *stores = make("sources: {gcs: {anonymous: true}}");
    void *client = stores_client(stores, &source_gcs_store);
    assert_non_null(client);
    assert_ptr_equal(stores_client(stores, &source_gcs_store), client);
    assert_ptr_not_equal(stores_client(stores, &source_https_store), client);
    stores_destroy(stores);
}

static void note(void *data, const char *scheme, const struct store_line *line)
{
    char *text = data;
    size_t used = strlen(text);
    snprintf(text + used, 4096 - used, "%s%s %s %s\n", line->is_configured ? "+" : "", scheme, line->endpoint,
             line->credentials);
}

TEST_IN(only_stores_that_somebody_has_set_up_are_configured, forget, NULL)
{
    static const struct {
        const char *file, *name, *value, *scheme;
    } cases[] = {{"", "HF_ENDPOINT", "https://mirror.example", "+hf "},
                 {"", "HF_TOKEN", "hf_x", "+hf "},
                 {"sources: {gcs: {endpoint: https://gcs.example}}", "UNUSED", "", "+gs "},
                 {"", "AWS_ENDPOINT_URL_S3", "https://minio.example", "+s3 "},
                 {"", "GOOGLE_APPLICATION_CREDENTIALS", "/x/key.json", "+gs "}};
    unsetenv("HF_TOKEN");
    unsetenv("HF_ENDPOINT");
    setenv("HOME", "/nonexistent", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[4096] = "", before[4096] = "";
        struct stores *stores = make("");
        stores_describe(stores, note, before);
        stores_destroy(stores);
        assert_null(strchr(before, '+'));
        setenv(cases[i].name, cases[i].value, 1);
        stores = make(cases[i].file);
        stores_describe(stores, note, text);
        stores_destroy(stores);
        unsetenv(cases[i].name);
        if (!strstr(text, cases[i].scheme) || strchr(strchr(text, '+') + 1, '+'))
            fail_msg("case %zu:\n%s", i, text);
    }
}

TEST_IN(the_description_names_sources_and_no_secret, forget, NULL)
{
    char text[4096] = "";
    setenv("HF_TOKEN", "hf_secret", 1);
    setenv("HF_ENDPOINT", "https://me:secret@hub.example?key=secret", 1);
    struct stores *stores = make("");
    stores_describe(stores, note, text);
    stores_destroy(stores);
    assert_non_null(strstr(text, "https "));
    assert_non_null(strstr(text, "hub.example"));
    assert_non_null(strstr(text, " HF_TOKEN\n"));
    assert_null(strstr(text, "secret"));
}
