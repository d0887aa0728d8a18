/* What requests to stores are signed with. The expected values come from RFC 4231 and, for RSA, from the Python package
 * `cryptography` with a key made for this test. */
#include "tests/support/unit.h"

#include "base/base64.h"
#include "base/memory.h"
#include "base/signature.h"
#include "tests/support/rsa_key.h"

static const char elliptic_key[] = "-----BEGIN PRIVATE KEY-----\n"
                                   "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgHvtUeGig7OefZMGK\n"
                                   "2Klz6AdxJcA/GToqERgWKz4QM6ShRANCAATYyAyPR7QK6gtj0R7oNCj00CcHcGTe\n"
                                   "sh0Em5LURCY8kazbaGogznj0dElr7uZ61LvupZ31WW1IynUFIwhqMRsW\n"
                                   "-----END PRIVATE KEY-----\n";

static const char locked_key[] = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                                 "MIIFNTBfBgkqhkiG9w0BBQ0wUjAxBgkqhkiG9w0BBQwwJAQQ1cpFo94MSVhM5viE\n"
                                 "5S7AiAICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEFWH+BdlGkSF9XRG\n"
                                 "q7C7QMYEggTQuvIUWqu8vYvWX6m3sQfYdXX6kKjcjjtD0lsRtkV2XRa3keFydbqX\n"
                                 "U64/gf/SUk/ijZUpXGGb6BonqUozeJo8qpEWcEJHNdTiDmTdqci+FZai9ZZRMqfg\n"
                                 "i7M+2S5d7gs+IShG+4AErXgyRt/+Y+y0vwiA4/ps/PJOlozJsnL9mllD2fg6zdZY\n"
                                 "nNY4iTDDfTeIyfUbCqxPVR7Y8zcxhh672rmmocrBcxhUN3EUdc7DbDcnSg49nJLy\n"
                                 "Z1bO3a+VGsZmHVcbW+cT0a7TWE6LrUanhIS8cJaPyrfoO3kT7jWOeU3uXXDSegWT\n"
                                 "Q3egzh3RI5Ei8r2lJd578z5K0fMpnZ8AC8nItF3nyOIGqfWJBToMVGCehFWJjvAt\n"
                                 "WEgA6JjlEA3/Ky7W4Jzcnfp1lQWetvDSiYp5DudKjcWrQlRqLvXHZ0b3qa6WoUCg\n"
                                 "8Sd4plMLN3RA0K9EKaQwoCdduZtVPs706C109RyGJGxvKn4U8H3N2fvPmeFrVETX\n"
                                 "wMztj0e9b3qXGioqdcg6WJXrnRunte0n6QqCczm5PPmagRa4Ckt+JWxeWy7PptPV\n"
                                 "uF02hpAjYF+BrTaQbv7rTLZujBfQKGP0s0gDUK2P/GRLzvTvOzunqXSQQVz3xS9H\n"
                                 "myyExbXOJ6szYqn3acmfm9O5jDU2LMqpmhJXv5Ws/Vb/iNb0UOyBMmweAHtZ5a/9\n"
                                 "bFROBejgbVbXCzrXsQDFz2r+UsWxol94hBavfJJb72xo1hzQA9+5rELsPQEQb27R\n"
                                 "GlFTX3zCuMyGQeE+zv8dr9sKGQhEPxIHrDBZejh3rTu/wvNqrpA2beet+RfWYh/r\n"
                                 "c5Fsk2w4nT6q0sWL5HawLrMkgk5c9y1Sl9mD+klHcUPjqD9Quy5E07/wiQLZktVJ\n"
                                 "QxPlMgfeWU4KatjQl3KNAAdFukhuS9LLrXjCAIwyh8MUJbQjYM+pLWnEhc0zTxZi\n"
                                 "PbSkN2xbo2H0wSFs6r9EMblU1/fqdta+LibOAQD2v9qQuU/LricoNkaGfngv6TFu\n"
                                 "PFEvgYqdZUreaUIZ9WdghCUa5sTXS/PnZGXe0kuJxzrqeNkz6SPgMH4PCBkMiviy\n"
                                 "6IC796X+00nzXFNyh0+yeXxwv21xQuoYZNuMyaUEHGMxU8EhzR6JJJuTjaSOxfDQ\n"
                                 "73JmDAvXvKrXxmCESL4rBErKliy7UyZkO9l1UE+BPcwZKyu+LcgXzJkFpARMbG7A\n"
                                 "iliMnFtIKt5dL45QCoWTDijNpXKXWWRhIoDm2QixlhzGvmH+6D6AasunZG2rszaA\n"
                                 "1jxRWT8Ap1MTD/yW0tpS9FDRCRNenOUBQ732w15o4djupDWBW0R7x8+Yp1gOQlbJ\n"
                                 "44RsepqCuhGLtep65rfW29fL7L72nZRPsjPqd+ZsQpdKo4RH7yR/pf9VCvvMQ61p\n"
                                 "uaNg1H+oKk7TF0y9MOcDz/HnkKd5jav8foZK1dj6ifWaOhD9RyQapECLYUVSohEe\n"
                                 "B215AuoS5k9qPrbyZdwanGMtTfplqP341+iva8eWHAU008rJ0OfWTOcc2mMmB8Lb\n"
                                 "oiewT4d5o2YpqhUgWlkeCJLcfjNauI7vN6Wzww3uz+nw+OMG2A0Mn2GKesPwIUkX\n"
                                 "XEKgfJ0tDMRsJFXhQWEAWpgkgrL5VYV5tVV5Jz5D6VXHr27phFxVD1k=\n"
                                 "-----END ENCRYPTED PRIVATE KEY-----\n";

