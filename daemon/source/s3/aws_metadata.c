/* Instance metadata takes a token by PUT first; a service that refuses it is not asked in version 1, whose answers can be
 * had by any request forgery. The container's endpoint may be any https:// URL but plain http:// only to local addresses:
 * it is sent an authorization token. */
#include "source/s3/aws_metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/url.h"
#include "source/environment.h"
#include "source/secret.h"

enum { MAX_ANSWER_BYTES = 64 << 10, CONTAINER_TIMEOUT_MS = 6000, CONTAINER_TRIES = 3, MAX_TOKEN_CHARS = 16384 };
/* Elsewhere than on EC2 no server answers, so the time is short; a service that is busy answers at once and is asked again. */
enum { INSTANCE_TIMEOUT_MS = 2000, INSTANCE_TRIES = 3 };

static uint64_t number(const char *name, uint64_t max, uint64_t fallback)
{
    const char *text = environment_get(name);
    char *end;
    unsigned long long value = text ? strtoull(text, &end, 10) : 0;
    return text && !*end && value > 0 && value <= max ? value : fallback;
}

/* --- container --- */

static int check_container_url(const char *url, struct error *error)
{
    static const char *const local[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    struct url parts;
    struct error ignored;
    if (url_parse(url, &parts, &ignored) == 0 &&
        (parts.is_secure || text_is_one_of(parts.host, local, sizeof local / sizeof local[0]) || url_is_this_host(&parts)))
        return 0;
    return fail(error, ERROR_PERMISSION_DENIED, "BAD_CONTAINER_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is %s; it must be https:// or lead to this machine", redact_show(url));
}

static int get_token(char **token, struct error *error)
{
    const char *file = environment_get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *value = environment_get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    size_t length;
    *token = file ? secret_read_file(file, MAX_TOKEN_CHARS, &length) : NULL; /* a longer one is seen to be longer */
    if (*token)
        (*token)[strcspn(*token, "\r\n")] = '\0'; /* one line, without its end */
    if (file && (!*token || !**token || strlen(*token) > MAX_TOKEN_CHARS))
        return fail(error, ERROR_PERMISSION_DENIED, "NO_CONTAINER_TOKEN",
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %s holds no token of at most %d characters", text_show(file),
                    MAX_TOKEN_CHARS);
    if (file)
        return 0;
    if (value && strpbrk(value, "\r\n"))
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_CONTAINER_TOKEN",
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN holds more than one line");
    *token = memory_copy_text(value);
    return 0;
}

static int ask_container(struct http_engine *http, const char *url, const char *token, const struct cancel *cancel,
                         struct aws_keys *keys, struct error *error)
{
    const struct http_header headers[] = {{"Accept", "application/json"}, {"Authorization", token}};
    const struct http_call call = {.url = url,
                                   .headers = headers,
                                   .n_headers = token ? 2 : 1,
                                   .max_reply_bytes = MAX_ANSWER_BYTES,
                                   .no_proxy = true,
                                   .timeout_ms = CONTAINER_TIMEOUT_MS,
                                   .max_tries = CONTAINER_TRIES,
                                   .cancel = cancel};
    struct http_reply reply = {0};
    int failed = http_fetch(http, &call, &reply, error);
    if (!failed)
        failed = aws_keys_parse_json(reply.body, reply.body_bytes, keys, error);
    http_reply_clear(&reply);
    return failed ? error_prefix(error, "the container's credentials endpoint") : 0;
}

int aws_metadata_container(struct http_engine *http, const struct cancel *cancel, struct aws_keys *keys, struct error *error)
{
    const char *relative = environment_get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = environment_get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!relative && !full)
        return fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS",
                    "neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set");
    char *token = NULL, *url = relative ? memory_print("http://169.254.170.2%s", relative) : memory_copy_text(full);
    int failed = check_container_url(url, error);
    if (!failed)
        failed = get_token(&token, error);
    if (!failed)
        failed = ask_container(http, url, token, cancel, keys, error);
    secret_free(token);
    free(url);
    return failed;
}

/* --- instance --- */

bool aws_metadata_instance_allowed(void)
{
    const char *disabled = environment_get("AWS_EC2_METADATA_DISABLED");
    return !disabled || strcasecmp(disabled, "true") != 0;
}

