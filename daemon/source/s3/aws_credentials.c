/* A table of providers in botocore's order. Each tells without asking anyone whether it is configured, and if so under what
 * name; the first one that is loads the keys. A role is assumed with the keys of another profile or of one named provider:
 * STS takes a form by POST and answers in XML. The form holds secrets, so it is never part of a message. */
#include "source/s3/aws_credentials.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"
#include "source/environment.h"
#include "source/renewal.h"
#include "source/s3/aws_metadata.h"
#include "source/s3/aws_process.h"
#include "source/s3/aws_profile.h"
#include "source/s3/sigv4.h"
#include "source/secret.h"

enum {
    MAX_ROLES = 5, /* that lead to one another */
    MAX_TOKEN_BYTES = 32 << 10,
    MAX_ANSWER_BYTES = 256 << 10,
    TIMEOUT_MS = 30000, /* of STS */
};

struct aws_credentials {
    struct http_engine *http;
    char *profile;
    char *region;        /* "" = the profile's */
    const char *ca_file; /* of STS, or NULL */
    bool use_environment, anonymous;
    struct renewal renewal; /* of a struct aws_keys */
};

struct walk { /* over the places where keys may be */
    const struct aws_credentials *of;
    const struct aws_profiles *profiles;
    const struct cancel *cancel;
    const char *profile;
    bool use_environment; /* false for a source_profile: that profile is meant and nothing else */
    int n_roles;
};

static const char *get(const struct walk *walk, const char *key)
{
    return aws_profiles_get(walk->profiles, walk->profile, key);
}

/* NULL in the chain of a source_profile. */
static const char *get_environment(const struct walk *walk, const char *name)
{
    return walk->use_environment ? environment_get(name) : NULL;
}

static int fill_static(struct aws_keys *keys, const char *access_key, const char *secret_key, const char *token)
{
    *keys = (struct aws_keys){memory_copy_text(access_key), memory_copy_text(secret_key), memory_copy_text(token), 0, 0};
    return 0;
}

static int load_environment(struct aws_keys *keys, struct error *error)
{
    const char *secret = environment_get("AWS_SECRET_ACCESS_KEY"), *token = environment_get("AWS_SESSION_TOKEN");
    if (!secret)
        return fail(error, ERROR_PERMISSION_DENIED, "PARTIAL_CREDENTIALS",
                    "AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not");
    return fill_static(keys, environment_get("AWS_ACCESS_KEY_ID"), secret,
                       token ? token : environment_get("AWS_SECURITY_TOKEN"));
}

static int load_static(const struct walk *walk, enum aws_file file, struct aws_keys *keys, struct error *error)
{
    const char *secret = aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_secret_access_key");
    const char *token = aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_session_token");
    if (!token)
        token = aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_security_token");
    if (!secret)
        return fail(error, ERROR_PERMISSION_DENIED, "PARTIAL_CREDENTIALS",
                    "profile %s has an aws_access_key_id but no aws_secret_access_key", text_show(walk->profile));
    return fill_static(keys, aws_profiles_get_from(walk->profiles, file, walk->profile, "aws_access_key_id"), secret, token);
}

/* --- STS --- */

/* The form of one more parameter, for secret_free(). */
static char *make_form(const struct walk *walk, const char *action, const char *role, const char *session, const char *name,
                       const char *value)
{
    return secret_form((const char *const[][2]){{"Action", action},
                                                {"Version", "2011-06-15"},
                                                {"RoleArn", role},
                                                {"RoleSessionName", session ? session : "tensorcast"},
                                                {"DurationSeconds", get(walk, "duration_seconds")},
                                                {name, value},
                                                {NULL}});
}

static int fail_answer(const struct http_reply *reply, const char *role, struct error *error)
{
    struct aws_error said;
    bool is_told = aws_error_parse(reply->body, reply->body_bytes, &said);
    fail(error, reply->head.status >= 500 ? ERROR_UNAVAILABLE : ERROR_PERMISSION_DENIED, "ASSUME_ROLE_FAILED",
         "STS refused the role %s: HTTP %d %s %s", text_show(role), reply->head.status, is_told ? text_show(said.code) : "",
         is_told && said.message ? text_show(said.message) : "");
    aws_error_clear(&said);
    return -1;
}

static int prepare_form(void *ca_file, struct http_attempt *attempt, struct error *error)
{
    (void)error;
    attempt->ca_file = *(const char **)ca_file;
    return 0;
}

