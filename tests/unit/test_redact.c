/* No secret of a reference, a URL or a proxy's address is shown, however odd its form. */
#include "tests/support/unit.h"

#include "base/redact.h"

TEST(host_and_path_stay_and_secrets_go)
{
    static const char *const cases[][2] = {
        {"https://h:1/p/q?a=1&b=2&c", "https://h:1/p/q?..."},
        {"https://user:pw@h/p", "https://h/p"},
        {"https://u@v@h/p@q?x=@y#frag", "https://h/p@q?..."},
        {"https://h/p#sha256=00", "https://h/p#..."},
        {"user:pw@proxy:3128", "proxy:3128"},
        {"proxy:3128", "proxy:3128"},
        {"http://[::1]:8080/p", "http://[::1]:8080/p"},
        {"http://h/a b\n\xc3\xa4", "http://h/a_b___"},
        {"s3://bucket/key@2/a:b", "s3://bucket/key@2/a:b"},
        {"hf://org/model@refs/pr/7/x", "hf://org/model@refs/pr/7/x"},
        {"hf://gpt2@main", "hf://gpt2@main"},
        {"disk:/models/a@b?c#d:e", "disk:/models/a@b?c#d:e"},
        {"/models/llama", "/models/llama"},
        {"models/llama", "models/llama"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[REDACT_CHARS];
        redact(cases[i][0], text, sizeof text);
        assert_string_equal(text, cases[i][1]);
    }
}

TEST(no_form_of_a_reference_shows_a_secret)
{
    static const char *const forms[] = {
        /* the query */
        "https://h/x?SECRET",
        "https://h/x?SECRET=",
        "https://h/x?a=SECRET",
        "https://h/x?a=b;c=SECRET",
        "https://h/x?a&SECRET&b",
        "https://h?SECRET",
        "https://h/x?a=b#SECRET",
        "https://h/x#SECRET",
        "https://h/x??SECRET",
        "gs://b/o?SECRET",
        "x?SECRET",
        "https://h/x%3FSECRET",
        "https://h/x%3fa=b/%23SECRET",
        "https://h/x%23SECRET",
        /* user and password, of any scheme */
        "https://u:SECRET@h/",
        "https://SECRET@h/",
        "https://SECRET:@h/",
        "https://:SECRET@h/",
        "HTTPS://u:SECRET@h/",
        "HtTp://u:SECRET@h",
        "ftp://u:SECRET@h/",
        "sftp://u:SECRET@h/",
        "s3://u:SECRET@bucket/k",
        "s3n://AK:SECRET@bucket/k",
        "gs://u:SECRET@b/o",
        "hf://u:SECRET@org/model",
        "hf://hf_SECRET@org/model",
        "abfs+x.y-z://u:SECRET@h/",
        "x://u:SECRET@h",
        "Disk://u:SECRET@h/",
        /* with fewer, more and other slashes */
        "https:/u:SECRET@h/",
        "https:u:SECRET@h/",
        "https:///u:SECRET@h/",
        "https:\\\\u:SECRET@h/",
        "https:/\\u:SECRET@h/",
        "//u:SECRET@h/",
        "u:SECRET@h",
        "/u:SECRET@h/",
        "s3:/u:SECRET@b/k",
        "s3:u:SECRET@b/k",
        "hf:u:SECRET@org/m",
        "hf:/u:SECRET@o/m",
        " https://u:SECRET@h/",
        "\thttps://u:SECRET@h/",
        "https://\nu:SECRET@h/",
        "https:// u:SECRET@h/",
        /* with what ends an authority within the password */
        "https://u:pa/SECRET@h/",
        "https://u:SECRET/pa@h/",
        "https://u:SECRET?pa@h/",
        "https://u:SECRET#pa@h/",
        "https://u:SE@SECRET@h/",
        "https://h\\u:SECRET@x/",
        "https://u:SECRET\\@h/",
        /* encoded, unfinished */
        "https://u:SECRET%40h/",
        "https://SECRET%40h/",
        "https://u%3ASECRET%40h/",
        "https://u:SECRET",
        "https://u:SECRET/",
        /* in another URL */
        "https://mirror/https://u:SECRET@h/x",
        "https://h/x//a%3fb@c/?SECRET",
        "https://h/x//%3fSECRET@c",
        "https://mirror/x//SECRET@h/",
        "http://mirror/ftp:///u:SECRET@h/",
        /* proxies */
        "u:SECRET@proxy:3128",
        "http://u:SECRET@proxy:3128",
        "socks5://u:SECRET@proxy:1080",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char text[REDACT_CHARS];
        char *copy = redact_copy(forms[i]);
        redact(forms[i], text, sizeof text);
        if (strstr(copy, "SECRET") || strstr(text, "SECRET"))
            fail_msg("%s is shown as %s", forms[i], copy);
        free(copy);
    }
}

TEST(names_that_are_not_ascii_stay_in_a_copy)
{
    char *copy = redact_copy("s3://b/\xc3\xa4 x?SECRET");
    assert_string_equal(copy, "s3://b/\xc3\xa4 x?...");
    free(copy);
}

TEST(a_redacted_url_fits_whatever_room_there_is)
{
    static const char url[] = "https://user:pw@host/p?a=1&b=2", whole[] = "https://host/p?...";
    for (size_t room = 1; room <= sizeof whole; room++) {
        char *text = malloc(room);
        redact(url, text, room);
        assert_int_equal(strlen(text), room - 1);
        assert_memory_equal(text, whole, room - 1);
        free(text);
    }
}
