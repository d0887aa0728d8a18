/* Opening finds the commit that the revision stands for - one request, none when the reference names the commit - and takes
 * the local cache when it holds that commit's checkpoint; then the source is one on disk. Otherwise the commit's tree is the
 * table of objects, and every file is read from where the hub's address of it redirects to, asked for once per file.
 * Failure modes: no such repository or revision, gated or private, offline and not in the cache, a target that keeps
 * refusing. */
#include "source/hf/source_hf.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/reference.h"
#include "base/text.h"
#include "observe/log.h"
#include "source/disk/mounts.h"
#include "source/environment.h"
#include "source/hf/hf_trees.h"
#include "source/redirect.h"
#include "source/secret.h"

enum { MAX_TOKEN_CHARS = 4096, MAX_NAME_CHARS = 96, TRIES_BESIDE_A_COPY = 3 };

/* --- keys --- */

/* clang-format off */
static const struct config_key keys[] = {
    {"sources.hf.enabled", CONFIG_BOOL, CONFIG_FIELD(hf_settings, base.is_enabled), .fallback = "true",
     .help = "Lets artifacts be loaded from hf:// references."},
    {"sources.hf.endpoint", CONFIG_TEXT, CONFIG_FIELD(hf_settings, base.endpoint), .fallback = "", .may_be_empty = true,
     .environment = "HF_ENDPOINT", .otherwise = "https://huggingface.co",
     .help = "Server of hf:// references. Empty: HF_ENDPOINT, else https://huggingface.co."},
    {"sources.hf.token_file", CONFIG_PATH, CONFIG_FIELD(hf_settings, token_file), .fallback = "", .may_be_empty = true,
     .environment = "HF_TOKEN_PATH HF_HOME/token XDG_CACHE_HOME/huggingface/token HOME/.cache/huggingface/token",
     .help = "File with the token. Empty: HF_TOKEN itself, HF_TOKEN_PATH, then token in HF_HOME."},
    {"sources.hf.cache_dir", CONFIG_PATH, CONFIG_FIELD(hf_settings, cache_dir), .fallback = "", .may_be_empty = true,
     .environment = "HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME/hub XDG_CACHE_HOME/huggingface/hub HOME/.cache/huggingface/hub",
     .help = "The hub's cache on this host, which is read where it holds the whole checkpoint and never written. Empty: "
             "HF_HUB_CACHE, then hub in HF_HOME."},
    {"sources.hf.offline", CONFIG_BOOL, CONFIG_FIELD(hf_settings, is_offline), .fallback = "false",
     .environment = "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE",
     .help = "Asks nothing of the hub and uses the cache alone, as HF_HUB_OFFLINE=1 does."},
};
/* clang-format on */

static const struct config_section section = {keys, sizeof keys / sizeof keys[0], sizeof(struct hf_settings)};

static void complete_settings(const void *configured, void *settings, struct arena *arena)
{
    const struct hf_settings *was = configured;
    struct hf_settings *hf = settings;
    const char *token = getenv("HF_TOKEN");
    hf->base.endpoint = stores_endpoint_url(hf->base.endpoint, arena);
    if (token && *token && !*was->token_file)
        hf->token_file = ""; /* it is used instead of any file but the configuration's */
}

/* --- references --- */

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
    hf->repository = memory_print("%.*s", (int)(end - org), org);
    hf->revision = *end == '@' ? (end++, reference_take_hub_revision(&end)) : memory_copy_text("main");
    if (!text_is_plain_path(hf->revision) || (*end == '/' && !text_is_plain_path(end + 1)))
        return source_fail_reference(&hf->objects.base, expected, error);
    const char *below = *end ? end + 1 : "", *slash = strrchr(below, '/');
    hf->objects.base.is_single_file = source_is_part(&hf->objects.base, below);
    if (!hf->objects.base.is_single_file) {
        hf->folder = memory_copy_text(below);
        return 0;
    }
    hf->folder = memory_print("%.*s", slash ? (int)(slash - below) : 0, below);
    hf->objects.base.file_name = hf->file_name = memory_copy_text(slash ? slash + 1 : below);
    return 0;
}

/* --- the token --- */

static char *trimmed(const char *text)
{
    static const char blanks[] = " \t\r\n";
    text += strspn(text, blanks);
    size_t length = strcspn(text, blanks);
    return length ? memory_print("%.*s", (int)length, text) : NULL;
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
    if (!commit || strcmp(commit, hf->commit) == 0)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "the hub sends commit %s instead of %s",
                text_show(commit), hf->commit);
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

