/* Where keys for S3 come from: every step of the chain against scripted answers, their order, and when they are renewed, and by
 * whom. No test shows a secret. */
#include "tests/support/unit.h"

#include <pthread.h>

#include "source/s3/aws_credentials.h"
#include "source/s3/aws_metadata.h"
#include "source/s3/aws_profile.h"
#include "tests/support/aws_scene.h"
#include "tests/support/fake_http.h"

static const char *describe(const char *profile)
{
    static char text[AWS_DESCRIBE_CHARS];
    struct aws_credentials *credentials = aws_scene_create(profile);
    aws_credentials_describe(credentials, text);
    aws_credentials_destroy(credentials);
    assert_null(strstr(text, AWS_SCENE_SECRET));
    return text;
}

/* --- the chain --- */

TEST_IN(keys_in_the_environment_come_first, aws_scene_clean, NULL)
{
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", AWS_SCENE_SECRET, 1);
    aws_scene_write("credentials", "[default]\naws_access_key_id=AKFILE\naws_secret_access_key=" AWS_SCENE_SECRET "\n");
    assert_string_equal(aws_scene_get_once(NULL), "AKENV:" AWS_SCENE_SECRET ":");
    setenv("AWS_SESSION_TOKEN", "T", 1);
    assert_string_equal(aws_scene_get_once(""), "AKENV:" AWS_SCENE_SECRET ":T");
    assert_string_equal(describe(NULL), "environment (AWS_ACCESS_KEY_ID)");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    aws_scene_contains(aws_scene_get_once(NULL), "PARTIAL_CREDENTIALS");
    assert_int_equal(fake_requests, 0);
}

TEST_IN(a_profile_that_the_configuration_names_goes_before_the_environment, aws_scene_clean, NULL)
{
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", AWS_SCENE_SECRET, 1);
    aws_scene_write("credentials", "[x]\naws_access_key_id=AKFILE\naws_secret_access_key=" AWS_SCENE_SECRET "\n");
    assert_string_equal(aws_scene_get_once("x"), "AKFILE:" AWS_SCENE_SECRET ":");
    setenv("AWS_PROFILE", "x", 1);
    assert_string_equal(aws_scene_get_once("x"), "AKENV:" AWS_SCENE_SECRET ":");
}

TEST_IN(the_credentials_file_goes_before_a_process_and_that_before_the_config_file, aws_scene_clean, NULL)
{
    char text[600];
    snprintf(text, sizeof text,
             "[profile x]\naws_access_key_id=AKCONF\naws_secret_access_key=" AWS_SCENE_SECRET "\n"
             "credential_process = printf '{\"Version\":1,\"AccessKeyId\":\"AKPROC\",\"SecretAccessKey\":\"" AWS_SCENE_SECRET
             "\"}'\n"
             "[profile y]\naws_access_key_id=AKCONF\naws_secret_access_key=" AWS_SCENE_SECRET "\n");
    aws_scene_write("config", text);
    aws_scene_write("credentials",
                    "[x]\naws_access_key_id=AKFILE\naws_secret_access_key=" AWS_SCENE_SECRET "\naws_session_token=T\n");
    assert_string_equal(aws_scene_get_once("x"), "AKFILE:" AWS_SCENE_SECRET ":T");
    aws_scene_write("credentials", "");
    assert_string_equal(aws_scene_get_once("x"), "AKPROC:" AWS_SCENE_SECRET ":");
    assert_string_equal(describe("x"), "credential_process of profile x");
    assert_string_equal(aws_scene_get_once("y"), "AKCONF:" AWS_SCENE_SECRET ":");
    aws_scene_contains(describe("y"), "profile y of /tmp/");
    aws_scene_contains(aws_scene_get_once("z"), "NO_SUCH_PROFILE");
}

static const struct fake_route sts_routes[] = {
    {"POST", "https://sts.eu-west-3.amazonaws.com/", 200,
     "<AssumeRoleResponse "
     "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser><Arn>a</Arn>"
     "</AssumedRoleUser><Credentials><AccessKeyId>AKROLE</AccessKeyId><SecretAccessKey>" AWS_SCENE_SECRET
     "</SecretAccessKey>"
     "<SessionToken>RT</SessionToken><Expiration>2001-09-09T02:46:40Z</Expiration></Credentials></AssumeRoleResult>"
     "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></AssumeRoleResponse>",
     NULL, NULL},
    {0}};