static int ask_instance(struct http_engine *http, const char *method, const char *path, const struct http_header *header,
                        const struct cancel *cancel, struct http_reply *reply, struct error *error)
{
    const char *endpoint = environment_get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = environment_get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    if (!endpoint)
        endpoint = mode && strcasecmp(mode, "ipv6") == 0 ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
    size_t length = strlen(endpoint);
    char *url = memory_print("%.*s/%s", (int)(length - (endpoint[length - 1] == '/')), endpoint, path);
    uint64_t tries = number("AWS_METADATA_SERVICE_NUM_ATTEMPTS", 100, 1);
    const struct http_call call = {.method = method,
                                   .url = url,
                                   .headers = header,
                                   .n_headers = 1,
                                   .max_reply_bytes = MAX_ANSWER_BYTES,
                                   .no_proxy = true,
                                   .timeout_ms =
                                       INSTANCE_TIMEOUT_MS * tries * number("AWS_METADATA_SERVICE_TIMEOUT", 3600, 1),
                                   .max_tries = (uint32_t)tries * INSTANCE_TRIES,
                                   .cancel = cancel};
    int failed = http_fetch(http, &call, reply, error);
    free(url);
    return failed ? error_prefix(error, "the instance metadata service") : 0;
}

static int get_session(struct http_engine *http, const struct cancel *cancel, char **session, struct error *error)
{
    const struct http_header lifetime = {"x-aws-ec2-metadata-token-ttl-seconds", "21600"};
    struct http_reply reply = {0};
    int failed = ask_instance(http, "PUT", "latest/api/token", &lifetime, cancel, &reply, error);
    bool usable = !failed && reply.body_bytes && !strpbrk(reply.body, "\r\n");
    *session = usable ? memory_copy_text(reply.body) : NULL;
    http_reply_clear(&reply);
    if (usable)
        return 0;
    if (!failed)
        fail(error, ERROR_UNAVAILABLE, "NO_INSTANCE_METADATA", "the instance metadata service gave no token");
    char reason[ERROR_MESSAGE_CHARS];
    snprintf(reason, sizeof reason, "%.700s", error->message);
    return fail(error, ERROR_PERMISSION_DENIED, "NO_INSTANCE_METADATA",
                "%s (in a container on EC2 the hop limit must be 2 or more: aws ec2 modify-instance-metadata-options "
                "--http-put-response-hop-limit 2)",
                reason);
}

/* A short text, a name of something, that becomes part of a URL. */
static int get_name(struct http_engine *http, const char *session, const char *path, const struct cancel *cancel,
                    char **name, struct error *error)
{
    const struct http_header header = {"x-aws-ec2-metadata-token", session};
    struct http_reply reply = {0};
    *name = NULL;
    int failed = ask_instance(http, "GET", path, &header, cancel, &reply, error);
    size_t length = failed ? 0 : strcspn(reply.body, "\r\n");
    if (!failed && (!length || length > 256))
        failed = fail(error, ERROR_UNAVAILABLE, "NO_INSTANCE_METADATA", "the instance metadata service gave no name");
    if (!failed)
        *name = memory_print("%.*s", (int)length, reply.body);
    http_reply_clear(&reply);
    return failed;
}

int aws_metadata_instance(struct http_engine *http, const struct cancel *cancel, struct aws_keys *keys, struct error *error)
{
    char *session = NULL, *role = NULL;
    int failed = get_session(http, cancel, &session, error);
    if (!failed)
        failed = get_name(http, session, "latest/meta-data/iam/security-credentials/", cancel, &role, error);
    if (!failed) {
        const struct http_header header = {"x-aws-ec2-metadata-token", session};
        struct http_reply reply = {0};
        char *encoded = url_encode(role, strlen(role), false);
        char *path = memory_print("latest/meta-data/iam/security-credentials/%s", encoded);
        failed = ask_instance(http, "GET", path, &header, cancel, &reply, error);
        if (!failed && aws_keys_parse_json(reply.body, reply.body_bytes, keys, error) < 0)
            failed = error_prefix(error, "the instance metadata service");
        http_reply_clear(&reply);
        free(path);
        free(encoded);
    }
    free(session);
    free(role);
    return failed;
}

int aws_metadata_region(struct http_engine *http, const struct cancel *cancel, char **region, struct error *error)
{
    char *session = NULL;
    *region = NULL;
    int failed = get_session(http, cancel, &session, error);
    if (!failed)
        failed = get_name(http, session, "latest/meta-data/placement/region", cancel, region, error);
    free(session);
    return failed;
}
