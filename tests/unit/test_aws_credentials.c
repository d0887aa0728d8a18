/* Where keys for S3 come from: every step of the chain against scripted answers, their order, and the life of what was
 * found. No test shows a secret. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source/s3/aws_credentials.h"
#include "source/s3/aws_metadata.h"
#include "source/s3/aws_process.h"
#include "source/s3/aws_profile.h"
#include "tests/support/fake_http.h"

#include <cmocka.h>

#define SECRET "never-to-be-seen"

static char folder[] = "/tmp/test_aws_credentials.XXXXXX";
static int64_t now_s;

static int64_t now(void)
{
    return now_s;
}

static const char *write_file(const char *name, const char *text)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

static int clean_environment(void **state)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_SECURITY_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_ROLE_SESSION_NAME",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_STS"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    setenv("AWS_CONFIG_FILE", write_file("config", ""), 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", write_file("credentials", ""), 1);
    now_s = 1000000000;
    fake_reset(NULL);
    return 0;
}

static struct aws_credentials *create(const char *profile)
{
    struct aws_credentials_options options = {.profile = profile, .region = "eu-west-3", .now = now};
    return aws_credentials_create(&options);
}

/* "ACCESS:SECRET:TOKEN" of the keys, or the error's reason. */
static const char *get(struct aws_credentials *credentials)
{
    static char text[ERROR_MESSAGE_CHARS + 200];
    struct aws_keys keys;
    struct error error;
    if (aws_credentials_get(credentials, NULL, &keys, &error) < 0) {
        assert_null(strstr(error.message, SECRET));
        assert_int_equal(keys.access_key != NULL, 0);
        snprintf(text, sizeof text, "%s: %s", error.reason, error.message);
        return text;
    }
    snprintf(text, sizeof text, "%s:%s:%s", keys.access_key ? keys.access_key : "anonymous",
             keys.secret_key ? keys.secret_key : "", keys.session_token ? keys.session_token : "");
    aws_keys_clear(&keys);
    return text;
}

static const char *get_once(const char *profile)
{
    struct aws_credentials *credentials = create(profile);
    const char *text = get(credentials);
    aws_credentials_destroy(credentials);
    return text;
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in: %s", part, text);
}

static const char *describe(const char *profile)
{
    static char text[AWS_DESCRIBE_CHARS];
    struct aws_credentials *credentials = create(profile);
    aws_credentials_describe(credentials, text);
    aws_credentials_destroy(credentials);
    assert_null(strstr(text, SECRET));
    return text;
}

/* --- the chain --- */

static void keys_in_the_environment_come_first(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    write_file("credentials", "[default]\naws_access_key_id=AKFILE\naws_secret_access_key=" SECRET "\n");
    assert_string_equal(get_once(NULL), "AKENV:" SECRET ":");
    setenv("AWS_SESSION_TOKEN", "T", 1);
    assert_string_equal(get_once(""), "AKENV:" SECRET ":T");
    assert_string_equal(describe(NULL), "environment (AWS_ACCESS_KEY_ID)");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    assert_contains(get_once(NULL), "PARTIAL_CREDENTIALS");
    assert_int_equal(fake_requests, 0);
}

static void a_profile_that_the_configuration_names_goes_before_the_environment(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    write_file("credentials", "[x]\naws_access_key_id=AKFILE\naws_secret_access_key=" SECRET "\n");
    assert_string_equal(get_once("x"), "AKFILE:" SECRET ":");
    setenv("AWS_PROFILE", "x", 1);
    assert_string_equal(get_once("x"), "AKENV:" SECRET ":");
}

