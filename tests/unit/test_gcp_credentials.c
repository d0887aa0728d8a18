/* Who we are for Google: the places where credentials are looked for, in their order, what is sent to have a token, and the
 * token's life. No test shows a secret. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/json.h"
#include "base/signature.h"
#include "source/gcs/gcp_credentials.h"
#include "source/gcs/gcp_key.h"
#include "tests/support/fake_http.h"
#include "tests/support/rsa_key.h"

#define SECRET "never-to-be-seen"
#define METADATA_URL "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
#define TOKEN(text) "{\"access_token\":\"" text "\",\"expires_in\":3600,\"token_type\":\"Bearer\",\"scope\":[]}"
#define USER_FILE                                                                                                           \
    "{\"type\":\"authorized_user\",\"client_id\":\"id.apps\",\"client_secret\":\"" SECRET "\",\"refresh_token\":\"" SECRET  \
    "/r\","                                                                                                                 \
    "\"quota_project_id\":\"payer\",\"universe_domain\":\"googleapis.com\"}"

static char folder[] = "/tmp/test_gcp_credentials.XXXXXX";
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
    static const char *const names[] = {"NO_GCE_CHECK", "GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP",
                                        "GCE_METADATA_TIMEOUT"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    unlink(write_file("application_default_credentials.json", ""));
    setenv("CLOUDSDK_CONFIG", folder, 1);
    now_s = 1000000000;
    fake_reset(NULL);
    return 0;
}

static bool may_write;

static const struct http_fence fence; /* the strictest */

static struct gcp_credentials *create(const char *file)
{
    struct gcp_credentials_options options = {.file = file, .now = now, .may_write = may_write, .fence = &fence};
    return gcp_credentials_create(&options);
}

/* "TOKEN/PROJECT", or the error's reason and message. */
static const char *get(struct gcp_credentials *credentials)
{
    static char text[1200];
    struct gcp_access access;
    struct error error;
    if (gcp_credentials_get(credentials, NULL, &access, &error) < 0) {
        assert_null(strstr(error.message, SECRET));
        assert_null(access.token);
        snprintf(text, sizeof text, "%s: %s", error.reason, error.message);
        return text;
    }
    snprintf(text, sizeof text, "%s/%s", access.token ? access.token : "anonymous",
             access.quota_project ? access.quota_project : "");
    gcp_access_clear(&access);
    return text;
}

static const char *get_once(const char *file)
{
    struct gcp_credentials *credentials = create(file);
    const char *text = get(credentials);
    gcp_credentials_destroy(credentials);
    return text;
}

static const char *describe(const char *file)
{
    static char text[GCP_DESCRIBE_CHARS];
    struct gcp_credentials *credentials = create(file);
    gcp_credentials_describe(credentials, text);
    gcp_credentials_destroy(credentials);
    assert_null(strstr(text, SECRET));
    return text;
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in: %s", part, text);
}

/* --- where --- */

static const struct fake_route token_routes[] = {
    {"POST", "https://oauth2.googleapis.com/token", 200, TOKEN("T1"), NULL, NULL},
    {"GET", METADATA_URL, 200, TOKEN("TM"), "metadata-flavor", "Google"},
    {0}};

TEST_IN(a_refresh_token_of_a_user_is_exchanged, clean_environment, NULL)
{
    fake_reset(token_routes);
    const char *path = write_file("user.json", USER_FILE);
    assert_string_equal(get_once(path), "T1/payer");
    assert_string_equal(fake_log, "POST https://oauth2.googleapis.com/token|Content-Type: application/x-www-form-urlencoded|"
                                  "grant_type=refresh_token&client_id=id.apps&client_secret=" SECRET "&refresh_token=" SECRET
                                  "%2Fr\n");
    assert_contains(describe(path), "authorized user of /tmp/");
}

TEST_IN(the_named_file_goes_before_gclouds_and_that_before_the_metadata_server, clean_environment, NULL)
{
    fake_reset(token_routes);
    assert_string_equal(get_once(""), "TM/");
    assert_contains(fake_log, "GET " METADATA_URL "|Metadata-Flavor: Google|no proxy|");
    assert_string_equal(describe(""), "metadata server (nothing else is configured)");
    write_file("application_default_credentials.json", USER_FILE);
    assert_string_equal(get_once(NULL), "T1/payer");
    assert_contains(describe(NULL), "application_default_credentials.json");
    assert_contains(get_once("/nonexistent.json"), "Google credentials file /nonexistent.json: No such file");
}

static const char *write_account(const char *token_uri)
{
    struct json_writer file = {0};
    json_write_open(&file, '{');
    json_put_text(&file, "type", "service_account");
    json_put_text(&file, "client_email", "robot@p.iam");
    json_put_text(&file, "private_key_id", "k1");
    json_put_text(&file, "private_key", rsa_key);
    json_put_text(&file, "token_uri", token_uri);
    json_write_close(&file, '}');
    const char *path = write_file("account.json", file.text);
    free(file.text);
    return path;
}