/* with: the keys that sign it, NULL = none do. */
static int post_form(const struct walk *walk, const char *role, const char *form, const struct aws_keys *with,
                     struct aws_keys *keys, struct error *error)
{
    static const char type[] = "application/x-www-form-urlencoded";
    const struct aws_credentials *of = walk->of;
    const char *own = environment_get("AWS_ENDPOINT_URL_STS"), *all = environment_get("AWS_ENDPOINT_URL");
    const char *endpoint = own ? own : all ? all : aws_profiles_endpoint(walk->profiles, of->profile, "sts");
    const char *region = *of->region ? of->region : aws_profiles_get(walk->profiles, of->profile, "region");
    char *url;
    if (endpoint)
        url = memory_print("%s%s", endpoint, endpoint[strlen(endpoint) - 1] == '/' ? "" : "/");
    else if (!region)
        url = memory_copy_text("https://sts.amazonaws.com/");
    else
        url = memory_print("https://sts.%s.amazonaws.com%s/", region, strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    struct sigv4_signature signature = {0};
    if (with) {
        unsigned char sum[DIGEST_BYTES];
        char hex[DIGEST_HEX_CHARS + 1];
        struct digest *digest = digest_create();
        digest_add(digest, form, strlen(form));
        digest_finish(digest, sum);
        digest_hex(sum, sizeof sum, hex);
        const struct sigv4_key key = {with->access_key, with->secret_key, with->session_token, region ? region : "us-east-1",
                                      "sts"};
        const struct sigv4_request request = {.method = "POST",
                                              .url = url,
                                              .headers = &(struct http_header){"content-type", type},
                                              .n_headers = 1,
                                              .payload_hash = hex,
                                              .unix_time = (int64_t)time(NULL)};
        sigv4_sign(&key, &request, &signature);
    }
    const struct http_header headers[] = {{"Content-Type", type},
                                          {"X-Amz-Date", signature.date},
                                          {"Authorization", signature.authorization},
                                          {"X-Amz-Security-Token", with ? with->session_token : NULL}};
    const char *ca_file = of->ca_file;
    const struct http_store store = {.prepare = prepare_form, .data = &ca_file};
    const struct http_call call = {.store = &store,
                                   .method = "POST",
                                   .url = url,
                                   .headers = headers,
                                   .n_headers = !with                 ? 1
                                                : with->session_token ? 4
                                                                      : 3,
                                   .body = form,
                                   .body_bytes = strlen(form),
                                   .max_reply_bytes = MAX_ANSWER_BYTES,
                                   .accept_any_status = true,
                                   .timeout_ms = TIMEOUT_MS,
                                   .cancel = walk->cancel};
    struct http_reply reply = {0};
    int failed = http_fetch(of->http, &call, &reply, error);
    if (failed)
        error_prefix(error, "STS");
    else
        failed = reply.head.status == 200 ? aws_keys_parse_xml(reply.body, reply.body_bytes, keys, error)
                                          : fail_answer(&reply, role, error);
    http_reply_clear(&reply);
    free(signature.authorization);
    free(url);
    return failed;
}

/* --- roles --- */

enum provider { ENVIRONMENT, ROLE, IDENTITY, SHARED, PROCESS, CONFIG, SSO, CONTAINER, INSTANCE, N_PROVIDERS };

static const struct {
    const char *source; /* as credential_source spells it, or NULL */
    bool of_profile;    /* part of the chain of a source_profile */
    const char *label;  /* for people: $P the profile, $R its role, $I the token file, $C and $S the files */
} providers[] = {
    [ENVIRONMENT] = {"Environment", false, "environment (AWS_ACCESS_KEY_ID)"},
    [ROLE] = {NULL, false, "role $R of profile $P"},
    [IDENTITY] = {NULL, true, "web identity token file $I"},
    [SHARED] = {NULL, true, "profile $P of $S"},
    [PROCESS] = {NULL, true, "credential_process of profile $P"},
    [CONFIG] = {NULL, true, "profile $P of $C"},
    [SSO] = {NULL, true, "SSO of profile $P (not supported)"},
    [CONTAINER] = {"EcsContainer", false, "container credentials endpoint"},
    [INSTANCE] = {"Ec2InstanceMetadata", false, "instance metadata (nothing else is configured)"},
};

static int load_from(const struct walk *walk, enum provider provider, struct aws_keys *keys, struct error *error);

static const char *identity_file(const struct walk *walk)
{
    const char *file = get_environment(walk, "AWS_WEB_IDENTITY_TOKEN_FILE");
    return file ? file : get(walk, "web_identity_token_file");
}

static bool is_configured(const struct walk *walk, enum provider provider)
{
    switch (provider) {
    case ENVIRONMENT:
        return get_environment(walk, "AWS_ACCESS_KEY_ID");
    case ROLE:
        return get(walk, "role_arn") && !get(walk, "web_identity_token_file");
    case IDENTITY:
        return identity_file(walk);
    case SHARED:
        return aws_profiles_get_from(walk->profiles, AWS_FILE_CREDENTIALS, walk->profile, "aws_access_key_id");
    case PROCESS:
        return get(walk, "credential_process");
    case CONFIG:
        return aws_profiles_get_from(walk->profiles, AWS_FILE_CONFIG, walk->profile, "aws_access_key_id");
    case SSO:
        return get(walk, "sso_session") || get(walk, "sso_start_url");
    case CONTAINER:
        return environment_get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
               environment_get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    default:
        return aws_metadata_instance_allowed();
    }
}

static int check_role(const struct walk *walk, struct error *error)
{
    const char *source = get(walk, "source_profile"), *name = text_show(walk->profile);
    if (get(walk, "mfa_serial"))
        return fail(
            error, ERROR_UNIMPLEMENTED, "MFA_NOT_SUPPORTED",
            "profile %s needs a code for mfa_serial, which a daemon cannot ask for; give the daemon a session's keys in "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or a profile with credential_process",
            name);
    if (!source == !get(walk, "credential_source"))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PROFILE",
                    "profile %s has a role_arn and needs either source_profile or credential_source", name);
    if (source && !aws_profiles_has(walk->profiles, source))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PROFILE", "the source_profile %s of profile %s does not exist",
                    text_show(source), name);
    if (walk->n_roles >= MAX_ROLES)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PROFILE", "the roles of profile %s lead to one another", name);
    return 0;
}