TEST_IN(a_role_is_assumed_with_the_keys_of_its_source_profile, aws_scene_clean, NULL)
{
    fake_reset(sts_routes);
    aws_scene_write("config", "[profile r]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = base\nexternal_id = e/1\n"
                              "duration_seconds=900\n");
    aws_scene_write("credentials", "[base]\naws_access_key_id=AKBASE\naws_secret_access_key=" AWS_SCENE_SECRET "\n");
    assert_string_equal(aws_scene_get_once("r"), "AKROLE:" AWS_SCENE_SECRET ":RT");
    aws_scene_contains(fake_log, "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&"
                                 "RoleSessionName=tensorcast&DurationSeconds=900&ExternalId=e%2F1");
    aws_scene_contains(fake_log, "|Authorization: AWS4-HMAC-SHA256 Credential=AKBASE/");
    aws_scene_contains(fake_log, "/eu-west-3/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date, ");
    aws_scene_contains(describe("r"), "role arn:aws:iam::1:role/x of profile r");
}

TEST_IN(a_role_of_a_role_is_assumed_and_a_loop_is_refused, aws_scene_clean, NULL)
{
    fake_reset(sts_routes);
    aws_scene_write(
        "config",
        "[profile a]\nrole_arn=ra\nsource_profile=b\n[profile b]\nrole_arn=rb\ncredential_source=Environment\n"
        "[profile c]\nrole_arn=rc\nsource_profile=d\n[profile d]\nrole_arn=rd\nsource_profile=c\n"
        "[profile s]\nrole_arn=rs\nsource_profile=s\n"
        "[profile k]\nrole_arn=rk\nsource_profile=k\naws_access_key_id=AKSELF\naws_secret_access_key=" AWS_SCENE_SECRET "\n"
        "[profile n]\nrole_arn=rn\n[profile m]\nrole_arn=rm\nsource_profile=k\nmfa_serial=x\n"
        "[profile o]\nrole_arn=ro\nsource_profile=nobody\n");
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", AWS_SCENE_SECRET, 1);
    assert_string_equal(aws_scene_get_once("a"), "AKROLE:" AWS_SCENE_SECRET ":RT");
    assert_int_equal(fake_requests, 2);
    aws_scene_contains(fake_log, "Credential=AKENV/");
    aws_scene_contains(fake_log, "X-Amz-Security-Token: RT");
    aws_scene_contains(aws_scene_get_once("c"), "lead to one another");
    aws_scene_contains(aws_scene_get_once("s"), "lead to one another");
    assert_string_equal(aws_scene_get_once("k"), "AKROLE:" AWS_SCENE_SECRET ":RT");
    aws_scene_contains(aws_scene_get_once("n"), "needs either source_profile or credential_source");
    aws_scene_contains(aws_scene_get_once("m"), "MFA_NOT_SUPPORTED");
    aws_scene_contains(aws_scene_get_once("o"), "nobody of profile o does not exist");
}

TEST_IN(so_many_roles_may_lead_to_one_another_and_not_one_more, aws_scene_clean, NULL)
{
    fake_reset(sts_routes);
    aws_scene_write("config", "[profile a]\nrole_arn=ra\nsource_profile=b\n[profile b]\nrole_arn=rb\nsource_profile=c\n"
                              "[profile c]\nrole_arn=rc\nsource_profile=d\n[profile d]\nrole_arn=rd\nsource_profile=e\n"
                              "[profile e]\nrole_arn=re\nsource_profile=f\n[profile f]\nrole_arn=rf\n"
                              "credential_source=Environment\n");
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", AWS_SCENE_SECRET, 1);
    assert_string_equal(aws_scene_get_once("b"), "AKROLE:" AWS_SCENE_SECRET ":RT");
    assert_int_equal(fake_requests, 5);
    aws_scene_contains(aws_scene_get_once("a"), "lead to one another");
}

TEST_IN(a_refusal_of_sts_names_the_role_and_its_code, aws_scene_clean, NULL)
{
    static const struct fake_route routes[] = {{"POST", "http://127.0.0.1:1/", 403,
                                                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</"
                                                "Code><Message>not you\n</Message></Error></ErrorResponse>",
                                                NULL, NULL},
                                               {0}};
    fake_reset(routes);
    setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1", 1);
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", aws_scene_write("token", "header." AWS_SCENE_SECRET ".signature\n"), 1);
    aws_scene_contains(aws_scene_get_once(NULL),
                       "ASSUME_ROLE_FAILED: keys for S3: STS refused the role arn:x: HTTP 403 AccessDenied not you\\n");
}

