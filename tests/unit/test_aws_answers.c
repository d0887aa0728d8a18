/* What profiles, commands and servers say, and the keys, times and errors that are read from it. No test shows a secret. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <signal.h>

#include "source/s3/aws_credentials.h"
#include "source/s3/aws_process.h"
#include "source/s3/aws_profile.h"

#define SECRET "never-to-be-seen"

TEST(profiles_are_read_as_other_tools_read_them)
{
    struct aws_profiles *profiles = aws_profiles_parse(
        "# comment\nregion = lost\n[default]\nREGION = eu-west-3 \r\n; x\n[profile \"a b\"]\nservices = mine\n"
        "endpoint_url = http://all\nregion=x\nregion=y\n[services mine]\ns3 =\n  endpoint_url = http://s3\n"
        "  other=1\nsts =\n[profile c]\ns3 = \n   max=1\nendpoint_url=http://c\n[sso-session "
        "s]\nregion=no\n[broken\nregion=no\n",
        "[default]\nregion=of-credentials\n[profile c]\nregion=literal\n");
    assert_string_equal(aws_profiles_get(profiles, "default", "region"), "of-credentials");
    assert_string_equal(aws_profiles_get_from(profiles, AWS_FILE_CONFIG, "default", "region"), "eu-west-3");
    assert_string_equal(aws_profiles_get(profiles, "a b", "region"), "y");
    assert_string_equal(aws_profiles_endpoint(profiles, "a b", "s3"), "http://s3");
    assert_string_equal(aws_profiles_endpoint(profiles, "a b", "sts"), "http://all");
    assert_string_equal(aws_profiles_endpoint(profiles, "c", "s3"), "http://c");
    assert_null(aws_profiles_endpoint(profiles, "default", "s3"));
    assert_null(aws_profiles_get(profiles, "c", "region"));
    assert_true(aws_profiles_any_has(profiles, "endpoint_url") && !aws_profiles_any_has(profiles, "credential_process"));
    assert_true(aws_profiles_has(profiles, "c") && !aws_profiles_has(profiles, "s") && !aws_profiles_has(profiles, "d"));
    aws_profiles_destroy(profiles);
    aws_profiles_destroy(NULL);
}

static struct aws_profiles *profiles_of(unsigned n_settings)
{
    char *text = malloc(n_settings * 16 + 64), *to = text + sprintf(text, "[default]\n");
    for (unsigned i = 1; i < n_settings; i++)
        to += sprintf(to, "k%u=v\n", i);
    sprintf(to, "region=last\n");
    struct aws_profiles *profiles = aws_profiles_parse(text, NULL);
    free(text);
    return profiles;
}

TEST(settings_beyond_the_limit_are_left_out_and_told)
{
    struct aws_profiles *most = profiles_of(20000), *too_many = profiles_of(20001);
    assert_string_equal(aws_profiles_get(most, "default", "region"), "last");
    assert_null(aws_profiles_problem(most));
    assert_null(aws_profiles_get(too_many, "default", "region"));
    assert_non_null(strstr(aws_profiles_problem(too_many), "more than 20000 settings"));
    aws_profiles_destroy(most);
    aws_profiles_destroy(too_many);
}

static bool always(void *data)
{
    (void)data;
    return true;
}

TEST(a_process_that_is_cancelled_or_fails_gives_an_error)
{
    static const struct {
        const char *command, *message;
    } cases[] = {{"false", "ended with status 1"},
                 {"/nonexistent/program x", "cannot be started"},
                 {"printf '%s' '{}'", "holds no AccessKeyId"},
                 {"printf 'no json'", "not the JSON that was expected"},
                 {"head -c 70000 /dev/zero", "more than 65536 bytes"},
                 {"echo 'open", "no command line"},
                 {"", "no command line"}};
    struct aws_keys keys;
    struct error error;
    struct cancel cancel = {always, NULL};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(aws_process_run(cases[i].command, NULL, &keys, &error), -1);
        assert_non_null(strstr(error.message, cases[i].message));
    }
    assert_int_equal(aws_process_run("sleep 1000", &cancel, &keys, &error), -1);
    assert_int_equal(error.code, ERROR_CANCELLED);
}

/* A shell that sends itself SIGPIPE must not come to its last line; before, it tells its mask of blocked signals. */
TEST(a_process_has_no_signal_blocked_and_may_die_of_a_closed_pipe)
{
    static const char command[] =
        "sh -c 'sh -c \"kill -PIPE \\$\\$; exit 0\" && exit 1; while read n v; do [ $n != SigBlk: ] || s=$v; done < "
        "/proc/$$/status; "
        "echo \"{\\\"Version\\\":1,\\\"AccessKeyId\\\":\\\"$s\\\",\\\"SecretAccessKey\\\":\\\"x\\\"}\"'";
    struct aws_keys keys = {0};
    struct error error;
    sigset_t all, before;
    sigfillset(&all);
    void (*old)(int) = signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = aws_process_run(command, NULL, &keys, &error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, old);
    if (failed)
        fail_msg("%s", error.message);
    assert_string_equal(keys.access_key, "0000000000000000");
    aws_keys_clear(&keys);
}

