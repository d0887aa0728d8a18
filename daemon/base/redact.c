/* Textual, with no idea of a good URL: secrets are mostly found in bad ones. */
#include "base/redact.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

/* What programs have been seen to take for a slash, or to skip. */
static const char slashes[] = "/\\ \t\r\n\v\f";

/* "host:8443", "[::1]", a bucket: not "user:password", nor anything percent-encoded. */
static bool is_plain_authority(const char *authority, size_t length)
{
    const char *bracket = memchr(authority, ']', length), *end = authority + length;
    const char *colon = memchr(bracket ? bracket : authority, ':', bracket ? (size_t)(end - bracket) : length);
    if (memchr(authority, '%', length))
        return false;
    return !colon || colon + 1 + strspn(colon + 1, "0123456789") >= end;
}

/* Of what may be shown: up to the query or the fragment, also where its mark is encoded. */
static size_t open_length(const char *path)
{
    size_t length = strcspn(path, "?#");
    for (size_t i = 0; i < length; i++) {
        if (path[i] == '%' && (strncasecmp(path + i, "%3f", 3) == 0 || strncmp(path + i, "%23", 3) == 0))
            return i;
    }
    return length;
}

static const char *rest_of(const char *path)
{
    return *path == '#' ? "#..." : *path ? "?..." : "";
}

const char *redact_show(const char *text)
{
    static __thread char texts[4][REDACT_CHARS];
    static __thread unsigned n_shown;
    char *shown = texts[n_shown++ % 4];
    redact(text, shown, REDACT_CHARS);
    return shown;
}

char *redact_copy(const char *text)
{
    if (strncmp(text, "disk:", 5) == 0 || strncmp(text, "memory:", 7) == 0)
        return memory_copy_text(text);
    const char *start = text + strspn(text, slashes), *scheme_end = start;
    while (isalnum((unsigned char)*scheme_end) || (scheme_end > start && *scheme_end && strchr("+-.", *scheme_end)))
        scheme_end++;
    scheme_end = scheme_end > start && *scheme_end == ':' ? scheme_end + 1 : start;
    const char *authority = scheme_end + strspn(scheme_end, slashes);
    if (authority == scheme_end && isdigit((unsigned char)*authority)) /* "proxy:3128" */
        authority = start;
    size_t n = strcspn(authority, "/?#");
    const char *user_end = memrchr(authority, '@', n);
    /* "hf://org@revision": the only '@' before the path that is no end of a user's name - unless it holds a password, or is
     * a token by its looks */
    bool is_hub =
        user_end && strncmp(text, "hf:", 3) == 0 && !memchr(authority, ':', n) && strncmp(authority, "hf_", 3) != 0;
    if (!user_end && !is_plain_authority(authority, n)) /* as in "u:pa/ss@host", a slash is part of the password */
        user_end = strrchr(authority, '@');
    const char *from = user_end && !is_hub ? user_end + 1 : authority, *path = from + strcspn(from, "/?#");
    bool is_hidden = !is_hub && !is_plain_authority(from, (size_t)(path - from));
    /* "user:pw@proxy:3128" begins as "scheme:" does */
    bool is_user = from != authority && authority == scheme_end;
    char *shown;
    size_t length;
    FILE *out = memory_stream(&shown, &length);
    fprintf(out, "%.*s", is_user ? 0 : (int)(authority - text), text);
    fprintf(out, "%.*s", is_hidden ? 3 : (int)(path - from), is_hidden ? "..." : from);
    /* from a URL within the URL user information is cut out, too; what follows that is looked at anew */
    for (const char *next; (next = memmem(path, open_length(path), "//", 2)); path = next) {
        next += strspn(next, slashes);
        fprintf(out, "%.*s", (int)(next - path), path);
        const char *at = memrchr(next, '@', strcspn(next, "/?#"));
        next = at ? at + 1 : next;
    }
    fprintf(out, "%.*s%s", (int)open_length(path), path, rest_of(path + open_length(path)));
    if (fclose(out) != 0)
        abort();
    return shown;
}

const char *redact_name(const char *name, char shown[TEXT_NAME_CHARS])
{
    size_t length = open_length(name);
    char *cut = memory_print("%.*s%s", (int)length, name, rest_of(name + length));
    text_escape(cut, strlen(cut), shown);
    free(cut);
    return shown;
}

void redact(const char *text, char *shown, size_t room)
{
    char *copy = redact_copy(text);
    size_t length = strlen(copy);
    for (size_t i = 0; i < length; i++)
        copy[i] = copy[i] > ' ' && copy[i] < 0x7f ? copy[i] : '_';
    if (room > 0) {
        length = length < room ? length : room - 1;
        memcpy(shown, copy, length);
        shown[length] = '\0';
    }
    free(copy);
}
