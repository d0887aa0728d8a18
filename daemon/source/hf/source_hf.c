/* Opening finds the commit that the revision stands for - one request, none when the reference names the commit - and takes
 * the local cache when it holds that commit's checkpoint; then the source is one on disk. Otherwise the commit's tree is the
 * table of objects, and every file is read from where the hub's address of it redirects to, asked for once per file.
 * Failure modes: no such repository or revision, gated or private, offline and not in the cache, a target that keeps
 * refusing. */
#include "source/hf/source_hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/reference.h"
#include "base/text.h"
#include "observe/log.h"
#include "source/environment.h"
#include "source/hf/hf_trees.h"
#include "source/redirect.h"
#include "source/secret.h"

enum { MAX_TOKEN_CHARS = 4096, MAX_NAME_CHARS = 96, TRIES_BESIDE_A_COPY = 3 };

/* --- references --- */

static char *copy_part(const char *text, size_t length)
{
    char *copy = memory_alloc(length + 1);
    memcpy(copy, text, length);
    return copy;
}

/* "org" or "model": what the hub allows, so that nothing of it can change a URL's or a path's meaning. */
static bool is_name(const char *text, size_t length)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return length > 0 && length <= MAX_NAME_CHARS && text[0] != '.' && strspn(text, allowed) >= length &&
           !memmem(text, length, "--", 2);
}

static int parse_reference(struct source_hf *hf, const char *path, struct error *error)
{
    static const char expected[] = "a repository looks like hf://org/model, hf://org/model@revision or "
                                   "hf://org/model@revision/folder";
    if (strncmp(path, "//", 2) != 0)
        return source_fail_reference(&hf->objects.base, expected, error);
    const char *org = path + 2, *end = org + strcspn(org, "/@");
    if (*end == '/') { /* without it, a repository of the hub's own, like gpt2 */
        const char *model = end + 1;
        end = model + strcspn(model, "/@");
        if (!is_name(org, (size_t)(model - 1 - org)) || !is_name(model, (size_t)(end - model)))
            return source_fail_reference(&hf->objects.base, expected, error);
    } else if (!is_name(org, (size_t)(end - org))) {
        return source_fail_reference(&hf->objects.base, expected, error);
    } else if (strncmp(org, "hf_", 3) == 0) { /* "hf://hf_abc@org/model" would send it along as a name */
        return source_fail_reference(&hf->objects.base, "a token is no part of a reference: HF_TOKEN, sources.hf.token_file",
                                     error);
    }
    hf->repository = copy_part(org, (size_t)(end - org));
    hf->revision = *end == '@' ? (end++, reference_take_hub_revision(&end)) : memory_copy_text("main");
    if (!text_is_plain_path(hf->revision) || (*end == '/' && !text_is_plain_path(end + 1)))
        return source_fail_reference(&hf->objects.base, expected, error);
    const char *below = *end ? end + 1 : "", *slash = strrchr(below, '/');
    hf->objects.base.is_single_file = source_is_part(&hf->objects.base, below);
    if (!hf->objects.base.is_single_file) {
        hf->folder = memory_copy_text(below);
        return 0;
    }
    hf->folder = slash ? copy_part(below, (size_t)(slash - below)) : memory_copy_text("");
    hf->objects.base.file_name = hf->file_name = memory_copy_text(slash ? slash + 1 : below);
    return 0;
}

/* --- the token --- */

static char *trimmed(const char *text)
{
    static const char blanks[] = " \t\r\n";
    text += strspn(text, blanks);
    size_t length = strcspn(text, blanks);
    return length ? copy_part(text, length) : NULL;
}

/* Read for every source, because a file may be replaced while the daemon runs. */
static char *find_token(const struct stores *stores)
{
    const char *path = hf_settings_of(stores)->token_file, *given = getenv("HF_TOKEN");
    size_t length;
    if (!*path)
        return given ? trimmed(given) : NULL;
    char *text = secret_read_file(path, MAX_TOKEN_CHARS, &length); /* half a token is none */
    char *token = text && length <= MAX_TOKEN_CHARS ? trimmed(text) : NULL;
    secret_free(text);
    return token;
}

/* --- files --- */

/* Small files come from the hub itself, which says of which commit; a target elsewhere is signed for one blob. */
static int range_check(void *data, const struct http_head *head, struct error *error)
{
    const struct source_hf *hf = (const struct source_hf *)((const struct object_file *)data)->source;
    const char *commit = http_head_find(head, "x-repo-commit");
    char text[TEXT_NAME_CHARS];
    if (!commit || strcmp(commit, hf->commit) == 0)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "the hub sends commit %s instead of %s",
                text_escape(commit, strlen(commit), text), hf->commit);
}

static int open_file(struct object_source *source, struct object_file *file, struct error *error)
{
    struct source_hf *hf = (struct source_hf *)source;
    const struct http_store home = hf_api_store(hf);
    (void)error;
    file->url = hf_api_file_url(hf, file->object->name);
    redirect_open_file(file, &(struct redirect_options){.home = &home, .check = range_check});
    return 0;
}

