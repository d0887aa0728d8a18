/* What a bundle may show of a text. */
#include "tests/support/unit.h"

#include <unistd.h>

#include "client/cli/secret_text.h"

static struct secrets secrets;

static void assert_cleaned(enum secret_form form, const char *text, const char *expected)
{
    size_t length;
    char *clean = secret_text_clean(&secrets, form, text, strlen(text), &length);
    assert_string_equal(clean, expected);
    assert_int_equal(length, strlen(expected));
    free(clean);
}

TEST(urls_lose_users_and_queries_and_keep_the_rest)
{
    static const char *const pairs[][2] = {
        {"artifact=https://joe:pa,ss;w@host:8443/m/a?sig=abc#x size=1\n", "artifact=https://host:8443/m/a?... size=1\n"},
        {"{\"a\": \"http://u:p@h/x?y\", \"b\": \"s3://bucket/key?versionId=1\"}",
         "{\"a\": \"http://h/x?...\", \"b\": \"s3://bucket/key?...\"}"},
        {"(see https://h/a)", "(see https://h/a)"},
        {"https_proxy=http://joe:secret@127.0.0.1:1", "https_proxy=http://127.0.0.1:1"},
        {"nothing : // here ://", "nothing : // here ://"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        size_t length;
        char *clean = secret_text_clean(&secrets, SECRET_FORM_TEXT, pairs[i][0], strlen(pairs[i][0]), &length);
        for (const char *const *bad = (const char *const[]){"joe", "pa,ss", "secret", "sig", "versionId", "u:p", NULL}; *bad;
             bad++)
            if (strstr(clean, *bad))
                fail_msg("%s is in %s", *bad, clean);
        if (!strstr(pairs[i][0], "@") && strcmp(clean, pairs[i][1]) != 0)
            fail_msg("%s became %s", pairs[i][0], clean);
        free(clean);
    }
}

TEST(what_follows_bearer_is_hidden)
{
    assert_cleaned(SECRET_FORM_TEXT, "Authorization: Bearer abc.DEF-1=, next", "Authorization: Bearer (hidden), next");
    assert_cleaned(SECRET_FORM_TEXT, "\"authorization\":\"bearer xyz\"}", "\"authorization\":\"bearer (hidden)\"}");
    assert_cleaned(SECRET_FORM_TEXT, "Basic dXNlcjpwYXNz\n", "Basic (hidden)\n");
    assert_cleaned(SECRET_FORM_TEXT, "a forbearer is none", "a forbearer is none");
}

TEST(settings_with_a_secret_name_lose_their_value)
{
    assert_cleaned(SECRET_FORM_SETTINGS, "AWS_SECRET_ACCESS_KEY=a/b+c d\nAWS_REGION=eu\n",
                   "AWS_SECRET_ACCESS_KEY= (hidden)\nAWS_REGION=eu\n");
    assert_cleaned(SECRET_FORM_SETTINGS, "tracing:\n  otlp_headers: {a: b}\n  level: 1",
                   "tracing:\n  otlp_headers: (hidden)\n  level: 1");
    assert_cleaned(SECRET_FORM_SETTINGS, "  # password: old\n", "  # password: (hidden)\n");
    assert_cleaned(SECRET_FORM_SETTINGS, "  'Api-Token' : x\n  \"api_token\": x",
                   "  'Api-Token' : (hidden)\n  \"api_token\": (hidden)");
    assert_cleaned(SECRET_FORM_SETTINGS, "# the etcd password: old\nPATH=/key/a:/b\n",
                   "# the etcd password: (hidden)\nPATH=/key/a:/b\n");
    assert_cleaned(SECRET_FORM_SETTINGS, "token_file: /run/token\nkeys: 3\n", "token_file: /run/token\nkeys: 3\n");
    /* a log says key=memory.host_budget, and that is none */
    assert_cleaned(SECRET_FORM_TEXT, "key=memory.host_budget\n", "key=memory.host_budget\n");
}

TEST(lines_that_belong_to_the_value_of_a_secret_are_hidden_and_those_behind_them_are_not)
{
    static const char *const values[] = {"|\n    Value-1\n\n      Value-2\n",
                                         "\n    Value-1\n",
                                         "{a: Value-1,\n    b: Value-2}\n",
                                         "\n  - Value-1\n  - a: Value-2\n",
                                         "\n    - Value-1\n",
                                         "\"Value-1\n    Value-2\"\n",
                                         ">-\n    Value-1\n",
                                         "Value-1\r\n    Value-2\r\n"};
    char text[200];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        for (int k = 0; k < 3; k++) {
            static const char *const before[] = {"  ", "# ", "- "}, *const behind[] = {"  level: 1\n", "# level: 1\n",
                                                                                       "  level: 1\n"};
            snprintf(text, sizeof text, "%sapi_token: %s%s", before[k], values[i], behind[k]);
            size_t length;
            char *clean = secret_text_clean(&secrets, SECRET_FORM_SETTINGS, text, strlen(text), &length);
            if (strstr(clean, "Value") || !strstr(clean, "level: 1"))
                fail_msg("%s became %s", text, clean);
            free(clean);
        }
    }
    assert_cleaned(SECRET_FORM_SETTINGS, "headers:\n- a\n- b\nlevel: 1\n", "headers: (hidden)\nlevel: 1\n");
    assert_cleaned(SECRET_FORM_SETTINGS, "password: |\n  a", "password: (hidden)");
}