static void the_credentials_file_goes_before_a_process_and_that_before_the_config_file(void **state)
{
    char text[600];
    (void)state;
    snprintf(text, sizeof text,
             "[profile x]\naws_access_key_id=AKCONF\naws_secret_access_key=" SECRET "\n"
             "credential_process = printf '{\"Version\":1,\"AccessKeyId\":\"AKPROC\",\"SecretAccessKey\":\"" SECRET "\"}'\n"
             "[profile y]\naws_access_key_id=AKCONF\naws_secret_access_key=" SECRET "\n");
    write_file("config", text);
    write_file("credentials", "[x]\naws_access_key_id=AKFILE\naws_secret_access_key=" SECRET "\naws_session_token=T\n");
    assert_string_equal(get_once("x"), "AKFILE:" SECRET ":T");
    write_file("credentials", "");
    assert_string_equal(get_once("x"), "AKPROC:" SECRET ":");
    assert_string_equal(describe("x"), "credential_process of profile x");
    assert_string_equal(get_once("y"), "AKCONF:" SECRET ":");
    assert_contains(describe("y"), "profile y of /tmp/");
    assert_contains(get_once("z"), "NO_SUCH_PROFILE");
}

static const struct fake_route sts_routes[] = {
    {"POST", "https://sts.eu-west-3.amazonaws.com/", 200,
     "<AssumeRoleResponse "
     "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><AssumedRoleUser><Arn>a</Arn>"
     "</AssumedRoleUser><Credentials><AccessKeyId>AKROLE</AccessKeyId><SecretAccessKey>" SECRET "</SecretAccessKey>"
     "<SessionToken>RT</SessionToken><Expiration>2001-09-09T02:46:40Z</Expiration></Credentials></AssumeRoleResult>"
     "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></AssumeRoleResponse>",
     NULL, NULL},
    {0}};

static void a_role_is_assumed_with_the_keys_of_its_source_profile(void **state)
{
    (void)state;
    fake_reset(sts_routes);
    write_file("config", "[profile r]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = base\nexternal_id = e/1\n"
                         "duration_seconds=900\n");
    write_file("credentials", "[base]\naws_access_key_id=AKBASE\naws_secret_access_key=" SECRET "\n");
    assert_string_equal(get_once("r"), "AKROLE:" SECRET ":RT");
    assert_contains(fake_log, "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&"
                              "RoleSessionName=tensorcast&DurationSeconds=900&ExternalId=e%2F1");
    assert_contains(fake_log, "|Authorization: AWS4-HMAC-SHA256 Credential=AKBASE/");
    assert_contains(fake_log, "/eu-west-3/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date, ");
    assert_contains(describe("r"), "role arn:aws:iam::1:role/x of profile r");
}

static void a_role_of_a_role_is_assumed_and_a_loop_is_refused(void **state)
{
    (void)state;
    fake_reset(sts_routes);
    write_file("config",
               "[profile a]\nrole_arn=ra\nsource_profile=b\n[profile b]\nrole_arn=rb\ncredential_source=Environment\n"
               "[profile c]\nrole_arn=rc\nsource_profile=d\n[profile d]\nrole_arn=rd\nsource_profile=c\n"
               "[profile s]\nrole_arn=rs\nsource_profile=s\n"
               "[profile k]\nrole_arn=rk\nsource_profile=k\naws_access_key_id=AKSELF\naws_secret_access_key=" SECRET "\n"
               "[profile n]\nrole_arn=rn\n[profile m]\nrole_arn=rm\nsource_profile=k\nmfa_serial=x\n"
               "[profile o]\nrole_arn=ro\nsource_profile=nobody\n");
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    assert_string_equal(get_once("a"), "AKROLE:" SECRET ":RT");
    assert_int_equal(fake_requests, 2);
    assert_contains(fake_log, "Credential=AKENV/");
    assert_contains(fake_log, "X-Amz-Security-Token: RT");
    assert_contains(get_once("c"), "lead to one another");
    assert_contains(get_once("s"), "lead to one another");
    assert_string_equal(get_once("k"), "AKROLE:" SECRET ":RT");
    assert_contains(get_once("n"), "needs either source_profile or credential_source");
    assert_contains(get_once("m"), "MFA_NOT_SUPPORTED");
    assert_contains(get_once("o"), "nobody of profile o does not exist");
}

