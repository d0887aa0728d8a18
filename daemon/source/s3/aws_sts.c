/* A form by POST, an XML document back. The form holds secrets, so it is never part of a message. */
#include "source/s3/aws_sts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "base/memory.h"
#include "base/signature.h"
#include "base/text.h"
#include "base/url.h"
#include "source/s3/sigv4.h"
#include "source/secret.h"

enum { MAX_TOKEN_BYTES = 32 << 10, MAX_ANSWER_BYTES = 256 << 10, TIMEOUT_MS = 30000 };

/* --- the form --- */

struct form {
    char *text;
    size_t length;
    FILE *out;
};

static void form_open(struct form *form, const char *action)
{
    form->out = open_memstream(&form->text, &form->length);
    if (!form->out)
        abort();
    fprintf(form->out, "Action=%s&Version=2011-06-15", action);
}

static void form_add(struct form *form, const char *name, const char *value)
{
    if (!value)
        return;
    char *encoded = url_encode(value, strlen(value), false);
    fprintf(form->out, "&%s=%s", name, encoded);
    secret_free(encoded);
}

static void form_add_role(struct form *form, const struct aws_role *role)
{
    form_add(form, "RoleArn", role->arn);
    form_add(form, "RoleSessionName", role->session_name ? role->session_name : "tensorcast");
    form_add(form, "DurationSeconds", role->duration_seconds);
}

static void form_close(struct form *form)
{
    if (fclose(form->out) != 0)
        abort();
}

/* --- the call --- */

static char *endpoint_url(const struct aws_sts *sts)
{
    if (sts->endpoint && *sts->endpoint) {
        size_t length = strlen(sts->endpoint);
        return memory_print("%s%s", sts->endpoint, sts->endpoint[length - 1] == '/' ? "" : "/");
    }
    if (!sts->region || !*sts->region)
        return memory_copy_text("https://sts.amazonaws.com/");
    return memory_print("https://sts.%s.amazonaws.com%s/", sts->region, strncmp(sts->region, "cn-", 3) == 0 ? ".cn" : "");
}

static int fail_answer(const struct http_reply *reply, const struct aws_role *role, struct error *error)
{
    struct aws_error said;
    char arn[TEXT_NAME_CHARS], code[TEXT_NAME_CHARS] = "", message[TEXT_NAME_CHARS] = "";
    if (aws_error_parse(reply->body, reply->body_bytes, &said)) {
        text_escape(said.code, strlen(said.code), code);
        text_escape(said.message ? said.message : "", said.message ? strlen(said.message) : 0, message);
    }
    aws_error_clear(&said);
    text_escape(role->arn, strlen(role->arn), arn);
    return fail(error, reply->head.status >= 500 ? ERROR_UNAVAILABLE : ERROR_PERMISSION_DENIED, "ASSUME_ROLE_FAILED",
                "STS refused the role %s: HTTP %d %s %s", arn, reply->head.status, code, message);
}

static int prepare_form(void *data, struct http_attempt *attempt, struct error *error)
{
    const struct aws_sts *sts = data;
    (void)error;
    http_attempt_set_ca_file(attempt, sts->ca_file);
    return 0;
}

/* call: where to, its headers and body. */
static int post_form(const struct aws_sts *sts, const struct aws_role *role, struct http_call call, struct aws_keys *keys,
                     struct error *error)
{
    struct http_reply reply = {0};
    struct aws_sts data = *sts;
    const struct http_store store = {.prepare = prepare_form, .data = &data};
    call.store = &store;
    call.method = "POST";
    call.max_reply_bytes = MAX_ANSWER_BYTES;
    call.accept_any_status = true;
    call.timeout_ms = TIMEOUT_MS;
    call.cancel = sts->cancel;
    if (http_fetch(sts->http, &call, &reply, error) < 0)
        return error_prefix(error, "STS");
    int failed = reply.head.status == 200 ? aws_keys_parse_xml(reply.body, reply.body_bytes, keys, error)
                                          : fail_answer(&reply, role, error);
    signature_wipe(reply.body, reply.body_bytes);
    http_reply_clear(&reply);
    return failed;
}