TEST_IN(a_web_identity_is_sent_unsigned_and_read_anew, aws_scene_clean, NULL)
{
    fake_reset(sts_routes);
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", aws_scene_write("token", "eyJ.1.2\n"), 1);
    struct aws_credentials *credentials = aws_scene_create(NULL);
    assert_string_equal(aws_scene_get(credentials), "AKROLE:" AWS_SCENE_SECRET ":RT");
    aws_scene_contains(fake_log,
                       "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Ax&RoleSessionName=tensorcast&"
                       "WebIdentityToken=eyJ.1.2\n");
    assert_null(strstr(fake_log, "Authorization"));
    aws_scene_write("token", "eyJ.3.4");
    aws_scene_now_s += 3600 - 500;
    assert_string_equal(aws_scene_get(credentials), "AKROLE:" AWS_SCENE_SECRET ":RT");
    aws_credentials_destroy(credentials);
    aws_scene_contains(fake_log, "WebIdentityToken=eyJ.3.4\n");
    unsetenv("AWS_ROLE_ARN");
    aws_scene_contains(aws_scene_get_once(NULL), "BAD_WEB_IDENTITY");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent", 1);
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    aws_scene_contains(aws_scene_get_once(NULL), "web identity token file /nonexistent");
}

TEST_IN(a_container_is_asked_with_its_token_and_past_proxies, aws_scene_clean, NULL)
{
    static const struct fake_route routes[] = {
        {"GET", "http://169.254.170.2/v2/c", 200, AWS_SCENE_KEYS("AKREL", "T", "2001-09-09T02:46:40Z"), NULL, NULL},
        {"GET", "http://localhost:8/c?x", 200, AWS_SCENE_KEYS("AKFULL", "", "2001-09-09T02:46:40.5Z"), NULL, NULL},
        {0}};
    fake_reset(routes);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:8/c?x", 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "tok1", 1);
    assert_string_equal(aws_scene_get_once(NULL), "AKFULL:" AWS_SCENE_SECRET ":");
    aws_scene_contains(fake_log, "GET http://localhost:8/c?x|Accept: application/json|Authorization: tok1|no proxy|");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", aws_scene_write("ctoken", "tok2\n"), 1);
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/c", 1);
    assert_string_equal(aws_scene_get_once(NULL), "AKREL:" AWS_SCENE_SECRET ":T");
    aws_scene_contains(fake_log, "Authorization: tok2|no proxy|");
    assert_string_equal(describe(NULL), "container credentials endpoint");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nonexistent", 1);
    aws_scene_contains(aws_scene_get_once(NULL), "NO_CONTAINER_TOKEN");
}

TEST_IN(a_token_is_not_sent_to_another_machine_in_the_clear, aws_scene_clean, NULL)
{
    static const char *const urls[] = {"http://example.com/",           "http://169.254.170.2.example.com/",
                                       "http://127.0.0.1.example.com/", "http://[fd00:ec2::23].example.com/",
                                       "http://localhost@example.com/", "ftp://localhost/",
                                       "http://127.0.0.1@example.com/", "https://user@example.com/"};
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", AWS_SCENE_SECRET, 1);
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", urls[i], 1);
        aws_scene_contains(aws_scene_get_once(NULL), "BAD_CONTAINER_URI");
    }
    assert_int_equal(fake_requests, 0);
}

TEST_IN(instance_metadata_is_asked_in_version_2, aws_scene_clean, NULL)
{
    static const struct fake_route routes[] = {
        {"PUT", "http://169.254.169.254/latest/api/token", 200, "SESSION", NULL, NULL},
        {"GET", "http://169.254.169.254/latest/meta-data/iam/security-credentials/", 200, "my-role", NULL, NULL},
        {"GET", "http://169.254.169.254/latest/meta-data/iam/security-credentials/my-role", 200,
         AWS_SCENE_KEYS("AKINST", "T", "2001-09-09T02:46:40Z"), NULL, NULL},
        {"GET", "http://169.254.169.254/latest/meta-data/placement/region", 200, "ap-south-1\n", NULL, NULL},
        {0}};
    struct error error;
    char *region;
    fake_reset(routes);
    assert_string_equal(aws_scene_get_once(NULL), "AKINST:" AWS_SCENE_SECRET ":T");
    assert_int_equal(fake_requests, 3);
    aws_scene_contains(fake_log,
                       "PUT http://169.254.169.254/latest/api/token|x-aws-ec2-metadata-token-ttl-seconds: 21600|no proxy|");
    aws_scene_contains(fake_log, "my-role|x-aws-ec2-metadata-token: SESSION|no proxy|");
    assert_int_equal(aws_metadata_region(NULL, NULL, &region, &error), 0);
    assert_string_equal(region, "ap-south-1");
    free(region);
}