static void so_many_roles_may_lead_to_one_another_and_not_one_more(void **state)
{
    (void)state;
    fake_reset(sts_routes);
    write_file("config", "[profile a]\nrole_arn=ra\nsource_profile=b\n[profile b]\nrole_arn=rb\nsource_profile=c\n"
                         "[profile c]\nrole_arn=rc\nsource_profile=d\n[profile d]\nrole_arn=rd\nsource_profile=e\n"
                         "[profile e]\nrole_arn=re\nsource_profile=f\n[profile f]\nrole_arn=rf\n"
                         "credential_source=Environment\n");
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    assert_string_equal(get_once("b"), "AKROLE:" SECRET ":RT");
    assert_int_equal(fake_requests, 5);
    assert_contains(get_once("a"), "lead to one another");
}

static void a_refusal_of_sts_names_the_role_and_its_code(void **state)
{
    static const struct fake_route routes[] = {{"POST", "http://127.0.0.1:1/", 403,
                                                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</"
                                                "Code><Message>not you\n</Message></Error></ErrorResponse>",
                                                NULL, NULL},
                                               {0}};
    (void)state;
    fake_reset(routes);
    setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1", 1);
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_file("token", "header." SECRET ".signature\n"), 1);
    assert_contains(get_once(NULL),
                    "ASSUME_ROLE_FAILED: keys for S3: STS refused the role arn:x: HTTP 403 AccessDenied not you\\n");
}

static void a_web_identity_is_sent_unsigned_and_read_anew(void **state)
{
    (void)state;
    fake_reset(sts_routes);
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_file("token", "eyJ.1.2\n"), 1);
    struct aws_credentials *credentials = create(NULL);
    assert_string_equal(get(credentials), "AKROLE:" SECRET ":RT");
    assert_contains(fake_log,
                    "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Ax&RoleSessionName=tensorcast&"
                    "WebIdentityToken=eyJ.1.2\n");
    assert_null(strstr(fake_log, "Authorization"));
    write_file("token", "eyJ.3.4");
    now_s += 3600 - 500;
    assert_string_equal(get(credentials), "AKROLE:" SECRET ":RT");
    aws_credentials_destroy(credentials);
    assert_contains(fake_log, "WebIdentityToken=eyJ.3.4\n");
    unsetenv("AWS_ROLE_ARN");
    assert_contains(get_once(NULL), "BAD_WEB_IDENTITY");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent", 1);
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    assert_contains(get_once(NULL), "web identity token file /nonexistent");
}

#define JSON_KEYS(key, token, expiration)                                                                                   \
    "{\"Code\":\"Success\",\"AccessKeyId\":\"" key "\",\"SecretAccessKey\":\"" SECRET "\",\"Token\":\"" token               \
    "\",\"Expiration\":\"" expiration "\",\"RoleArn\":null,\"n\":[1,{}]}"

static void a_container_is_asked_with_its_token_and_past_proxies(void **state)
{
    static const struct fake_route routes[] = {
        {"GET", "http://169.254.170.2/v2/c", 200, JSON_KEYS("AKREL", "T", "2001-09-09T02:46:40Z"), NULL, NULL},
        {"GET", "http://localhost:8/c?x", 200, JSON_KEYS("AKFULL", "", "2001-09-09T02:46:40.5Z"), NULL, NULL},
        {0}};
    (void)state;
    fake_reset(routes);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:8/c?x", 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "tok1", 1);
    assert_string_equal(get_once(NULL), "AKFULL:" SECRET ":");
    assert_contains(fake_log, "GET http://localhost:8/c?x|Accept: application/json|Authorization: tok1|no proxy|");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write_file("ctoken", "tok2\n"), 1);
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/c", 1);
    assert_string_equal(get_once(NULL), "AKREL:" SECRET ":T");
    assert_contains(fake_log, "Authorization: tok2|no proxy|");
    assert_string_equal(describe(NULL), "container credentials endpoint");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nonexistent", 1);
    assert_contains(get_once(NULL), "NO_CONTAINER_TOKEN");
}

