/* Where settings come from, and what may be asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/stores.h"

#include <cmocka.h>

static const char *const names[] = {
    "STORAGE_EMULATOR_HOST",
    "TENSORSTORE_GCS_HTTP_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
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
    "LEVANTER_FSSPEC_CHUNK_BYTES",
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

static struct stores *make(struct stores_options options)
{
    struct stores *stores;
    struct error error;
    if (stores_create(&options, &stores, &error) < 0)
        fail_msg("%s", error.message);
    return stores;
}

static void without_anything_defaults_hold(void **state)
{
    struct stores *stores = make((struct stores_options){0});
    const struct stores_options *options = stores_options(stores);
    (void)state;
    assert_string_equal(options->gcs.endpoint, "https://storage.googleapis.com");
    assert_false(options->gcs.anonymous);
    assert_string_equal(options->s3.endpoint, "");
    assert_string_equal(options->s3.addressing, "auto");
    assert_string_equal(options->hf.endpoint, "https://huggingface.co");
    assert_string_equal(options->hf.token_file, "/home/somebody/.cache/huggingface/token");
    assert_string_equal(options->hf.cache_dir, "/home/somebody/.cache/huggingface/hub");
    assert_false(options->hf.offline);
    assert_int_equal(options->request_bytes, 16 << 20);
    assert_int_equal(options->parallel_requests, 32);
    assert_int_equal(options->chunk_bytes, 2000000000);
    stores_destroy(stores);
}

static void the_environment_counts_where_the_configuration_is_silent(void **state)
{
    (void)state;
    setenv("STORAGE_EMULATOR_HOST", "localhost:4443", 1);
    setenv("AWS_ENDPOINT_URL", "http://localhost:1/", 1);
    setenv("AWS_DEFAULT_REGION", "eu-west-1", 1);
    setenv("HF_HOME", "/hf", 1);
    setenv("HF_HUB_OFFLINE", "yes", 1);
    setenv("LEVANTER_FSSPEC_CHUNK_BYTES", "1000000", 1);
    setenv("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", "7", 1);
    struct stores *stores = make((struct stores_options){.s3 = {.region = "us-west-2"}});
    const struct stores_options *options = stores_options(stores);
    assert_string_equal(options->gcs.endpoint, "http://localhost:4443");
    assert_true(options->gcs.anonymous);
    assert_string_equal(options->s3.endpoint, "http://localhost:1");
    assert_string_equal(options->s3.region, "us-west-2");
    assert_string_equal(options->hf.token_file, "/hf/token");
    assert_string_equal(options->hf.cache_dir, "/hf/hub");
    assert_true(options->hf.offline);
    assert_int_equal(options->chunk_bytes, 1000000);
    assert_int_equal(options->parallel_requests, 7);
    stores_destroy(stores);
}

static void the_more_particular_name_wins(void **state)
{
    (void)state;
    setenv("AWS_ENDPOINT_URL", "http://localhost:1", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://localhost:2", 1);
    setenv("HF_HOME", "/hf", 1);
    setenv("HF_HUB_CACHE", "/cache", 1);
    setenv("HF_TOKEN", "secret", 1);
    struct stores *stores = make((struct stores_options){0});
    assert_string_equal(stores_options(stores)->s3.endpoint, "http://localhost:2");
    assert_string_equal(stores_options(stores)->hf.cache_dir, "/cache");
    assert_string_equal(stores_options(stores)->hf.token_file, ""); /* HF_TOKEN itself */
    stores_destroy(stores);
    stores = make((struct stores_options){.hf = {.token_file = "/run/token"}});
    assert_string_equal(stores_options(stores)->hf.token_file, "/run/token");
    stores_destroy(stores);
}

static void a_number_in_the_environment_that_is_none_is_an_error(void **state)
{
    static const char *const wrong[] = {"0", "-1", "many", "1e9", "99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct stores *stores;
        struct error error;
        setenv("LEVANTER_FSSPEC_CHUNK_BYTES", wrong[i], 1);
        assert_int_equal(stores_create(&(struct stores_options){0}, &stores, &error), -1);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "LEVANTER_FSSPEC_CHUNK_BYTES"));
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
    struct stores *stores = make((struct stores_options){0});
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
    stores = make((struct stores_options){.allow_plain_http = true});
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
    static const char *const trusted[] = {"gs://models", "hf://org", "https://h/m/"};
    struct stores *stores = make((struct stores_options){.trusted_urls = trusted, .n_trusted_urls = 3});
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
    stores = make((struct stores_options){.hf_off = true});
    assert_int_equal(stores_check_reference(stores, "hf://org/model", &error), -1);
    assert_int_equal(stores_check_reference(stores, "https://h/m/../x", &error), 0);
    stores_destroy(stores);
}

static int n_kept;

static void *keep(struct stores *stores)
{
    (void)stores;
    n_kept++;
    return &n_kept;
}

static void drop(void *kept)
{
    --*(int *)kept;
}

static void what_a_backend_keeps_is_made_once_and_freed_with_the_stores(void **state)
{
    struct stores *stores = make((struct stores_options){0});
    (void)state;
    assert_ptr_equal(stores_keep(stores, STORES_GCS, keep, drop), &n_kept);
    assert_ptr_equal(stores_keep(stores, STORES_GCS, keep, drop), &n_kept);
    assert_int_equal(n_kept, 1);
    stores_destroy(stores);
    assert_int_equal(n_kept, 0);
}

static void note(void *data, const char *scheme, const char *endpoint, const char *credentials)
{
    char *text = data;
    strcat(strcat(strcat(strcat(strcat(strcat(text, scheme), " "), endpoint), " "), credentials), "\n");
}

static void the_description_names_sources_and_no_secret(void **state)
{
    char text[4096] = "";
    (void)state;
    setenv("HF_TOKEN", "hf_secret", 1);
    setenv("HF_ENDPOINT", "https://me:secret@hub.example?key=secret", 1);
    struct stores *stores = make((struct stores_options){0});
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
    stores = make((struct stores_options){0});
    assert_int_equal(stores_options(stores)->parallel_requests, 1024);
    stores_destroy(stores);
    setenv("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", "1025", 1);
    assert_int_equal(stores_create(&(struct stores_options){0}, &stores, &error), -1);
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
        TEST(what_a_backend_keeps_is_made_once_and_freed_with_the_stores),
        TEST(the_description_names_sources_and_no_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