/* --- the hub's cache on this host ---
 *
 * Read only: refs/<revision> names a commit, snapshots/<commit>/ holds links into blobs/, whose files of git-lfs are named by
 * their SHA-256. A snapshot is used when it is a whole checkpoint, which the caller's format tells. Its files are then read as
 * any other file on disk. */

/* What the cache must hold of the commit: whatever is there; every tensor; config.json, too, since a user who fetched tensors
 * alone has none of the files beside them. */
enum need { ANYTHING, TENSORS, SIDECARS };

static void free_texts(struct source_hf *hf)
{
    secret_free(hf->token);
    free(hf->repository);
    free(hf->revision);
    free(hf->folder);
    free(hf->file_name);
}

/* "CACHE/models--org--model" */
static char *folder_of(const struct source_hf *hf, const char *cache_dir)
{
    const char *slash = strchr(hf->repository, '/');
    return slash ? memory_print("%s/models--%.*s--%s", cache_dir, (int)(slash - hf->repository), hf->repository, slash + 1)
                 : memory_print("%s/models--%s", cache_dir, hf->repository);
}

/* Whether its mount may be asked: this thread works for a store, and the mount's server may hang. */
static bool may_look(const char *path)
{
    struct error error;
    return loop_enter_lane(mounts_find_fuse(path), &error) == 0;
}

static bool is_file(const char *path)
{
    struct stat status;
    return may_look(path) && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool has(const char *folder, const char *name)
{
    char *path = memory_print("%s/%s", folder, name);
    bool found = is_file(path);
    free(path);
    return found;
}

static bool find_cached_commit(struct source_hf *hf, const char *cache_dir)
{
    if (hf_is_commit(hf->revision)) {
        memcpy(hf->commit, hf->revision, HF_COMMIT_CHARS);
        return true;
    }
    char *folder = folder_of(hf, cache_dir), *path = memory_print("%s/refs/%s", folder, hf->revision);
    bool may_open = !strstr(hf->revision, "..") && is_file(path);
    int fd = may_open ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    ssize_t count = fd >= 0 ? read(fd, hf->commit, HF_COMMIT_CHARS) : -1;
    if (fd >= 0)
        close(fd);
    free(folder);
    free(path);
    hf->commit[count > 0 ? count : 0] = '\0';
    bool found = hf_is_commit(hf->commit);
    hf->commit[0] = found ? hf->commit[0] : '\0';
    return found;
}

/* blobs/<64 hexadecimal digits> is named by its SHA-256; smaller files by their hash in git, which is none of ours. */
static void checksum_of_link(const struct source_hf *hf, const char *name, struct checksum *checksum)
{
    static const char digits[] = "0123456789abcdef";
    char target[PATH_MAX],
        *path = hf->disk.file_name ? memory_copy_text(hf->disk.path) : memory_print("%s/%s", hf->disk.path, name);
    ssize_t length = may_look(path) ? readlink(path, target, sizeof target - 1) : -1;
    free(path);
    target[length < 0 ? 0 : length] = '\0';
    const char *slash = strrchr(target, '/'), *blob = slash ? slash + 1 : target;
    if (strspn(blob, digits) == strlen(blob))
        checksum_parse_hex(CHECKSUM_SHA256, blob, checksum);
}

static int disk_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                          struct error *error)
{
    const struct source_hf *hf = (const struct source_hf *)source_owner(source);
    char version[HF_COMMIT_CHARS + sizeof "commit "];
    if (source_disk_ops.open_file(source, name, file, handle, error) < 0)
        return -1;
    snprintf(version, sizeof version, "commit %s", hf->commit);
    file->version = memory_copy_text(version);
    checksum_of_link(hf, name, &file->checksums[0]);
    return 0;
}

static void disk_close(struct source *source)
{
    source_disk_ops.close(source);
    free_texts((struct source_hf *)source);
}

static const struct source_ops cached_ops = {
    .name = "hf",
    .source_size = sizeof(struct source_hf),
    .list = source_disk_list,
    .open_file = disk_open_file,
    .read = source_disk_read,
    .resident_bytes = source_disk_resident_bytes,
    .open_immutable = source_disk_open_immutable,
    .check_unchanged = source_disk_check_unchanged,
    .close_files = source_disk_close_files,
    .close = disk_close,
};