/* --- the source --- */

static int fail_offline(const struct source_hf *hf, const char *cache_dir, struct error *error)
{
    const char *reference = hf->objects.base.reference;
    char text[TEXT_NAME_CHARS];
    return fail(error, ERROR_FAILED_PRECONDITION, "OFFLINE",
                "%s is not in the cache %s, and nothing is asked of the hub: HF_HUB_OFFLINE or sources.hf.offline is set",
                text_escape(reference, strlen(reference), text), cache_dir);
}

static int open_source(struct source_hf *hf, const struct source_options *options, struct error *error)
{
    const struct hf_settings *settings = hf_settings_of(hf->objects.stores);
    if (stores_check_url(hf->objects.stores, settings->base.endpoint, error) < 0)
        return -1;
    hf->token = find_token(hf->objects.stores);
    bool offline = settings->is_offline, is_unreachable = false;
    const char *cache_dir = settings->cache_dir;
    struct hf_trees *trees = stores_client(hf->objects.stores, &source_hf_store);
    if (offline && !hf_cache_find_commit(hf, cache_dir))
        return fail_offline(hf, cache_dir, error);
    if (!offline && *cache_dir && hf_trees_is_hub_away(trees) && hf_cache_find_commit(hf, cache_dir)) {
        int known =
            hf_cache_open(hf, options, cache_dir, options->for_sidecars ? HF_CACHE_SIDECARS : HF_CACHE_TENSORS, error);
        if (known != 0)
            return known < 0 ? -1 : 0;
    }
    bool has_copy = !offline && *cache_dir && hf_cache_find_commit(hf, cache_dir);
    if (!offline && hf_api_find_commit(hf, has_copy ? TRIES_BESIDE_A_COPY : 0, error) < 0) {
        if (error->code == ERROR_UNAVAILABLE) {
            hf_trees_set_hub_away(trees, true);
            environment_note(error, "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE");
        }
        /* as huggingface_hub: what the cache knew of the revision last is better than nothing */
        offline = error->code == ERROR_UNAVAILABLE && *cache_dir && hf_cache_find_commit(hf, cache_dir);
        if (!offline)
            return -1;
        is_unreachable = true;
        log_at_of(LOG_WARN, "hub_unreachable", hf->objects.base.uid, LOG_TEXT("artifact", hf->objects.base.reference),
                  LOG_TEXT("message", error->message), LOG_TEXT("effect", "what the hub's cache holds of it is used"));
    }
    if (!offline && !hf_is_commit(hf->revision))
        hf_trees_set_hub_away(trees, false);
    bool is_asked_for = offline && !is_unreachable;
    enum hf_cache_need need = is_asked_for            ? HF_CACHE_ANYTHING
                              : options->for_sidecars ? HF_CACHE_SIDECARS
                                                      : HF_CACHE_TENSORS;
    int cached = *cache_dir ? hf_cache_open(hf, options, cache_dir, need, error) : 0;
    if (cached == 0 && is_unreachable)
        return -1; /* with what was wrong with the network */
    if (cached == 0 && offline)
        return fail_offline(hf, cache_dir, error);
    return cached < 0 ? -1 : 0;
}

static const struct object_ops object_ops = {
    .list = hf_api_list, .listed = hf_api_listed, .open = open_file, .close = redirect_close_file};

static int hf_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    struct source_hf *hf = (struct source_hf *)source;
    if (parse_reference(hf, path, error) < 0)
        return -1;
    /* bytes come from wherever the hub redirects to: statistics of all hosts are the nearest there is */
    if (object_source_init(&hf->objects, &object_ops, options, "hf", NULL, error) < 0)
        return -1;
    return open_source(hf, options, error);
}

void hf_free(struct source_hf *hf)
{
    secret_free(hf->token);
    free(hf->repository);
    free(hf->revision);
    free(hf->folder);
    free(hf->file_name);
}

static void hf_close(struct source *source)
{
    struct source_hf *hf = (struct source_hf *)source;
    object_source_fini(&hf->objects);
    hf_free(hf);
}

static const struct source_ops hf_ops = {OBJECT_SOURCE_OPS("hf", struct source_hf, hf_open, hf_close)};

static void hf_describe(struct stores *stores, struct store_line *line)
{
    const struct hf_settings *settings = hf_settings_of(stores);
    const char *file = settings->token_file;
    char *token = find_token(stores);
    redact(settings->base.endpoint, line->endpoint, sizeof line->endpoint);
    if (!*file)
        snprintf(line->credentials, sizeof line->credentials, token ? "HF_TOKEN" : "none");
    else
        snprintf(line->credentials, sizeof line->credentials, token ? "file %s" : "none, %s holds no token", file);
    line->is_configured |= token != NULL;
    secret_free(token);
}

const struct store source_hf_store = {
    .scheme = "hf",
    .source = &hf_ops,
    .is_remote = true,
    .section = &hf_settings_section,
    .complete = hf_settings_complete,
    .connect = hf_api_connect,
    .disconnect = hf_api_disconnect,
    .describe = hf_describe,
};
