/* Paths are cleaned as text only where that cannot change what they mean: "//", "/./" and trailing "/" go, ".." only where
 * nothing but the working folder, which has no links in it, stands before. "a/../b" may be anything when `a` is a link. */
#include "base/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"

static const char *fail_reference(const char *text, const char *complaint, struct error *error)
{
    char *shown = redact_copy(text), name[TEXT_NAME_CHARS];
    fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "%s: %s", text_escape(shown, strlen(shown), name), complaint);
    free(shown);
    return NULL;
}

static const char *suggest(const char *text, const char *why, const char *better, struct error *error)
{
    char *shown = redact_copy(better), name[TEXT_NAME_CHARS], complaint[2 * TEXT_NAME_CHARS];
    snprintf(complaint, sizeof complaint, "%s; did you mean %s?", why, text_escape(shown, strlen(shown), name));
    free(shown);
    return fail_reference(text, complaint, error);
}

static char *concatenate(struct arena *arena, const char *a, size_t a_length, const char *b)
{
    size_t b_length = strlen(b);
    char *joined = arena_alloc(arena, a_length + b_length + 1);
    memcpy(joined, a, a_length);
    memcpy(joined + a_length, b, b_length + 1);
    return joined;
}

/* --- paths --- */

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool reference_is_relative(const char *text)
{
    return begins(text, "./") || begins(text, "../") || strcmp(text, ".") == 0 || strcmp(text, "..") == 0;
}

static bool is_dots(const char *name, size_t length, size_t n_dots)
{
    return length == n_dots && strncmp(name, "..", n_dots) == 0;
}

/* is_plain: there is no link in `folder`, so that ".." right behind it is its parent. */
static const char *absolute(const char *folder, bool is_plain, const char *rest, struct arena *arena)
{
    static const char scheme[] = "disk:";
    size_t start = sizeof scheme - 1, length = start;
    char *path = arena_alloc(arena, start + strlen(folder) + strlen(rest) + 3);
    memcpy(path, scheme, start);
    for (int part = 0; part < 2; part++)
        for (const char *at = part ? rest : folder; at[strspn(at, "/")];) {
            const char *name = at + strspn(at, "/");
            size_t n = strcspn(name, "/");
            at = name + n;
            if (is_dots(name, n, 1))
                continue;
            if (part && is_plain && is_dots(name, n, 2)) {
                while (length > start && path[--length] != '/')
                    continue;
                continue;
            }
            is_plain = is_plain && part == 0;
            path[length++] = '/';
            memcpy(path + length, name, n);
            length += n;
        }
    if (length == start)
        path[length++] = '/';
    path[length] = '\0';
    return path;
}

static const char *take_path(const char *text, const char *path, const struct reference_base *base, struct arena *arena,
                             struct error *error)
{
    bool is_home = path[0] == '~';
    const char *folder = path[0] == '/' ? "" : is_home ? base->home : base->folder;
    if (!text_is_utf8(path, strlen(path)))
        return fail_reference(text, "the path is not UTF-8, which references are", error);
    if (!folder || (path[0] != '/' && folder[0] != '/'))
        return fail_reference(
            text, is_home ? "there is no home directory (HOME); write an absolute path" : "the path has to be absolute",
            error);
    if (!text_is_utf8(folder, strlen(folder)))
        return fail_reference(text, "the folder that it is in has a name that is not UTF-8, which references are", error);
    return absolute(folder, !is_home, path + is_home, arena);
}

/* --- file:// --- */

/* RFC 8089: also "file:/PATH". */
static const char *take_file_url(const char *text, struct arena *arena, struct error *error)
{
    static const struct reference_base nowhere = {0};
    const char *rest = text + strlen("file:");
    if (begins(rest, "//")) {
        size_t host = strcspn(rest + 2, "/");
        if (host && !(host == strlen("localhost") && strncasecmp(rest + 2, "localhost", host) == 0))
            return fail_reference(text, "a file: URL with a host means another machine; write file:///PATH", error);
        rest += 2 + host;
    }
    if (rest[0] != '/')
        return fail_reference(text, "a file: URL has an absolute path: file:///PATH", error);
    char *path = arena_text(arena, rest, strlen(rest));
    if (!text_percent_decode(path))
        return fail_reference(text, "in a file: URL % is followed by two hexadecimal digits that are not 00", error);
    return take_path(text, path, &nowhere, arena, error);
}

/* --- what was meant --- */

static size_t name_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
}

/* Behind /OWNER/NAME of the hub's pages. What it says of a revision, as "@REV" with the folder of a /tree/. */
static const char *hub_revision(const char *rest, struct arena *arena)
{
    static const char *const kinds[] = {"/tree/", "/resolve/", "/blob/", "/raw/"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!begins(rest, kinds[i]))
            continue;
        const char *revision = rest + strlen(kinds[i]);
        size_t length = begins(revision, "refs/pr/") ? strlen("refs/pr/") : 0;
        length += strcspn(revision + length, "/?#");
        size_t whole = i == 0 ? strcspn(revision, "?#") : length;
        while (whole > length && revision[whole - 1] == '/')
            whole--;
        return length ? concatenate(arena, "@", 1, arena_text(arena, revision, whole)) : "";
    }
    return "";
}

