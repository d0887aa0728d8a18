/* Base64: the vectors of RFC 4648, and that nothing but the one right spelling is decoded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"

#include <cmocka.h>

static const char *const vectors[][2] = {{"", ""},
                                         {"f", "Zg=="},
                                         {"fo", "Zm8="},
                                         {"foo", "Zm9v"},
                                         {"foob", "Zm9vYg=="},
                                         {"fooba", "Zm9vYmE="},
                                         {"foobar", "Zm9vYmFy"}};

static void the_vectors_of_rfc_4648_hold_in_both_directions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        unsigned char out[8] = {0};
        size_t count = strlen(vectors[i][0]);
        char *text = base64_encode(vectors[i][0], count);
        assert_string_equal(text, vectors[i][1]);
        assert_int_equal(base64_decode(text, strlen(text), out, count), 0);
        assert_memory_equal(out, vectors[i][0], count);
        free(text);
    }
}

static void the_url_safe_alphabet_has_no_padding(void **state)
{
    (void)state;
    char *text = base64_encode_url("\xfb\xff\xfe\xff", 4);
    assert_string_equal(text, "-__-_w");
    free(text);
    text = base64_encode("\xfb\xff\xfe\xff", 4);
    assert_string_equal(text, "+//+/w==");
    free(text);
}

static void decoding_refuses_other_lengths_characters_and_stray_bits(void **state)
{
    unsigned char out[8];
    (void)state;
    static const struct {
        const char *text;
        size_t count;
    } wrong[] = {{"Zg=", 1},  {"Zg==", 2}, {"Zg==", 4},   {"Zm9v", 2}, {"Zh==", 1},
                 {"Z===", 1}, {"Zm-v", 3}, {"Zm9v\n", 3}, {"Zg=a", 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(base64_decode(wrong[i].text, strlen(wrong[i].text), out, wrong[i].count), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_rfc_4648_hold_in_both_directions),
        cmocka_unit_test(the_url_safe_alphabet_has_no_padding),
        cmocka_unit_test(decoding_refuses_other_lengths_characters_and_stray_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