/* Links may lead to the blobs beside the snapshots and nowhere else. */
static int become_disk(struct source_hf *hf, const struct source_options *given, const char *folder, const char *path,
                       struct error *error)
{
    struct source *source = &hf->objects.base;
    const struct source_options options = {.trusted_roots = &folder,
                                           .n_trusted_roots = 1,
                                           .immutable_roots = given->immutable_roots,
                                           .n_immutable_roots = given->n_immutable_roots};
    object_source_fini(&hf->objects);
    memset((char *)&hf->objects + sizeof *source, 0, sizeof hf->objects - sizeof *source);
    source->caps = (struct source_caps){0};
    source->ops = &cached_ops;
    return source_disk_ops.open(source, path, &options, error) < 0 ? -1 : 1;
}

/* Turns the source into one on disk when the cache holds that: 1, else 0; -1 on errors. Of the options only the immutable
 * roots count. */
static int open_cached(struct source_hf *hf, const struct source_options *options, const char *cache_dir, enum need need,
                       struct error *error)
{
    char *folder = folder_of(hf, cache_dir);
    char *below = memory_print("%s/snapshots/%s%s%s", folder, hf->commit, *hf->folder ? "/" : "", hf->folder);
    char *path = memory_print("%s%s%s", below, hf->file_name ? "/" : "", hf->file_name ? hf->file_name : "");
    int opened = 0;
    const struct source_format *format = hf->objects.base.format;
    if (may_look(path) && access(path, F_OK) == 0 && (need != SIDECARS || has(below, "config.json")) &&
        (need == ANYTHING || (hf->file_name ? has(below, hf->file_name) : format && format->is_whole(below))))
        opened = become_disk(hf, options, folder, path, error);
    free(folder);
    free(below);
    free(path);
    return opened;
}

/* --- the source --- */

static int open_source(struct source_hf *hf, const struct source_options *options, struct error *error)
{
    const struct hf_settings *settings = hf_settings_of(hf->objects.stores);
    struct hf_trees *trees = stores_client(hf->objects.stores, &source_hf_store);
    const char *cache_dir = settings->cache_dir;
    enum need need = settings->is_offline ? ANYTHING : options->for_sidecars ? SIDECARS : TENSORS;
    if (http_fence_check(&hf->objects.stores->fence, settings->base.endpoint, error) < 0)
        return -1;
    hf->token = find_token(hf->objects.stores);
    bool is_known = *cache_dir && find_cached_commit(hf, cache_dir), is_unreachable = false;
    if (settings->is_offline) {
        int opened = is_known ? open_cached(hf, options, cache_dir, need, error) : 0;
        if (opened != 0)
            return opened < 0 ? -1 : 0;
        return fail(
            error, ERROR_FAILED_PRECONDITION, "OFFLINE",
            "%s is not in the cache %s, and nothing is asked of the hub: HF_HUB_OFFLINE or sources.hf.offline is set",
            text_show(hf->objects.base.reference), cache_dir);
    }
    if (is_known && hf_trees_is_hub_away(trees)) {
        int opened = open_cached(hf, options, cache_dir, need, error);
        if (opened != 0)
            return opened < 0 ? -1 : 0;
    }
    if (hf_api_find_commit(hf, is_known ? TRIES_BESIDE_A_COPY : 0, error) < 0) {
        if (error->code != ERROR_UNAVAILABLE)
            return -1;
        hf_trees_set_hub_away(trees, true);
        environment_note(error, "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE");
        if (!is_known)
            return -1;
        /* as huggingface_hub: what the cache knew of the revision last is better than nothing */
        is_unreachable = true;
        log_at_of(LOG_WARN, "hub_unreachable", hf->objects.base.uid, LOG_TEXT("artifact", hf->objects.base.reference),
                  LOG_TEXT("message", error->message), LOG_TEXT("effect", "what the hub's cache holds of it is used"));
    } else if (!hf_is_commit(hf->revision)) {
        hf_trees_set_hub_away(trees, false);
    }
    int cached = *cache_dir ? open_cached(hf, options, cache_dir, need, error) : 0;
    return cached < 0 || (cached == 0 && is_unreachable) ? -1 : 0; /* with what was wrong with the network */
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

static void hf_close(struct source *source)
{
    struct source_hf *hf = (struct source_hf *)source;
    object_source_fini(&hf->objects);
    free_texts(hf);
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
    .section = &section,
    .complete = complete_settings,
    .connect = hf_trees_create,
    .disconnect = hf_trees_destroy,
    .describe = hf_describe,
};