/* The keys that a role is assumed with. Of a source_profile its keys count before its role, because a profile may assume a
 * role with its own keys. */
static int load_source(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    struct walk source = *walk;
    const char *profile = get(walk, "source_profile"), *named = get(walk, "credential_source");
    source.n_roles++;
    source.use_environment = !profile;
    source.profile = profile ? profile : walk->profile;
    bool has_keys = aws_profiles_get(walk->profiles, source.profile, "aws_access_key_id");
    if (profile && !has_keys && is_configured(&source, ROLE)) {
        if (strcmp(profile, walk->profile) == 0)
            source.n_roles = MAX_ROLES; /* it means its own keys and has none */
        return load_from(&source, ROLE, keys, error);
    }
    for (enum provider i = 0; i < N_PROVIDERS; i++) {
        bool is_meant = profile ? providers[i].of_profile : providers[i].source && strcmp(providers[i].source, named) == 0;
        if (is_meant && is_configured(&source, i))
            return load_from(&source, i, keys, error);
    }
    return fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS",
                profile ? "profile %s has no keys" : "credential_source %s gives no keys",
                text_show(profile ? profile : named));
}

static int load_role(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    const char *role = get(walk, "role_arn");
    struct aws_keys with;
    if (check_role(walk, error) < 0)
        return -1;
    if (load_source(walk, &with, error) < 0)
        return error_prefix(error, "for the role of profile %s", text_show(walk->profile));
    char *form = make_form(walk, "AssumeRole", role, get(walk, "role_session_name"), "ExternalId", get(walk, "external_id"));
    int failed = post_form(walk, role, form, &with, keys, error);
    secret_free(form);
    aws_keys_clear(&with);
    return failed;
}

/* An OpenID token that proves who we are; read anew each time. */
static char *read_identity(const char *path, struct error *error)
{
    size_t length;
    char *token = secret_read_file(path, MAX_TOKEN_BYTES, &length);
    if (!token) {
        fail_errno(error, errno, "web identity token file %s", text_show(path));
        return NULL;
    }
    bool fits = length <= MAX_TOKEN_BYTES;
    while (fits && length && strchr(" \r\n\t", token[length - 1]))
        token[--length] = '\0';
    if (fits && length && strlen(token) == length)
        return token;
    secret_free(token);
    fail(error, ERROR_PERMISSION_DENIED, "BAD_WEB_IDENTITY", "web identity token file %s holds no token", text_show(path));
    return NULL;
}