static void a_token_is_not_sent_to_another_machine_in_the_clear(void **state)
{
    static const char *const urls[] = {"http://example.com/",           "http://169.254.170.2.example.com/",
                                       "http://127.0.0.1.example.com/", "http://[fd00:ec2::23].example.com/",
                                       "http://localhost@example.com/", "ftp://localhost/",
                                       "http://127.0.0.1@example.com/", "https://user@example.com/"};
    (void)state;
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", SECRET, 1);
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", urls[i], 1);
        assert_contains(get_once(NULL), "BAD_CONTAINER_URI");
    }
    assert_int_equal(fake_requests, 0);
}

static void instance_metadata_is_asked_in_version_2(void **state)
{
    static const struct fake_route routes[] = {
        {"PUT", "http://169.254.169.254/latest/api/token", 200, "SESSION", NULL, NULL},
        {"GET", "http://169.254.169.254/latest/meta-data/iam/security-credentials/", 200, "my-role", NULL, NULL},
        {"GET", "http://169.254.169.254/latest/meta-data/iam/security-credentials/my-role", 200,
         JSON_KEYS("AKINST", "T", "2001-09-09T02:46:40Z"), NULL, NULL},
        {"GET", "http://169.254.169.254/latest/meta-data/placement/region", 200, "ap-south-1\n", NULL, NULL},
        {0}};
    struct error error;
    char *region;
    (void)state;
    fake_reset(routes);
    assert_string_equal(get_once(NULL), "AKINST:" SECRET ":T");
    assert_int_equal(fake_requests, 3);
    assert_contains(fake_log,
                    "PUT http://169.254.169.254/latest/api/token|x-aws-ec2-metadata-token-ttl-seconds: 21600|no proxy|");
    assert_contains(fake_log, "my-role|x-aws-ec2-metadata-token: SESSION|no proxy|");
    assert_int_equal(aws_metadata_region(NULL, NULL, &region, &error), 0);
    assert_string_equal(region, "ap-south-1");
    free(region);
}

static void with_nothing_at_all_the_error_says_where_keys_were_looked_for(void **state)
{
    (void)state;
    const char *text = get_once(NULL);
    assert_contains(text, "NO_CREDENTIALS");
    assert_contains(text, "hop limit");
    assert_contains(text, "\nenvironment: AWS_ACCESS_KEY_ID is not set\nprofile default: no keys in ");
    assert_contains(text, "\ninstance: the instance metadata service");
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    assert_contains(get_once(NULL), "AWS_EC2_METADATA_DISABLED is set");
    assert_int_equal(fake_requests, 1);
    assert_string_equal(describe(NULL), "none");
    write_file("config", "[default]\nsso_session = x\n");
    assert_contains(get_once(NULL), "SSO_NOT_SUPPORTED");
}

static void anonymous_is_only_what_was_configured_as_such(void **state)
{
    struct aws_credentials_options options = {.anonymous = true};
    char text[AWS_DESCRIBE_CHARS];
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SECRET, 1);
    struct aws_credentials *credentials = aws_credentials_create(&options);
    assert_string_equal(get(credentials), "anonymous::");
    aws_credentials_describe(credentials, text);
    assert_string_equal(text, "anonymous");
    aws_credentials_destroy(credentials);
    aws_credentials_destroy(NULL);
}

/* --- the life of keys --- */

static const struct fake_route container_1[] = {
    {"GET", "http://169.254.170.2/c", 200, JSON_KEYS("AK1", "T", "2001-09-09T02:46:40Z"), NULL, NULL}, {0}};
static const struct fake_route container_2[] = {
    {"GET", "http://169.254.170.2/c", 200, JSON_KEYS("AK2", "T", "2001-09-09T03:46:40Z"), NULL, NULL}, {0}};

