/* Where settings come from, and what may be asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/gcs/gcs_settings.h"
#include "source/gcs/source_gcs.h"
#include "source/hf/source_hf.h"
#include "source/s3/s3_settings.h"
#include "source/s3/source_s3.h"
#include "source/stores.h"
#include "source/web/source_https.h"

#include <cmocka.h>

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

static void without_anything_defaults_hold(void **state)
{
    struct stores *stores = make("");
    (void)state;
    assert_string_equal(gcs_of(stores)->base.endpoint, "https://storage.googleapis.com");
    assert_false(gcs_of(stores)->is_anonymous);
    assert_string_equal(s3_of(stores)->base.endpoint, "");
    assert_int_equal(s3_of(stores)->addressing, S3_ADDRESSING_AUTO);
    assert_string_equal(hf_of(stores)->base.endpoint, "https://huggingface.co");
    assert_string_equal(hf_of(stores)->token_file, "/home/somebody/.cache/huggingface/token");
    assert_string_equal(hf_of(stores)->cache_dir, "/home/somebody/.cache/huggingface/hub");
    assert_false(hf_of(stores)->is_offline);
    assert_int_equal(stores_request_bytes(stores), 16 << 20);
    assert_int_equal(stores_parallel_requests(stores), 32);
    stores_destroy(stores);
}

static void the_environment_counts_where_the_configuration_is_silent(void **state)
{
    (void)state;
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
    assert_int_equal(stores_parallel_requests(stores), 7);
    stores_destroy(stores);
}

static void the_more_particular_name_wins(void **state)
{
    (void)state;
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

static void a_number_in_the_environment_that_is_none_is_an_error(void **state)
{
    static const char *const wrong[] = {"0", "-1", "many", "1e9", "99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct stores *stores;
        struct error error;
        setenv("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", wrong[i], 1);
        assert_int_equal(stores_create(config_defaults(), NULL, &stores, &error), -1);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS"));
    }
}

static void plain_http_is_for_this_host_alone(void **state)
{
    static const char *const good[] = {"https://h/x",         "http://localhost/x",   "http://LOCALHOST:80",
                                       "http://127.0.0.1:8/", "http://127.9.9.9?x=1", "http://[::1]:80/x"};
    static const char *const bad[] = {
        "http://h/x",          "http://localhost.evil/",        "http://127.0.0.1.evil/", "http://127.0.0.1@h/",
        "http://localhost@h/", "http://localhost:x@h/",         "http://[::1].evil/",     "http://[::2]/",
        "http://127.0.0.256/", "http://169.254.169.254/latest", "ftp://localhost/",       ""};
    struct stores *stores = make("");
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(stores_check_url(stores, good[i], &error), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (stores_check_url(stores, bad[i], &error) == 0)
            fail_msg("%s is let pass", bad[i]);
        assert_true(error.code == ERROR_PERMISSION_DENIED || error.code == ERROR_INVALID_ARGUMENT);
    }
    stores_destroy(stores);
    stores = make("sources: {http: {allow_plain: true}}");
    assert_int_equal(stores_check_url(stores, "http://h/x", &error), 0);
    assert_int_equal(stores_check_url(stores, "ftp://h/x", &error), -1);
    stores_destroy(stores);
}

static void trusted_urls_are_prefixes_of_whole_parts(void **state)
{
    static const char *const good[] = {"gs://models", "gs://models/llama", "hf://org/model@main", "https://h/m/x?y=%2F..",
                                       "https://h/m/x#sha256=0"};
    static const char *const bad[] = {
        "gs://models-of-others/x", "gs://models/../x",     "hf://organ/model",  "https://h/mm",
        "https://h/m/%2e%2e/x",    "https://h/m/..%2Fx/y", "s3://models/llama", "https://h/m/\\x"};
    struct stores *stores = make("sources: {trusted_urls: ['gs://models', 'hf://org', 'https://h/m/']}");
    struct error error;
    (void)state;
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

static void what_a_store_keeps_is_made_once(void **state)
{
    struct stores *stores = make("sources: {gcs: {anonymous: true}}");
    (void)state;
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

static void only_stores_that_somebody_has_set_up_are_configured(void **state)
{
    static const struct {
        const char *file, *name, *value, *scheme;
    } cases[] = {{"", "HF_ENDPOINT", "https://mirror.example", "+hf "},
                 {"", "HF_TOKEN", "hf_x", "+hf "},
                 {"sources: {gcs: {endpoint: https://gcs.example}}", "UNUSED", "", "+gs "},
                 {"", "AWS_ENDPOINT_URL_S3", "https://minio.example", "+s3 "},
                 {"", "GOOGLE_APPLICATION_CREDENTIALS", "/x/key.json", "+gs "}};
    (void)state;
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

static void the_description_names_sources_and_no_secret(void **state)
{
    char text[4096] = "";
    (void)state;
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

#define TEST(function) cmocka_unit_test_setup(function, forget)

static void so_many_concurrent_chunks_may_be_asked_for_and_not_one_more(void **state)
{
    struct stores *stores;
    struct error error;
    (void)state;
    setenv("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", "1024", 1);
    stores = make("");
    assert_int_equal(stores_parallel_requests(stores), 1024);
    stores_destroy(stores);
    setenv("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", "1025", 1);
    assert_int_equal(stores_create(config_defaults(), NULL, &stores, &error), -1);
    assert_non_null(strstr(error.message, "LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_anything_defaults_hold),
        TEST(the_environment_counts_where_the_configuration_is_silent),
        TEST(the_more_particular_name_wins),
        TEST(a_number_in_the_environment_that_is_none_is_an_error),
        TEST(so_many_concurrent_chunks_may_be_asked_for_and_not_one_more),
        TEST(plain_http_is_for_this_host_alone),
        TEST(trusted_urls_are_prefixes_of_whole_parts),
        TEST(what_a_store_keeps_is_made_once),
        TEST(only_stores_that_somebody_has_set_up_are_configured),
        TEST(the_description_names_sources_and_no_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