/* "hf://OWNER/NAME@REV" for a page of the hub; NULL: it is none. */
static const char *hub_reference(const char *text, struct arena *arena)
{
    static const char *const hosts[] = {"huggingface.co", "www.huggingface.co", "hf.co"};
    static const char *const pages[] = {"api", "datasets", "docs", "spaces"}; /* no repository of a model is below them */
    const char *host = strstr(text, "://");
    if (host && strncasecmp(text, "http", 4) != 0)
        return NULL;
    host = host ? host + 3 : text;
    size_t length = strcspn(host, "/?#");
    bool is_hub = false;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        is_hub = is_hub || (strlen(hosts[i]) == length && strncasecmp(host, hosts[i], length) == 0);
    const char *owner = host + length + 1;
    if (!is_hub || host[length] != '/' || !name_length(owner))
        return NULL;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (strlen(pages[i]) == name_length(owner) && begins(owner, pages[i]))
            return NULL;
    const char *end = owner + name_length(owner);
    if (*end == '/' && name_length(end + 1))
        end += 1 + name_length(end + 1);
    const char *name = concatenate(arena, "hf://", strlen("hf://"), arena_text(arena, owner, (size_t)(end - owner)));
    return concatenate(arena, name, strlen(name), hub_revision(end, arena));
}

static const char *const schemes[] = {"disk", "gs", "s3", "hf", "https", "http", "file"};

/* Names that others have for the same. */
static const struct {
    const char *word, *scheme;
} aliases[] = {{"gcs", "gs"}, {"s3a", "s3"}, {"s3n", "s3"}, {"huggingface", "hf"}, {"hub", "hf"}, {"hf-hub", "hf"}};

/* With one of our schemes, or none that is near, the text stays as it is: the daemon, which may know more, has the word. */
static const char *check_scheme(const char *text, size_t length, struct arena *arena, struct error *error)
{
    const char *word = arena_text(arena, text, length), *scheme = NULL;
    size_t n = sizeof schemes / sizeof schemes[0];
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, schemes[i]) == 0)
            return text;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcasecmp(word, aliases[i].word) == 0)
            scheme = aliases[i].scheme;
    scheme = scheme ? scheme : text_nearest(word, schemes, n);
    if (!scheme)
        return text;
    const char *rest = text + length;
    if (strcmp(scheme, "disk") == 0 && begins(rest, ":/"))
        rest = concatenate(arena, ":/", 2, rest + 1 + strspn(rest + 1, "/"));
    else if (strcmp(scheme, "disk") != 0 && strcmp(scheme, "file") != 0)
        rest = concatenate(arena, "://", 3, rest + 1 + strspn(rest + 1, "/"));
    return suggest(text, "there is no such kind of source", concatenate(arena, scheme, strlen(scheme), rest), error);
}

/* "models/llama" or "org/model". */
static const char *fail_bare(const char *text, struct arena *arena, struct error *error)
{
    static const char why[] = "an artifact is a path that begins with /, ./ or ~/, or in a store such as gs://";
    char better[TEXT_NAME_CHARS];
    size_t owner = name_length(text);
    bool is_name =
        text[owner] == '/' && owner && name_length(text + owner + 1) && !text[owner + 1 + name_length(text + owner + 1)];
    if (!*text)
        return fail_reference("an empty reference", why, error);
    if (!is_name || strlen(text) > TEXT_NAME_CHARS / 4)
        return suggest(text, why, concatenate(arena, "./", 2, text), error);
    snprintf(better, sizeof better, "./%s, or hf://%s of the hub", text, text);
    return suggest(text, why, better, error);
}

static bool is_path(const char *text)
{
    return text[0] == '/' || reference_is_relative(text) || begins(text, "~/") || strcmp(text, "~") == 0;
}

static bool has_scheme(const char *text)
{
    size_t length = strcspn(text, ":/");
    return text[length] == ':' && length > 0;
}

bool reference_is_bare(const char *text)
{
    return !is_path(text) && !has_scheme(text);
}

const char *reference_parse(const char *text, const struct reference_base *base, struct arena *arena, struct error *error)
{
    const char *host = text + strspn(text, "/"); /* "//user:password@host/x", shown as a path, would tell the password */
    if (begins(text, "//") && memchr(host, '@', strcspn(host, "/")))
        return fail_reference(text, "a URL begins with its scheme, such as https://", error);
    if (is_path(text))
        return take_path(text, text, base, arena, error);
    if (strncasecmp(text, "file:", strlen("file:")) == 0)
        return take_file_url(text, arena, error);
    const char *hub = hub_reference(text, arena);
    if (hub)
        return suggest(text, "that is a page of the hub", hub, error);
    if (!has_scheme(text))
        return fail_bare(text, arena, error);
    return check_scheme(text, strcspn(text, ":/"), arena, error);
}

char *reference_take_hub_revision(const char **at)
{
    const char *from = *at, *end = from + strcspn(from, "/");
    for (int part = 0; strncmp(from, "refs/", 5) == 0 && part < 2 && *end == '/'; part++)
        end += 1 + strcspn(end + 1, "/");
    char *revision = memory_alloc((size_t)(end - from) + 1), *to = revision;
    for (*at = end; from < end; to++) {
        bool is_escaped = strncasecmp(from, "%2f", 3) == 0 && end - from >= 3;
        *to = is_escaped ? '/' : *from;
        from += is_escaped ? 3 : 1;
    }
    return revision;
}

char *reference_folder_of(const char *reference)
{
    const char *slash = strrchr(reference, '/');
    bool is_file = text_ends_with(reference, strlen(reference), ".safetensors") && !strchr(reference, '?');
    return slash && is_file ? memory_print("%.*s", (int)(slash - reference), reference) : NULL;
}