static int load_identity(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    const char *role = get_environment(walk, "AWS_ROLE_ARN"), *session = get_environment(walk, "AWS_ROLE_SESSION_NAME");
    role = role ? role : get(walk, "role_arn");
    session = session ? session : get(walk, "role_session_name");
    if (!role)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_WEB_IDENTITY",
                    "there is a web identity token file, but neither AWS_ROLE_ARN nor a role_arn");
    char *token = read_identity(identity_file(walk), error);
    if (!token)
        return -1;
    char *form = make_form(walk, "AssumeRoleWithWebIdentity", role, session, "WebIdentityToken", token);
    secret_free(token);
    int failed = post_form(walk, role, form, NULL, keys, error);
    secret_free(form);
    return failed;
}

/* --- the chain --- */

static int load_from(const struct walk *walk, enum provider provider, struct aws_keys *keys, struct error *error)
{
    switch (provider) {
    case ENVIRONMENT:
        return load_environment(keys, error);
    case ROLE:
        return load_role(walk, keys, error);
    case IDENTITY:
        return load_identity(walk, keys, error);
    case SHARED:
    case CONFIG:
        return load_static(walk, provider == SHARED ? AWS_FILE_CREDENTIALS : AWS_FILE_CONFIG, keys, error);
    case PROCESS:
        return aws_process_run(get(walk, "credential_process"), walk->cancel, keys, error) == 0
                   ? 0
                   : error_prefix(error, "profile %s", text_show(walk->profile));
    case SSO:
        return fail(error, ERROR_UNIMPLEMENTED, "SSO_NOT_SUPPORTED",
                    "profile %s signs in by SSO, which is not supported here; give it a credential_process, for example "
                    "\"aws configure export-credentials --profile NAME\"",
                    text_show(walk->profile));
    case CONTAINER:
        return aws_metadata_container(walk->of->http, walk->cancel, keys, error);
    default:
        return aws_metadata_instance(walk->of->http, walk->cancel, keys, error);
    }
}

/* The first that is configured, N_PROVIDERS: none. */
static enum provider find_provider(const struct walk *walk)
{
    enum provider provider = 0;
    while (provider < N_PROVIDERS && !is_configured(walk, provider))
        provider++;
    return provider;
}

/* Instance metadata is the guess when nothing is configured; its failure means there is nothing at all. */
static int fail_nothing(const struct walk *walk, const char *reason, struct error *error)
{
    char cut[400], files[300], owner[ENVIRONMENT_OWNER_CHARS];
    const char *problem = aws_profiles_problem(walk->profiles);
    snprintf(cut, sizeof cut, "%s", reason);
    snprintf(files, sizeof files, "no keys in %s, %s", aws_profiles_path(walk->profiles, AWS_FILE_CONFIG),
             aws_profiles_path(walk->profiles, AWS_FILE_CREDENTIALS));
    fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS",
         "%s has no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY %s, or for a public bucket "
         "sources.s3.anonymous: true. Tried:\n"
         "environment: AWS_ACCESS_KEY_ID is not set\n"
         "profile %.60s: %.300s\n"
         "web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set\n"
         "container: no AWS_CONTAINER_CREDENTIALS_*_URI is set\n"
         "instance: %s",
         environment_owner(owner), environment_remedy(), text_show(walk->profile), problem ? problem : files, cut);
    return environment_note(error, "AWS_ACCESS_KEY_ID AWS_PROFILE AWS_WEB_IDENTITY_TOKEN_FILE AWS_SHARED_CREDENTIALS_FILE");
}

static int load_first(const struct walk *walk, struct aws_keys *keys, struct error *error)
{
    enum provider provider = find_provider(walk);
    if (strcmp(walk->profile, "default") != 0 && !aws_profiles_has(walk->profiles, walk->profile) && provider >= INSTANCE)
        return fail(error, ERROR_PERMISSION_DENIED, "NO_SUCH_PROFILE", "there is no profile %s in %s or %s",
                    text_show(walk->profile), aws_profiles_path(walk->profiles, AWS_FILE_CONFIG),
                    aws_profiles_path(walk->profiles, AWS_FILE_CREDENTIALS));
    if (provider == N_PROVIDERS)
        return fail_nothing(walk, "AWS_EC2_METADATA_DISABLED is set", error);
    if (load_from(walk, provider, keys, error) == 0)
        return 0;
    if (provider != INSTANCE || error->code == ERROR_CANCELLED)
        return error_prefix(error, "keys for S3");
    char reason[ERROR_MESSAGE_CHARS];
    memcpy(reason, error->message, sizeof reason);
    return fail_nothing(walk, reason, error);
}