static void keys_are_renewed_ten_minutes_before_they_expire(void **state)
{
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = create(NULL);
    assert_string_equal(get(credentials), "AK1:" SECRET ":T");
    now_s = 1000003600 - 601;
    fake_reset(container_2);
    assert_string_equal(get(credentials), "AK1:" SECRET ":T");
    assert_int_equal(fake_requests, 0);
    now_s = 1000003600 - 600;
    assert_string_equal(get(credentials), "AK2:" SECRET ":T");
    assert_int_equal(fake_requests, 1);
    aws_credentials_destroy(credentials);
}

static void old_keys_are_used_while_they_are_valid_when_new_ones_cannot_be_had(void **state)
{
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = create(NULL);
    get(credentials);
    fake_reset(NULL);
    now_s = 1000003600 - 600;
    assert_string_equal(get(credentials), "AK1:" SECRET ":T");
    assert_string_equal(get(credentials), "AK1:" SECRET ":T");
    assert_int_equal(fake_requests, 1); /* not asked again at once */
    now_s += 31;
    get(credentials);
    assert_int_equal(fake_requests, 2);
    now_s = 1000003600;
    assert_contains(get(credentials), "nobody answers");
    aws_credentials_destroy(credentials);
}

static void refused_keys_are_replaced_and_others_are_not(void **state)
{
    struct aws_keys keys;
    struct error error;
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    struct aws_credentials *credentials = create(NULL);
    assert_int_equal(aws_credentials_get(credentials, NULL, &keys, &error), 0);
    fake_reset(container_2);
    aws_credentials_refused(credentials, keys.generation);
    assert_string_equal(get(credentials), "AK2:" SECRET ":T");
    aws_credentials_refused(credentials, keys.generation); /* a late answer about the first ones */
    get(credentials);
    assert_int_equal(fake_requests, 1);
    aws_keys_clear(&keys);
    aws_credentials_destroy(credentials);
}

static void keys_that_are_expired_when_they_come_are_an_error(void **state)
{
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    now_s = 1000003600;
    assert_contains(get_once(NULL), "CREDENTIALS_EXPIRED");
}

enum { N_THREADS = 8 };
static pthread_barrier_t all_started;

static void wait_for_all(void)
{
    pthread_barrier_wait(&all_started); /* nobody's get can have ended before everybody has begun */
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

static void many_who_ask_at_once_cause_one_request(void **state)
{
    pthread_t threads[N_THREADS];
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c", 1);
    fake_reset(container_1);
    pthread_barrier_init(&all_started, NULL, 2);
    fake_on_request = wait_for_all;
    struct aws_credentials *credentials = create(NULL);
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

static void a_file_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    setenv("AWS_CONFIG_FILE", folder, 1); /* a directory */
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
    struct aws_profiles *profiles = aws_profiles_load();
    assert_non_null(aws_profiles_problem(profiles));
    assert_contains(aws_profiles_problem(profiles), folder);
    aws_profiles_destroy(profiles);
    clean_environment(NULL);
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
    const char *path = write_file(name, text);
    free(text);
    return path;
}

static void a_container_s_token_of_16384_characters_is_sent_whole_and_a_longer_one_not_at_all(void **state)
{
    static const struct fake_route routes[] = {
        {"GET", "http://localhost:8/c", 200, JSON_KEYS("AK", "T", "2001-09-09T02:46:40Z"), NULL, NULL}, {0}};
    char *token = letters(16384);
    (void)state;
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:8/c", 1);
    for (size_t longer = 0; longer < 2; longer++) {
        fake_reset(routes);
        setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write_letters("ctoken", 16384 + longer), 1);
        assert_contains(get_once(NULL), longer ? "NO_CONTAINER_TOKEN: " : "AK:" SECRET ":T");
        assert_int_equal(fake_requests, longer ? 0 : 1);
        assert_true(longer || strstr(fake_log, token));
    }
    free(token);
}

static void a_web_identity_of_32_kib_is_sent_and_a_longer_one_is_not(void **state)
{
    (void)state;
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    for (size_t longer = 0; longer < 2; longer++) {
        fake_reset(sts_routes);
        setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_letters("token", (32 << 10) + longer), 1);
        assert_contains(get_once(NULL), longer ? "BAD_WEB_IDENTITY" : "AKROLE:" SECRET ":RT");
        assert_int_equal(fake_requests, longer ? 0 : 1);
    }
}

