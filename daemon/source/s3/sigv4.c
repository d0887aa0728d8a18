/* The four steps of the specification: canonical request, its digest in a string to sign, a key derived from the secret for
 * day, region and service, the HMAC of the one with the other. */
#include "source/s3/sigv4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "base/memory.h"
#include "base/signature.h"
#include "base/url.h"
#include "source/secret.h"

struct text { /* a piece of the caller's string */
    const char *start;
    size_t length;
};

/* "" of what is no good URL, to which nothing is sent. */
static struct url parse_signed_url(const char *text)
{
    struct url url;
    struct error ignored;
    if (url_parse(text, &url, &ignored) < 0)
        url.path = url.query = "";
    return url;
}

static int compare_text(const struct text *a, const struct text *b)
{
    size_t shorter = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->start, b->start, shorter);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* --- query --- */

struct parameter {
    struct text name, value;
};

static int compare_parameters(const void *a, const void *b)
{
    const struct parameter *x = a, *y = b;
    int order = compare_text(&x->name, &y->name);
    return order ? order : compare_text(&x->value, &y->value);
}

/* "b=2&a" -> "a=&b=2" */
static void write_query(FILE *out, const char *query, size_t query_length)
{
    struct parameter *parameters = NULL;
    size_t n = 0, capacity = 0;
    for (const char *at = query, *end = query + query_length; at < end;) {
        const char *mark = memchr(at, '&', (size_t)(end - at));
        size_t length = (size_t)((mark ? mark : end) - at);
        if (length) {
            const char *equals = memchr(at, '=', length);
            size_t name = equals ? (size_t)(equals - at) : length, value_at = equals ? name + 1 : length;
            ARRAY_RESERVE(parameters, n, capacity);
            parameters[n++] = (struct parameter){{at, name}, {at + value_at, length - value_at}};
        }
        at += length + (mark != NULL);
    }
    if (n)
        qsort(parameters, n, sizeof *parameters, compare_parameters);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%.*s=%.*s", i ? "&" : "", (int)parameters[i].name.length, parameters[i].name.start,
                (int)parameters[i].value.length, parameters[i].value.start);
    free(parameters);
}

/* --- headers --- */

static int compare_headers(const void *a, const void *b)
{
    return strcmp(((const struct http_header *)a)->name, ((const struct http_header *)b)->name);
}

/* Without white space at its ends, and one space for several within. */
static void write_value(FILE *out, const char *value)
{
    bool in_space = true, any = false;
    for (; *value; value++) {
        bool is_space = *value == ' ' || *value == '\t';
        if (!is_space) {
            if (in_space && any)
                fputc(' ', out);
            fputc(*value, out);
            any = true;
        }
        in_space = is_space;
    }
}

/* --- the steps --- */

static void derive_key(const struct sigv4_key *key, const char *day, unsigned char derived[DIGEST_BYTES])
{
    const char *const parts[] = {day, key->region, key->service, "aws4_request"};
    char *secret = memory_print("AWS4%s", key->secret_key);
    signature_hmac_sha256(secret, strlen(secret), parts[0], strlen(parts[0]), derived);
    secret_free(secret);
    for (size_t i = 1; i < sizeof parts / sizeof parts[0]; i++) {
        unsigned char next[DIGEST_BYTES];
        signature_hmac_sha256(derived, DIGEST_BYTES, parts[i], strlen(parts[i]), next);
        memcpy(derived, next, DIGEST_BYTES);
    }
}

void sigv4_sign(const struct sigv4_key *key, const struct sigv4_request *request, struct sigv4_signature *signature)
{
    unsigned char derived[DIGEST_BYTES], sum[DIGEST_BYTES];
    char hex[DIGEST_HEX_CHARS + 1], day[9], host[URL_AUTHORITY_CHARS], *canonical, *names = memory_copy_text("");
    time_t seconds = (time_t)request->unix_time;
    size_t length, n_headers = request->n_headers;
    struct tm utc;
    if (!gmtime_r(&seconds, &utc) || strftime(signature->date, SIGV4_DATE_CHARS, "%Y%m%dT%H%M%SZ", &utc) == 0)
        memcpy(signature->date, "19700101T000000Z", SIGV4_DATE_CHARS);
    snprintf(day, sizeof day, "%.8s", signature->date);

    struct url url = parse_signed_url(request->url);
    bool has_query = url.query_length > 0; /* and a question mark before it */
    struct http_header *headers = memory_alloc_array(n_headers + 3, sizeof *headers);
    for (size_t i = 0; i < n_headers; i++)
        headers[i] = request->headers[i];
    url_authority(&url, host);
    headers[n_headers++] = (struct http_header){"host", host};
    headers[n_headers++] = (struct http_header){"x-amz-date", signature->date};
    if (key->session_token && *key->session_token)
        headers[n_headers++] = (struct http_header){"x-amz-security-token", key->session_token};
    qsort(headers, n_headers, sizeof *headers, compare_headers);

    FILE *out = memory_stream(&canonical, &length);
    fprintf(out, "%s\n%.*s\n", request->method, url.path_length ? (int)url.path_length : 1,
            url.path_length ? url.path : "/");
    write_query(out, url.query + has_query, url.query_length - has_query);
    fputc('\n', out);
    for (size_t i = 0; i < n_headers; i++) {
        char *longer = memory_print("%s%s%s", names, i ? ";" : "", headers[i].name);
        free(names);
        names = longer;
        fprintf(out, "%s:", headers[i].name);
        write_value(out, headers[i].value);
        fputc('\n', out);
    }
    fprintf(out, "\n%s\n%s", names, request->payload_hash);
    fclose(out);

    struct digest *digest = digest_create();
    digest_add(digest, canonical, length);
    digest_finish(digest, sum);
    digest_hex(sum, sizeof sum, hex);
    char *scope = memory_print("%s/%s/%s/aws4_request", day, key->region, key->service);
    char *to_sign = memory_print("AWS4-HMAC-SHA256\n%s\n%s\n%s", signature->date, scope, hex);
    derive_key(key, day, derived);
    signature_hmac_sha256(derived, sizeof derived, to_sign, strlen(to_sign), sum);
    signature_wipe(derived, sizeof derived);
    digest_hex(sum, sizeof sum, hex);
    signature->authorization = memory_print("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                                            key->access_key, scope, names, hex);
    free(canonical);
    free(names);
    free(scope);
    free(to_sign);
    free(headers);
}