TEST_IN(with_nothing_at_all_the_error_says_where_keys_were_looked_for, aws_scene_clean, NULL)
{
    const char *text = aws_scene_get_once(NULL);
    aws_scene_contains(text, "NO_CREDENTIALS");
    aws_scene_contains(text, "hop limit");
    aws_scene_contains(text, "\nenvironment: AWS_ACCESS_KEY_ID is not set\nprofile default: no keys in ");
    aws_scene_contains(text, "\ninstance: the instance metadata service");
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    aws_scene_contains(aws_scene_get_once(NULL), "AWS_EC2_METADATA_DISABLED is set");
    assert_int_equal(fake_requests, 1);
    assert_string_equal(describe(NULL), "none");
    aws_scene_write("config", "[default]\nsso_session = x\n");
    aws_scene_contains(aws_scene_get_once(NULL), "SSO_NOT_SUPPORTED");
}

TEST_IN(anonymous_is_only_what_was_configured_as_such, aws_scene_clean, NULL)
{
    struct aws_credentials_options options = {.anonymous = true};
    char text[AWS_DESCRIBE_CHARS];
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", AWS_SCENE_SECRET, 1);
    struct aws_credentials *credentials = aws_credentials_create(&options);
    assert_string_equal(aws_scene_get(credentials), "anonymous::");
    aws_credentials_describe(credentials, text);
    assert_string_equal(text, "anonymous");
    aws_credentials_destroy(credentials);
    aws_credentials_destroy(NULL);
}

/* --- the life of keys --- */

static const struct fake_route container_1[] = {
    {"GET", "http://169.254.170.2/c", 200, AWS_SCENE_KEYS("AK1", "T", "2001-09-09T02:46:40Z"), NULL, NULL}, {0}};

static const struct fake_route container_2[] = {
    {"GET", "http://169.254.170.2/c", 200, AWS_SCENE_KEYS("AK2", "T", "2001-09-09T03:46:40Z"), NULL, NULL}, {0}};

TEST_IN(keys_are_renewed_ten_minutes_before_they_expire, aws_scene_clean, NULL)
{
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = aws_scene_create(NULL);
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    aws_scene_now_s = 1000003600 - 601;
    fake_reset(container_2);
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    assert_int_equal(fake_requests, 0);
    aws_scene_now_s = 1000003600 - 600;
    assert_string_equal(aws_scene_get(credentials), "AK2:" AWS_SCENE_SECRET ":T");
    assert_int_equal(fake_requests, 1);
    aws_credentials_destroy(credentials);
}

TEST_IN(old_keys_are_used_while_they_are_valid_when_new_ones_cannot_be_had, aws_scene_clean, NULL)
{
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = aws_scene_create(NULL);
    aws_scene_get(credentials);
    fake_reset(NULL);
    aws_scene_now_s = 1000003600 - 600;
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    assert_string_equal(aws_scene_get(credentials), "AK1:" AWS_SCENE_SECRET ":T");
    assert_int_equal(fake_requests, 1); /* not asked again at once */
    aws_scene_now_s += 31;
    aws_scene_get(credentials);
    assert_int_equal(fake_requests, 2);
    aws_scene_now_s = 1000003600;
    aws_scene_contains(aws_scene_get(credentials), "no server answers");
    aws_credentials_destroy(credentials);
}

TEST_IN(refused_keys_are_replaced_and_others_are_not, aws_scene_clean, NULL)
{
    struct aws_keys keys;
    struct error error;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = aws_scene_create(NULL);
    assert_int_equal(aws_credentials_get(credentials, NULL, &keys, &error), 0);
    fake_reset(container_2);
    aws_credentials_refused(credentials, keys.generation);
    assert_string_equal(aws_scene_get(credentials), "AK2:" AWS_SCENE_SECRET ":T");
    aws_credentials_refused(credentials, keys.generation); /* a late answer about the first ones */
    aws_scene_get(credentials);
    assert_int_equal(fake_requests, 1);
    aws_keys_clear(&keys);
    aws_credentials_destroy(credentials);
}

TEST_IN(keys_that_are_expired_when_they_come_are_an_error, aws_scene_clean, NULL)
{
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    aws_scene_now_s = 1000003600;
    aws_scene_contains(aws_scene_get_once(NULL), "CREDENTIALS_EXPIRED");
}

enum { N_THREADS = 8 };
static pthread_barrier_t all_started;

static void wait_for_all(void)
{
    pthread_barrier_wait(&all_started); /* no get can have ended before all have begun */
}

