/* A host's manifest is replaced by a rename while the store is appended to: one that went meanwhile is looked for again. Segments
 * that it does not list yet are in no manifest for this artifact, which is no error. */
#include "resolve/activation_manifest.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/activation_name.h"
#include "base/clock.h"
#include "base/memory.h"

enum { READ_TRIES = 20, PAUSE_MS = 5 };

/* Of what a document makes of the segments' names, which begin with the folder. */
struct known_key {
    struct source_identity identity;
    char folder[ACTIVATION_NAME_CHARS];
};

struct hosts {
    const struct source *source;
    struct source *beside;
    const struct source_options *options;
    const struct lookup *lookup;
    struct manifest *manifest;
    size_t room;
    bool is_one;  /* all is of one document, which is asked for anew with each run of segments */
    bool is_kept; /* then, where it can be known to be the same, for the next time by ... */
    struct known_key key;
    struct manifest *known; /* from the last time; NULL = it is none */
};

static struct manifest *find_known(struct hosts *hosts, const struct source *beside, size_t file, const char *folder)
{
    struct header_cache *cache = lookup_cache(hosts->lookup, beside, file);
    hosts->is_kept = hosts->is_one && cache && strlen(folder) < sizeof hosts->key.folder;
    if (!hosts->is_kept)
        return NULL;
    memset(&hosts->key, 0, sizeof hosts->key);
    hosts->key.identity = beside->files[file].identity;
    memcpy(hosts->key.folder, folder, strlen(folder));
    return hosts->lookup->fresh ? NULL
                                : header_cache_find_value(cache, HEADER_CACHE_MANIFESTS, &hosts->key, sizeof hosts->key);
}

/* 1: there is none. */
static int read_once(struct hosts *hosts, struct source *beside, const char *folder, const char *name, struct error *error)
{
    static const struct document_kind kind = {"a manifest", MANIFEST_MAX_BYTES, "MALFORMED_MANIFEST"};
    struct lookup uncounted = *hosts->lookup;
    struct document text;
    size_t file;
    if (source_add_file(beside, name, &file, error) < 0) {
        bool is_told =
            beside->caps.asks_server ? !source_may_be_absent(beside, error) : error->kind == ERROR_KIND_SOURCE_BEING_WRITTEN;
        return is_told ? -1 : 1;
    }
    if (beside->files[file].size_bytes > MANIFEST_MAX_BYTES)
        return 1;
    hosts->known = find_known(hosts, beside, file, folder);
    if (hosts->known)
        return 0;
    if (document_read(&uncounted, beside, file, &kind, &text, error) < 0)
        return -1;
    int failed = manifest_add_segments(hosts->manifest, &hosts->room, folder, text.text, text.bytes, error);
    if (!failed && beside->caps.reads_are_requests) /* on a disk each sealed segment makes a new one, which is near */
        document_keep(hosts->lookup, beside, file, &text);
    document_free(&text);
    return failed;
}

static int read_host(struct hosts *hosts, const char *folder, const char *name, struct error *error)
{
    int status = read_once(hosts, hosts->beside, folder, name, error);
    for (int n = 1;
         status < 0 && n < READ_TRIES && (source_has_changed(error) || error->kind == ERROR_KIND_SOURCE_BEING_WRITTEN);
         n++) {
        struct source *again = NULL;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * NS_PER_MS}, NULL);
        if (cancel_is_set(hosts->options->cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while the artifact was resolved");
        status = source_open_beside(hosts->beside, hosts->options, &again, error);
        if (status == 0)
            status = read_once(hosts, again, folder, name, error);
        source_unref(again);
    }
    return status < 0 ? error_prefix(error, "%s", name) : 0;
}

/* The files of the store that lie beside each other are one behind the other. */
static size_t list_folders(const struct source *source, char **folders, char **names)
{
    size_t n = 0;
    for (size_t i = 0; i < source->n_files; i++) {
        const char *name = source->files[i].name, *slash = strchr(name, '/');
        char *folder = memory_print("%.*s", slash ? (int)(slash - name) : 0, name);
        if (n > 0 && strcmp(folders[n - 1], folder) == 0) {
            free(folder);
            continue;
        }
        folders[n] = folder;
        names[n++] = memory_print("%s%s" ACTIVATION_MANIFEST, folder, *folder ? "/" : "");
    }
    return n;
}

static int read_hosts(struct hosts *hosts, struct error *error)
{
    const struct source *source = hosts->source;
    char **folders = memory_alloc_array(source->n_files, sizeof *folders);
    char **names = memory_alloc_array(source->n_files, sizeof *names);
    size_t n = list_folders(source, folders, names);
    hosts->is_one = n == 1;
    int failed = source_expect(hosts->beside, (const char *const *)names, n, error);
    for (size_t i = 0; i < n && !failed; i++)
        failed = read_host(hosts, folders[i], names[i], error);
    for (size_t i = 0; i < n; i++) {
        free(folders[i]);
        free(names[i]);
    }
    free(folders);
    free(names);
    return failed;
}

struct manifest *activation_manifest_read(const struct source *source, struct source *beside,
                                          const struct source_options *options, const struct lookup *lookup,
                                          struct error *problem)
{
    struct hosts hosts = {.source = source, .beside = beside, .options = options, .lookup = lookup};
    for (size_t i = 0; i < source->n_files; i++) {
        if (!activation_is_segment(source->files[i].name))
            return NULL;
    }
    struct error error;
    hosts.manifest = manifest_create();
    int failed = read_hosts(&hosts, &error) < 0;
    if (hosts.known) {
        manifest_unref(hosts.manifest);
        return hosts.known;
    }
    failed = failed || manifest_index(hosts.manifest, &error) < 0;
    if (!failed && hosts.is_kept)
        header_cache_add_value(lookup->cache, HEADER_CACHE_MANIFESTS, &hosts.key, sizeof hosts.key, hosts.manifest,
                               manifest_memory_bytes(hosts.manifest));
    if (!failed && hosts.manifest->n_files > 0)
        return hosts.manifest;
    if (failed)
        *problem = error;
    manifest_unref(hosts.manifest);
    return NULL;
}