/* Of base64 with - and _. */
static size_t decode(const char *text, size_t length, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t n = 0;
    unsigned bits = 0, n_bits = 0;
    for (size_t i = 0; i < length; i++) {
        const char *at = strchr(digits, text[i]);
        assert_true(at && *at);
        bits = bits << 6 | (unsigned)(at - digits);
        n_bits += 6;
        if (n_bits >= 8)
            out[n++] = (char)(bits >> (n_bits -= 8));
    }
    return n;
}

TEST_IN(a_service_account_signs_what_it_asks_for, clean_environment, NULL)
{
    const char *path = write_account("https://oauth2.googleapis.com/token");
    char claims[1000], expected[1000];
    for (unsigned i = 0; i < 2; i++) {
        may_write = i > 0;
        fake_reset(token_routes);
        assert_string_equal(get_once(path), "T1/");
        assert_contains(fake_log, "|grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=");
        char *head = strstr(fake_log, "assertion=") + strlen("assertion=");
        char *body = strchr(head, '.') + 1, *signature = strchr(body, '.');
        claims[decode(body, (size_t)(signature - body), claims)] = '\0';
        snprintf(expected, sizeof expected,
                 "{\"iss\":\"robot@p.iam\",\"scope\":\"https://www.googleapis.com/auth/devstorage.%s\","
                 "\"aud\":\"https://oauth2.googleapis.com/token\",\"iat\":1000000000,\"exp\":1000003600}",
                 may_write ? "read_write" : "read_only");
        assert_string_equal(claims, expected);
        unsigned char *bytes;
        size_t n_bytes;
        struct error error;
        assert_int_equal(
            signature_rs256(rsa_key, strlen(rsa_key), head, (size_t)(signature - head), &bytes, &n_bytes, &error), 0);
        char *encoded = base64_encode_url(bytes, n_bytes);
        assert_int_equal(strncmp(signature + 1, encoded, strlen(encoded)), 0);
        free(encoded);
        free(bytes);
    }
    may_write = false;
    assert_contains(describe(path), "service account robot@p.iam of /tmp/");
}

TEST_IN(secrets_go_to_https_only, clean_environment, NULL)
{
    assert_contains(get_once(write_account("http://example.com/token")), "PLAIN_HTTP");
    assert_int_equal(fake_requests, 0);
}