#define FORM_TYPE "application/x-www-form-urlencoded"

static int post_signed(const struct aws_sts *sts, const struct aws_role *role, const struct form *form,
                       const struct aws_keys *with, struct aws_keys *keys, struct error *error)
{
    unsigned char sum[DIGEST_BYTES];
    char hex[DIGEST_HEX_CHARS + 1], *url = endpoint_url(sts);
    struct digest *digest = digest_create();
    digest_add(digest, form->text, form->length);
    digest_finish(digest, sum);
    digest_hex(sum, sizeof sum, hex);
    const struct http_header type = {"content-type", FORM_TYPE};
    const struct sigv4_key key = {with->access_key, with->secret_key, with->session_token,
                                  sts->region && *sts->region ? sts->region : "us-east-1", "sts"};
    const struct sigv4_request request = {.method = "POST",
                                          .url = url,
                                          .headers = &type,
                                          .n_headers = 1,
                                          .payload_hash = hex,
                                          .unix_time = (int64_t)time(NULL)};
    struct sigv4_signature signature;
    sigv4_sign(&key, &request, &signature);
    const struct http_header headers[] = {{"Content-Type", FORM_TYPE},
                                          {"X-Amz-Date", signature.date},
                                          {"Authorization", signature.authorization},
                                          {"X-Amz-Security-Token", with->session_token}};
    const struct http_call call = {.url = url,
                                   .headers = headers,
                                   .n_headers = with->session_token ? 4 : 3,
                                   .body = form->text,
                                   .body_bytes = form->length};
    int failed = post_form(sts, role, call, keys, error);
    free(signature.authorization);
    free(url);
    return failed;
}

int aws_sts_assume_role(const struct aws_sts *sts, const struct aws_role *role, const struct aws_keys *with,
                        struct aws_keys *keys, struct error *error)
{
    struct form form;
    form_open(&form, "AssumeRole");
    form_add_role(&form, role);
    form_add(&form, "ExternalId", role->external_id);
    form_close(&form);
    int failed = post_signed(sts, role, &form, with, keys, error);
    secret_free(form.text);
    return failed;
}

/* --- web identity --- */

static int read_identity(const char *path, char **token, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    size_t length;
    *token = secret_read_file(path, MAX_TOKEN_BYTES, &length);
    if (!*token)
        return fail_errno(error, errno, "web identity token file %s", text_escape(path, strlen(path), text));
    bool fits = length <= MAX_TOKEN_BYTES;
    while (fits && length && strchr(" \r\n\t", (*token)[length - 1]))
        (*token)[--length] = '\0';
    if (fits && length && strlen(*token) == length)
        return 0;
    secret_free(*token);
    return fail(error, ERROR_PERMISSION_DENIED, "BAD_WEB_IDENTITY", "web identity token file %s holds no token",
                text_escape(path, strlen(path), text));
}

int aws_sts_assume_role_with_web_identity(const struct aws_sts *sts, const struct aws_role *role, const char *token_file,
                                          struct aws_keys *keys, struct error *error)
{
    static const struct http_header type = {"Content-Type", FORM_TYPE};
    struct form form;
    char *token = NULL;
    if (read_identity(token_file, &token, error) < 0)
        return -1;
    form_open(&form, "AssumeRoleWithWebIdentity");
    form_add_role(&form, role);
    form_add(&form, "WebIdentityToken", token);
    form_close(&form);
    secret_free(token);
    char *url = endpoint_url(sts);
    const struct http_call call = {
        .url = url, .headers = &type, .n_headers = 1, .body = form.text, .body_bytes = form.length};
    int failed = post_form(sts, role, call, keys, error);
    free(url);
    secret_free(form.text);
    return failed;
}