/* Ended by aws_profiles_destroy() of its profiles. */
static struct walk begin_walk(const struct aws_credentials *of, const struct aws_profiles *profiles,
                              const struct cancel *cancel)
{
    return (struct walk){of, profiles, cancel, of->profile, of->use_environment, 0};
}

/* --- the life of the keys --- */

static int fetch_keys(void *owner, const struct cancel *cancel, void **value, int64_t *expires, struct error *error)
{
    struct aws_profiles *profiles = aws_profiles_load();
    struct aws_keys *keys = memory_alloc(sizeof *keys);
    const struct walk walk = begin_walk(owner, profiles, cancel);
    int failed = load_first(&walk, keys, error);
    aws_profiles_destroy(profiles);
    if (failed) {
        free(keys);
        return -1;
    }
    *value = keys;
    *expires = keys->expires;
    return 0;
}

static void copy_keys(const void *value, void *out)
{
    aws_keys_copy(out, value);
}

static void destroy_keys(void *value)
{
    aws_keys_clear(value);
    free(value);
}

static const struct renewal_rules rules = {
    .what = "keys for S3", .before_s = 600, .fetch = fetch_keys, .copy = copy_keys, .destroy = destroy_keys};

struct aws_credentials *aws_credentials_create(const struct aws_credentials_options *options)
{
    struct aws_credentials *credentials = memory_alloc(sizeof *credentials);
    const char *in_environment = environment_get("AWS_PROFILE");
    if (!in_environment)
        in_environment = environment_get("AWS_DEFAULT_PROFILE");
    bool named = options->profile && *options->profile;
    credentials->http = options->http;
    credentials->profile = memory_copy_text(named ? options->profile : "default");
    credentials->region = memory_copy_text(options->region ? options->region : "");
    credentials->ca_file = options->ca_file;
    credentials->use_environment = !named || (in_environment && strcmp(in_environment, options->profile) == 0);
    credentials->anonymous = options->anonymous;
    renewal_init(&credentials->renewal, &rules, credentials, options->now);
    return credentials;
}

void aws_credentials_destroy(struct aws_credentials *credentials)
{
    if (!credentials)
        return;
    renewal_fini(&credentials->renewal);
    free(credentials->profile);
    free(credentials->region);
    free(credentials);
}

int aws_credentials_get(struct aws_credentials *credentials, const struct cancel *cancel, struct aws_keys *keys,
                        struct error *error)
{
    uint64_t generation;
    *keys = (struct aws_keys){0};
    if (credentials->anonymous)
        return 0;
    if (renewal_get(&credentials->renewal, cancel, keys, &generation, error) < 0)
        return -1;
    keys->generation = generation;
    return 0;
}

void aws_credentials_refused(struct aws_credentials *credentials, uint64_t generation)
{
    renewal_refuse(&credentials->renewal, generation);
}

bool aws_credentials_of_instance(const struct aws_credentials *credentials)
{
    struct aws_profiles *profiles = aws_profiles_load();
    const struct walk walk = begin_walk(credentials, profiles, NULL);
    bool is_of_instance = !credentials->anonymous && find_provider(&walk) == INSTANCE;
    aws_profiles_destroy(profiles);
    return is_of_instance;
}

void aws_credentials_describe(struct aws_credentials *credentials, char text[AWS_DESCRIBE_CHARS])
{
    struct aws_profiles *profiles = aws_profiles_load();
    const struct walk walk = begin_walk(credentials, profiles, NULL);
    enum provider provider = find_provider(&walk);
    snprintf(text, AWS_DESCRIBE_CHARS, credentials->anonymous ? "anonymous" : "none");
    const char *label = provider < N_PROVIDERS && !credentials->anonymous ? providers[provider].label : "";
    for (size_t length = 0; *label && length < AWS_DESCRIBE_CHARS; label++) {
        const char *part = NULL;
        if (*label == '$')
            switch (*++label) {
            case 'P':
                part = walk.profile;
                break;
            case 'R':
                part = get(&walk, "role_arn");
                break;
            case 'I':
                part = identity_file(&walk);
                break;
            default:
                part = aws_profiles_path(profiles, *label == 'C' ? AWS_FILE_CONFIG : AWS_FILE_CREDENTIALS);
            }
        length += (size_t)snprintf(text + length, AWS_DESCRIBE_CHARS - length, "%.100s",
                                   part ? text_show(part) : (const char[]){*label, '\0'});
    }
    aws_profiles_destroy(profiles);
}