TEST_IN(files_that_are_of_no_use_are_refused_by_name, clean_environment, NULL)
{
    static const struct {
        const char *file, *message;
    } cases[] = {
        {"{\"type\":\"external_account\",\"audience\":\"x\"}", "credentials of type external_account are not supported"},
        {"{\"type\":\"impersonated_service_account\"}",
         "credentials of type impersonated_service_account are not supported"},
        {"{\"type\":\"authorized_user\",\"client_id\":\"x\"}", "needs client_id, client_secret and refresh_token"},
        {"{\"type\":\"service_account\"}", "needs client_email and private_key"},
        {"{\"type\":\"service_account\",\"client_email\":\"x\",\"private_key\":\"" SECRET "\"}",
         "private key is not an RSA key"},
        {"{}", "has no \"type\""},
        {"{\"type\":", "is no JSON object"},
        {"{\"type\":\"a\",\"type\":\"b\"}", "is no JSON object"},
        {"", "is no JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = write_file("user.json", cases[i].file);
        assert_contains(get_once(path), cases[i].message);
        assert_contains(get_once(path), "Google credentials file /tmp/");
    }
    assert_contains(describe(write_file("user.json", "{\"type\":\"external_account\"}")), "(CREDENTIALS_NOT_SUPPORTED)");
    assert_int_equal(fake_requests, 0);
}

TEST_IN(a_refusal_shows_what_the_server_said, clean_environment, NULL)
{
    static const struct fake_route routes[] = {
        {"POST", "https://oauth2.googleapis.com/token", 400,
         "{\"error\":\"invalid_grant\",\"error_description\":\"Token has been expired\\nor revoked.\"}", NULL, NULL},
        {0}};
    fake_reset(routes);
    assert_contains(get_once(write_file("user.json", USER_FILE)), "TOKEN_REFUSED: Google credentials file");
    assert_contains(get_once(write_file("user.json", USER_FILE)),
                    "HTTP 400 invalid_grant: Token has been expired\\nor revoked.");
}

/* --- the metadata server --- */

TEST_IN(a_metadata_server_says_that_it_is_one_and_may_be_named_or_left_out, clean_environment, NULL)
{
    static const char url[] = "http://h:1/computeMetadata/v1/instance/service-accounts/default/token";
    static const struct fake_route evil[] = {{"GET", METADATA_URL, 200, TOKEN("EVIL"), NULL, NULL}, {0}};
    static const struct fake_route named[] = {{"GET", url, 200, TOKEN("TH"), "metadata-flavor", "Google"}, {0}};
    fake_reset(evil);
    assert_contains(get_once(NULL), "NO_CREDENTIALS");
    assert_int_equal(fake_requests, 2); /* by name and by address */
    assert_contains(fake_log, "GET http://169.254.169.254/computeMetadata/");
    fake_reset(named);
    setenv("GCE_METADATA_ROOT", "h:1", 1);
    assert_string_equal(get_once(NULL), "TH/");
    setenv("GCE_METADATA_HOST", "nobody:1", 1);
    assert_contains(get_once(NULL), "NO_CREDENTIALS");
    setenv("NO_GCE_CHECK", "True", 1);
    assert_contains(get_once(NULL), "NO_GCE_CHECK is set");
    assert_int_equal(fake_requests, 2);
    assert_string_equal(describe(NULL), "none");
}

TEST_IN(anonymous_is_only_what_was_configured_as_such, clean_environment, NULL)
{
    struct gcp_credentials_options options = {.anonymous = true, .file = "/nonexistent"};
    char text[GCP_DESCRIBE_CHARS];
    struct gcp_credentials *credentials = gcp_credentials_create(&options);
    assert_string_equal(get(credentials), "anonymous/");
    gcp_credentials_describe(credentials, text);
    assert_string_equal(text, "anonymous");
    gcp_credentials_destroy(credentials);
    gcp_credentials_destroy(NULL);
}

/* --- the life of a token --- */

static const struct fake_route second_token[] = {{"GET", METADATA_URL, 200, TOKEN("T2"), "metadata-flavor", "Google"}, {0}};

TEST_IN(a_token_is_renewed_225_seconds_before_it_expires_and_not_earlier, clean_environment, NULL)
{
    fake_reset(token_routes);
    struct gcp_credentials *credentials = create(NULL);
    assert_string_equal(get(credentials), "TM/");
    fake_reset(second_token);
    now_s = 1000003600 - 226;
    assert_string_equal(get(credentials), "TM/");
    assert_int_equal(fake_requests, 0);
    now_s = 1000003600 - 225;
    assert_string_equal(get(credentials), "T2/");
    gcp_credentials_destroy(credentials);
}

TEST_IN(a_refused_token_is_replaced_once, clean_environment, NULL)
{
    struct gcp_access access;
    struct error error;
    fake_reset(token_routes);
    struct gcp_credentials *credentials = create(NULL);
    assert_int_equal(gcp_credentials_get(credentials, NULL, &access, &error), 0);
    fake_reset(second_token);
    gcp_credentials_refused(credentials, access.generation);
    assert_string_equal(get(credentials), "T2/");
    gcp_credentials_refused(credentials, access.generation);
    assert_string_equal(get(credentials), "T2/");
    assert_int_equal(fake_requests, 1);
    gcp_access_clear(&access);
    gcp_credentials_destroy(credentials);
}

TEST(answers_that_are_no_token_are_refused)
{
    static const char *const answers[] = {"",
                                          "[]",
                                          "{}",
                                          "{\"access_token\":\"x\"}",
                                          "{\"access_token\":\"x\",\"expires_in\":0}",
                                          "{\"expires_in\":1}",
                                          "{\"access_token\":\"a\\r\\nb\",\"expires_in\":1}",
                                          "{\"access_token\":\"\",\"expires_in\":1}",
                                          "{\"access_token\":\"x\",\"expires_in\":-1}",
                                          "{\"access_token\":\"x\",\"expires_in\":1}{}"};
    struct gcp_token token;
    struct error error;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        assert_int_equal(gcp_token_parse(answers[i], strlen(answers[i]), &token, &error), -1);
        assert_null(token.text);
    }
    const char *far = "{\"access_token\":\"x\",\"expires_in\":18446744073709551615}";
    assert_int_equal(gcp_token_parse(far, strlen(far), &token, &error), 0);
    assert_int_equal(token.expires_in_s, 86400);
    gcp_token_clear(&token);
}

TEST(a_credentials_file_of_64_kib_is_read_and_one_byte_more_is_not)
{
    static const char user[] =
        "{\"type\":\"authorized_user\",\"client_id\":\"c\",\"client_secret\":\"" SECRET "\",\"refresh_token\":\"r\"}";
    for (size_t longer = 0; longer < 2; longer++) {
        size_t count = (64 << 10) + longer;
        char *text = memory_alloc(count + 1);
        memset(text, ' ', count);
        memcpy(text, user, sizeof user - 1);
        fake_reset(token_routes);
        const char *got = get_once(write_file("user.json", text));
        assert_int_equal(strstr(got, "is no JSON object") != NULL, longer);
        assert_int_equal(fake_requests, longer ? 0 : 1);
        free(text);
    }
}

TEST(a_token_of_16384_characters_is_taken_and_a_longer_one_is_not)
{
    struct gcp_token token;
    struct error error;
    for (size_t longer = 0; longer < 2; longer++) {
        char *json = memory_print("{\"expires_in\":1,\"access_token\":\"%0*d\"}", (int)(16384 + longer), 0);
        assert_int_equal(gcp_token_parse(json, strlen(json), &token, &error), longer ? -1 : 0);
        assert_int_equal(token.text ? strlen(token.text) : 0, longer ? 0 : 16384);
        gcp_token_clear(&token);
        free(json);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"application_default_credentials.json", "user.json", "account.json"};
    char path[200];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

TESTS_IN(make_folder, remove_folder)
