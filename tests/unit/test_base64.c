/* Base64: the vectors of RFC 4648, with and without their padding. */
#include "tests/support/unit.h"

#include "base/base64.h"

TEST(the_vectors_of_rfc_4648_hold)
{
    static const char *const vectors[][2] = {
        {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},         {"foo", "Zm9v"},
        {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char *text = base64_encode_url(vectors[i][0], strlen(vectors[i][0]));
        assert_string_equal(text, vectors[i][1]);
        free(text);
    }
}

TEST(digits_62_and_63_are_those_of_urls)
{
    char *text = base64_encode_url("\xfb\xff\xfe\xff", 4);
    assert_string_equal(text, "-__-_w");
    free(text);
}

TEST(what_was_encoded_is_decoded_with_and_without_padding)
{
    static const char *const vectors[][3] = {{"", "", ""},
                                             {"f", "Zg", "Zg=="},
                                             {"fo", "Zm8", "Zm8="},
                                             {"foo", "Zm9v", "Zm9v"},
                                             {"foob", "Zm9vYg", "Zm9vYg=="},
                                             {"\xfb\xff\xfe", "+//+", "+//+"}};
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

TEST(what_is_not_base64_is_refused)
{
    static const char *const bad[] = {"Z",   "Zg=",  "Zm8==", "====",  "=",      "Z===", "Zg==Zg==", "Zh",
                                      "Zm9", "Zm9-", "Zm9_",  "Zm 9v", "Zm9v\n", "Zg=a", "Zm9v="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t bytes[16];
        size_t n;
        assert_false(base64_decode(bad[i], strlen(bad[i]), bytes, &n));
    }
}
