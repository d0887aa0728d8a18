/* URLs of http and https: the one parser for what is compared, signed and connected to.
 *
 * It is strict: whatever programs are known to read differently is refused, not guessed - user information, backslashes,
 * control characters, percent signs or letters beyond ASCII in a host, a dot at its end, ports that are none, addresses in
 * other forms than 10.1.2.3 and [fe80::1]. So two programs cannot disagree about which host a URL that was accepted names.
 * Path and query are never rewritten: what a server signed stays as it is. Pure; any thread. */
#ifndef BASE_URL_H
#define BASE_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/error.h"

enum {
    URL_HOST_CHARS = 256,                                   /* 253 of a name, and the NUL */
    URL_AUTHORITY_CHARS = URL_HOST_CHARS + sizeof ":65535", /* also of an origin, less its scheme */
    URL_ORIGIN_CHARS = URL_AUTHORITY_CHARS + sizeof "https://",
};

struct url { /* `path` and `query` point into the text that was parsed */
    bool is_secure;
    char host[URL_HOST_CHARS]; /* in lower case; an IPv6 address in brackets, in its shortest form */
    uint16_t port;             /* the scheme's own when none is given */
    bool has_address;          /* the host is no name */
    struct address address;
    const char *path, *query; /* "/a/b" or empty; "?c=d" or empty. Neither ends with a NUL: see the lengths */
    size_t path_length, query_length;
};

/* INVALID_ARGUMENT, BAD_URL. A fragment is left out. */
int url_parse(const char *text, struct url *url, struct error *error);

/* "https://host:443", with the port whatever it is. Returns `origin`. */
const char *url_origin(const struct url *url, char origin[URL_ORIGIN_CHARS]);
/* "host:8443", without the scheme's own port: the Host of a request. Returns `authority`. */
const char *url_authority(const struct url *url, char authority[URL_AUTHORITY_CHARS]);
/* The whole, in the form in which it is sent to a server or given to a library; malloced. */
char *url_print(const struct url *url);
/* What a request asks for: path and query, "/" for none; malloced. */
char *url_target(const struct url *url);

bool url_same_origin(const struct url *a, const struct url *b); /* scheme, host and port */
bool url_is_same_origin(const char *a, const char *b);          /* of texts; false when either is no good URL */
/* Its host is a loopback address or "localhost", which no resolver is asked for. */
bool url_is_this_host(const struct url *url);

/* A Location: or Link: of the answer from `base` (a good URL) as an absolute URL; malloced, NULL = INVALID_ARGUMENT,
 * BAD_URL. Spaces and bytes beyond ASCII behind the host are percent-encoded, the fragment is cut off. */
char *url_resolve(const char *base, const char *location, struct error *error);
/* The RFC 3986 encoding of `bytes`: all but A-Za-z0-9-._~, and / when keep_slashes; malloced. */
char *url_encode(const char *bytes, size_t count, bool keep_slashes);
/* Text of a user as part of a URL: what may not stand in one raw is percent-encoded, what is encoded already stays. */
char *url_tidy(const char *text, size_t length);

#endif