TEST(a_command_is_split_as_a_shell_would)
{
    static const char *const expected[] = {"/a b", "c\"d", "e\\f", "", "g'h", "i j"};
    char **words = aws_process_split("  '/a b'\t\"c\\\"d\"  \"e\\f\" '' g\\'h i\\ j ");
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(words[i], expected[i]);
    assert_null(words[6]);
    free(words);
    assert_null(aws_process_split("a\\"));
}

TEST(answers_that_would_add_lines_to_a_request_are_refused)
{
    static const char *const answers[] = {
        "{\"AccessKeyId\":\"A\\r\\nX: y\",\"SecretAccessKey\":\"" SECRET "\"}",
        "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"" SECRET "\",\"Token\":\"a\\u0000b\"}",
        "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"" SECRET "\",\"Token\":\"a b\"}",
        "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"\"}",
        "{\"AccessKeyId\":1,\"SecretAccessKey\":\"" SECRET "\"}",
        "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"" SECRET "\",\"Expiration\":\"tomorrow\"}",
        "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"" SECRET "\"",
        "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"" SECRET "\"}x",
        "[]",
        "",
    };
    struct aws_keys keys;
    struct error error;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        if (aws_keys_parse_json(answers[i], strlen(answers[i]), &keys, &error) == 0)
            fail_msg("taken: %s", answers[i]);
        assert_null(strstr(error.message, SECRET));
        assert_null(keys.access_key);
    }
}

TEST(times_are_read_in_every_spelling_that_occurs)
{
    static const struct {
        const char *text;
        int64_t unix_time; /* 0 = refused */
    } cases[] = {{"2001-09-09T01:46:40Z", 1000000000},
                 {"2001-09-09T01:46:40.999Z", 1000000000},
                 {"2001-09-09T01:46:40+00:00", 1000000000},
                 {"2001-09-09T01:46:40", 1000000000},
                 {"2001-09-09", 0},
                 {"2001-09-09T01:46:40+02:00", 0},
                 {"2001-13-09T01:46:40Z", 0},
                 {"1960-01-01T00:00:00Z", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t found = 0;
        int failed = aws_parse_time(cases[i].text, &found);
        assert_int_equal(failed, cases[i].unix_time ? 0 : -1);
        if (!failed)
            assert_int_equal(found, cases[i].unix_time);
    }
}

TEST(errors_of_s3_and_of_sts_are_both_understood)
{
    static const char s3[] = "<?xml version=\"1.0\"?><Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message>"
                             "<Region>eu-west-1</Region><RequestId>R</RequestId><X><Code>n</Code></X></Error>";
    static const char *const others[] = {"<html><Error><Code>x</Code></Error></html>", "<Error></Error>", "<Error><Code>",
                                         ""};
    struct aws_error found;
    assert_true(aws_error_parse(s3, strlen(s3), &found));
    assert_string_equal(found.code, "AuthorizationHeaderMalformed");
    assert_string_equal(found.region, "eu-west-1");
    aws_error_clear(&found);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(aws_error_parse(others[i], strlen(others[i]), &found));
        assert_null(found.code);
    }
}
