/* Base64: the vectors of RFC 4648, with and without their padding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"

#include <cmocka.h>

static void the_vectors_of_rfc_4648_hold(void **state)
{
    static const char *const vectors[][2] = {
        {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},         {"foo", "Zm9v"},
        {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}};
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char *text = base64_encode_url(vectors[i][0], strlen(vectors[i][0]));
        assert_string_equal(text, vectors[i][1]);
        free(text);
    }
}

static void digits_62_and_63_are_those_of_urls(void **state)
{
    (void)state;
    char *text = base64_encode_url("\xfb\xff\xfe\xff", 4);
    assert_string_equal(text, "-__-_w");
    free(text);
}

static void what_was_encoded_is_decoded_with_and_without_padding(void **state)
{
    static const char *const vectors[][3] = {{"", "", ""},
                                             {"f", "Zg", "Zg=="},
                                             {"fo", "Zm8", "Zm8="},
                                             {"foo", "Zm9v", "Zm9v"},
                                             {"foob", "Zm9vYg", "Zm9vYg=="},
                                             {"\xfb\xff\xfe", "+//+", "+//+"}};
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char text[16];
        uint8_t bytes[16];
        size_t length = strlen(vectors[i][0]), n;
        assert_int_equal(base64_encode(vectors[i][0], length, text), strlen(vectors[i][1]));
        assert_memory_equal(text, vectors[i][1], strlen(vectors[i][1]));
        base64_encode_padded(vectors[i][0], length, text);
        assert_string_equal(text, vectors[i][2]);
        for (size_t j = 1; j <= 2; j++) {
            assert_true(base64_decode(vectors[i][j], strlen(vectors[i][j]), bytes, &n));
            assert_int_equal(n, length);
            assert_memory_equal(bytes, vectors[i][0], length);
        }
    }
}

static void what_is_not_base64_is_refused(void **state)
{
    static const char *const bad[] = {"Z",   "Zg=",  "Zm8==", "====",  "=",      "Z===", "Zg==Zg==", "Zh",
                                      "Zm9", "Zm9-", "Zm9_",  "Zm 9v", "Zm9v\n", "Zg=a", "Zm9v="};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t bytes[16];
        size_t n;
        assert_false(base64_decode(bad[i], strlen(bad[i]), bytes, &n));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_rfc_4648_hold),
        cmocka_unit_test(digits_62_and_63_are_those_of_urls),
        cmocka_unit_test(what_was_encoded_is_decoded_with_and_without_padding),
        cmocka_unit_test(what_is_not_base64_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
