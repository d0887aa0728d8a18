/* Base64 for JSON web tokens: the vectors of RFC 4648, without their padding. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_rfc_4648_hold),
        cmocka_unit_test(digits_62_and_63_are_those_of_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
