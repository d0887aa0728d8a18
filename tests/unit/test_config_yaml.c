/* Of YAML one plain mapping is taken, and no more than a MiB of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/support/config_refused.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void what_is_not_one_plain_yaml_mapping_is_refused(void **state)
{
    static const struct {
        const char *text, *place, *word;
    } cases[] = {
        {"server: {\n", "2:1", "no YAML"},
        {"\tserver: {}\n", "1:1", "tab"},
        {"server:\n \tsocket_path: /x\n", "2:", "tab"},
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
    char place[64];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(place, sizeof place, "/etc/store.yaml:%s", cases[i].place);
        refused(cases[i].text, place, "CONFIG_NOT_YAML", cases[i].word);
    }
}

static void bombs_of_brackets_and_aliases_end_at_once(void **state)
{
    enum { LENGTH = 1 << 19 };
    static const char *const starts[] = {"", "server: ", "server: { socket_path: ", "sources: { disk: { trusted_roots: [ ",
                                         "? "};
    char *text = malloc(LENGTH);
    struct error error;
    (void)state;
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

static void a_file_of_one_mebibyte_is_read_and_one_byte_more_is_refused(void **state)
{
    enum { LIMIT = 1 << 20 };
    char *text = malloc(LIMIT + 1), path[] = "/tmp/test_config.XXXXXX";
    struct error error;
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_one_plain_yaml_mapping_is_refused),
        cmocka_unit_test(bombs_of_brackets_and_aliases_end_at_once),
        cmocka_unit_test(a_file_of_one_mebibyte_is_read_and_one_byte_more_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