static void a_secret_of_16384_characters_is_taken_and_a_longer_one_is_not(void **state)
{
    struct aws_keys keys;
    struct error error;
    (void)state;
    for (size_t longer = 0; longer < 2; longer++) {
        char *token = letters(16384 + longer);
        char *json = memory_print(JSON_KEYS("AK", "%s", "2001-09-09T02:46:40Z"), token);
        assert_int_equal(aws_keys_parse_json(json, strlen(json), &keys, &error), longer ? -1 : 0);
        if (!longer) {
            assert_string_equal(keys.session_token, token);
            aws_keys_clear(&keys);
        }
        free(json);
        free(token);
    }
}

static void a_profile_file_of_one_mebibyte_is_read_and_one_byte_more_is_a_problem(void **state)
{
    (void)state;
    for (size_t longer = 0; longer < 2; longer++) {
        char *text = letters((1 << 20) + longer);
        memcpy(text, "[default]\n#", 11);
        setenv("AWS_CONFIG_FILE", write_file("config", text), 1);
        free(text);
        struct aws_profiles *profiles = aws_profiles_load();
        if (longer)
            assert_contains(aws_profiles_problem(profiles), "larger than 1 MiB");
        else
            assert_null(aws_profiles_problem(profiles));
        aws_profiles_destroy(profiles);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"config", "credentials", "token", "ctoken"};
    char path[200];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keys_in_the_environment_come_first, clean_environment),
        cmocka_unit_test_setup(a_profile_that_the_configuration_names_goes_before_the_environment, clean_environment),
        cmocka_unit_test_setup(the_credentials_file_goes_before_a_process_and_that_before_the_config_file,
                               clean_environment),
        cmocka_unit_test_setup(a_role_is_assumed_with_the_keys_of_its_source_profile, clean_environment),
        cmocka_unit_test_setup(a_role_of_a_role_is_assumed_and_a_loop_is_refused, clean_environment),
        cmocka_unit_test_setup(so_many_roles_may_lead_to_one_another_and_not_one_more, clean_environment),
        cmocka_unit_test_setup(a_refusal_of_sts_names_the_role_and_its_code, clean_environment),
        cmocka_unit_test_setup(a_web_identity_is_sent_unsigned_and_read_anew, clean_environment),
        cmocka_unit_test_setup(a_container_is_asked_with_its_token_and_past_proxies, clean_environment),
        cmocka_unit_test_setup(a_token_is_not_sent_to_another_machine_in_the_clear, clean_environment),
        cmocka_unit_test_setup(instance_metadata_is_asked_in_version_2, clean_environment),
        cmocka_unit_test_setup(with_nothing_at_all_the_error_says_where_keys_were_looked_for, clean_environment),
        cmocka_unit_test_setup(anonymous_is_only_what_was_configured_as_such, clean_environment),
        cmocka_unit_test_setup(keys_are_renewed_ten_minutes_before_they_expire, clean_environment),
        cmocka_unit_test_setup(old_keys_are_used_while_they_are_valid_when_new_ones_cannot_be_had, clean_environment),
        cmocka_unit_test_setup(refused_keys_are_replaced_and_others_are_not, clean_environment),
        cmocka_unit_test_setup(keys_that_are_expired_when_they_come_are_an_error, clean_environment),
        cmocka_unit_test_setup(many_who_ask_at_once_cause_one_request, clean_environment),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(a_container_s_token_of_16384_characters_is_sent_whole_and_a_longer_one_not_at_all),
        cmocka_unit_test(a_web_identity_of_32_kib_is_sent_and_a_longer_one_is_not),
        cmocka_unit_test(a_secret_of_16384_characters_is_taken_and_a_longer_one_is_not),
        cmocka_unit_test(a_profile_file_of_one_mebibyte_is_read_and_one_byte_more_is_a_problem),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