static const char expected[] =
    "X-wa3ikLaOdBMTS67X-YsW1NZnWl-byMqpFNSXVJIPiGAYqpkzsCxOr5RHCi0aMYHTgum1LkEIGR_sIhfqFWJotmXyEOXq07m9XL"
    "Ny51KmC03yfuhY8i0UnO4eH3dgZELXW_Ik1HPfIaEIb9fklUSeTWg-rvToYkPSsYUDhjbZjRlDgQK2yISsvleq3uBL8lkftrkmU9"
    "nm6G2A0gRI5fkZ0xhVZpoSYAfWEmTALDti9rLuu0CPHqixLZ3RCdbtvIx2OMGO3m_GIJLDus35UNIK1rQo26QqsaO1rQ6srnsley"
    "KUEPOrG8LAa62cweXAHMEUiwEtVqi0YwYMopQM5tPQ";

static void check_hmac(const char *key, const char *data, const char *hex)
{
    unsigned char out[DIGEST_BYTES];
    char text[DIGEST_HEX_CHARS + 1];
    signature_hmac_sha256(key, strlen(key), data, strlen(data), out);
    digest_hex(out, sizeof out, text);
    assert_string_equal(text, hex);
}

TEST(hmac_sha256_gives_the_values_of_rfc_4231)
{
    check_hmac("\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", "Hi There",
               "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    check_hmac("Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(rs256_gives_what_another_implementation_gives)
{
    struct error error;
    unsigned char *signature;
    size_t count;
    assert_int_equal(signature_rs256(rsa_key, strlen(rsa_key), "header.payload", 14, &signature, &count, &error), 0);
    char *text = base64_encode_url(signature, count);
    assert_string_equal(text, expected);
    free(text);
    free(signature);
}

static void refuse_key(const char *pem, size_t length)
{
    struct error error;
    unsigned char *signature;
    size_t count;
    assert_int_equal(signature_rs256(pem, length, "x", 1, &signature, &count, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_null(strstr(error.message, "MII"));
    assert_null(signature);
}

TEST(keys_that_are_cut_off_locked_or_of_another_kind_are_refused_without_being_shown)
{
    refuse_key(rsa_key, strlen(rsa_key) / 2);
    refuse_key(elliptic_key, strlen(elliptic_key));
    refuse_key(locked_key, strlen(locked_key));
    refuse_key("", 0);
}

TEST(a_key_of_65536_characters_is_taken_and_a_longer_one_is_not)
{
    char *pem = memory_alloc((1 << 16) + 2);
    struct error error;
    unsigned char *signature;
    size_t count;
    memset(pem, '\n', (1 << 16) + 1);
    memcpy(pem, rsa_key, strlen(rsa_key));
    assert_int_equal(signature_rs256(pem, 1 << 16, "x", 1, &signature, &count, &error), 0);
    free(signature);
    refuse_key(pem, (1 << 16) + 1);
    free(pem);
}

TEST(a_secret_is_gone_after_it_was_wiped)
{
    char secret[] = "hunter2";
    signature_wipe(secret, sizeof secret);
    for (size_t i = 0; i < sizeof secret; i++)
        assert_int_equal(secret[i], 0);
    signature_wipe(NULL, 0);
}