static void *get_in_thread(void *data)
{
    struct aws_keys keys;
    struct error error;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int n_begun;
    pthread_mutex_lock(&lock);
    bool last = ++n_begun == N_THREADS;
    pthread_mutex_unlock(&lock);
    if (last)
        pthread_barrier_wait(&all_started);
    assert_int_equal(aws_credentials_get(data, NULL, &keys, &error), 0);
    bool right = strcmp(keys.access_key, "AK1") == 0;
    aws_keys_clear(&keys);
    return right ? data : NULL;
}

TEST_IN(many_who_ask_at_once_cause_one_request, aws_scene_clean, NULL)
{
    pthread_t threads[N_THREADS];
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    pthread_barrier_init(&all_started, NULL, 2);
    fake_on_request = wait_for_all;
    struct aws_credentials *credentials = aws_scene_create(NULL);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_in_thread, credentials), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, credentials);
    }
    assert_int_equal(fake_requests, 1);
    aws_credentials_destroy(credentials);
    pthread_barrier_destroy(&all_started);
}

/* --- limits --- */

TEST(a_file_that_cannot_be_read_is_named)
{
    setenv("AWS_CONFIG_FILE", aws_scene_folder, 1); /* a directory */
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
    struct aws_profiles *profiles = aws_profiles_load();
    assert_non_null(aws_profiles_problem(profiles));
    aws_scene_contains(aws_profiles_problem(profiles), aws_scene_folder);
    aws_profiles_destroy(profiles);
    aws_scene_clean(NULL);
    profiles = aws_profiles_load();
    assert_null(aws_profiles_problem(profiles));
    aws_profiles_destroy(profiles);
}

static char *letters(size_t count)
{
    char *text = memory_alloc(count + 1);
    memset(text, 'x', count);
    return text;
}

/* A file of `count` letters. */
static const char *write_letters(const char *name, size_t count)
{
    char *text = letters(count);
    const char *path = aws_scene_write(name, text);
    free(text);
    return path;
}

TEST(a_container_s_token_of_16384_characters_is_sent_whole_and_a_longer_one_not_at_all)
{
    static const struct fake_route routes[] = {
        {"GET", "http://localhost:8/c", 200, AWS_SCENE_KEYS("AK", "T", "2001-09-09T02:46:40Z"), NULL, NULL}, {0}};
    char *token = letters(16384);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:8/c", 1);
    for (size_t longer = 0; longer < 2; longer++) {
        fake_reset(routes);
        setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write_letters("ctoken", 16384 + longer), 1);
        aws_scene_contains(aws_scene_get_once(NULL), longer ? "NO_CONTAINER_TOKEN: " : "AK:" AWS_SCENE_SECRET ":T");
        assert_int_equal(fake_requests, longer ? 0 : 1);
        assert_true(longer || strstr(fake_log, token));
    }
    free(token);
}

TEST(a_web_identity_of_32_kib_is_sent_and_a_longer_one_is_not)
{
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    for (size_t longer = 0; longer < 2; longer++) {
        fake_reset(sts_routes);
        setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_letters("token", (32 << 10) + longer), 1);
        aws_scene_contains(aws_scene_get_once(NULL), longer ? "BAD_WEB_IDENTITY" : "AKROLE:" AWS_SCENE_SECRET ":RT");
        assert_int_equal(fake_requests, longer ? 0 : 1);
    }
}

TEST(a_secret_of_16384_characters_is_taken_and_a_longer_one_is_not)
{
    struct aws_keys keys;
    struct error error;
    for (size_t longer = 0; longer < 2; longer++) {
        char *token = letters(16384 + longer);
        char *json = memory_print(AWS_SCENE_KEYS("AK", "%s", "2001-09-09T02:46:40Z"), token);
        assert_int_equal(aws_keys_parse_json(json, strlen(json), &keys, &error), longer ? -1 : 0);
        if (!longer) {
            assert_string_equal(keys.session_token, token);
            aws_keys_clear(&keys);
        }
        free(json);
        free(token);
    }
}

TEST(a_profile_file_of_one_mebibyte_is_read_and_one_byte_more_is_a_problem)
{
    for (size_t longer = 0; longer < 2; longer++) {
        char *text = letters((1 << 20) + longer);
        memcpy(text, "[default]\n#", 11);
        setenv("AWS_CONFIG_FILE", aws_scene_write("config", text), 1);
        free(text);
        struct aws_profiles *profiles = aws_profiles_load();
        if (longer)
            aws_scene_contains(aws_profiles_problem(profiles), "larger than 1 MiB");
        else
            assert_null(aws_profiles_problem(profiles));
        aws_profiles_destroy(profiles);
    }
}

TESTS_IN(aws_scene_open, aws_scene_close)