TEST(a_user_is_hidden_also_where_no_scheme_is_before_it)
{
    assert_cleaned(SECRET_FORM_SETTINGS, "http_proxy=joe:pa:s@s@proxy:3128\n", "http_proxy=(hidden)@proxy:3128\n");
    assert_cleaned(SECRET_FORM_TEXT, "proxy //joe:pass@proxy, or \"joe:pass@proxy\"",
                   "proxy //(hidden)@proxy, or \"(hidden)@proxy\"");
    assert_cleaned(SECRET_FORM_TEXT, "disk:/m/a@b joe@host :x@y 10:20 x:@y", "disk:/m/a@b joe@host :x@y 10:20 x:@y");
}

TEST(a_known_secret_is_hidden_wherever_it_stands)
{
    static const char known[] = "hf_Abcdefgh \"refresh\": \"1//0Refresh-Token_x\", authorized_user short Pa55\n";
    secrets_add(&secrets, known, sizeof known - 1);
    assert_int_equal(secrets.n, 2);
    assert_cleaned(SECRET_FORM_TEXT, "xhf_Abcdefghx hf_Abcdefg", "x(hidden)x hf_Abcdefg");
    assert_cleaned(SECRET_FORM_TEXT, "https://h/hf_Abcdefgh/y?z and authorized_user",
                   "https://h/(hidden)/y?... and authorized_user");
    assert_cleaned(SECRET_FORM_TEXT, "1//0Refresh-Token_x", "(hidden)");
    secrets_fini(&secrets);
    assert_cleaned(SECRET_FORM_TEXT, "hf_Abcdefgh", "hf_Abcdefgh");
}

TEST(a_file_of_secrets_is_read_and_one_that_is_not_there_is_none)
{
    char path[] = "/tmp/tc-secret-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "Token-From-A-File\n", 18), 18);
    close(fd);
    secrets_read_file(&secrets, path);
    secrets_read_file(&secrets, "/no/such/file");
    secrets_read_file(&secrets, "/tmp");
    unlink(path);
    assert_int_equal(secrets.n, 1);
    assert_cleaned(SECRET_FORM_TEXT, "is Token-From-A-File.", "is (hidden).");
    secrets_fini(&secrets);
}

TEST(bytes_that_are_no_text_come_through_and_no_length_is_lost)
{
    enum { N = 5000, ROUNDS = 200 };
    static char bytes[N];
    unsigned seed = 1;
    secrets_add(&secrets, "S3cret-Of-Mine", 14);
    for (int round = 0; round < ROUNDS; round++) {
        size_t length, n = (size_t)rand_r(&seed) % N;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)(rand_r(&seed) % 4 ? "://@?=: \n\"aKEY#S3"[rand_r(&seed) % 17] : rand_r(&seed));
        if (n > 20)
            memcpy(bytes + (size_t)rand_r(&seed) % (n - 14), "S3cret-Of-Mine", 14);
        for (int form = 0; form < 2; form++) {
            char *clean = secret_text_clean(&secrets, (enum secret_form)form, bytes, n, &length);
            assert_null(memmem(clean, length, "S3cret-Of-Mine", 14));
            free(clean);
        }
    }
    secrets_fini(&secrets);
}
