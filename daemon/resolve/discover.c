/* See discover.h. Of a known checkpoint the index is looked at but not read: a table of an earlier resolve with the same index
 * knows the file names. Failure modes: nothing to load, a missing file, a link that leads nowhere. */
#include "resolve/discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/activation_name.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/text.h"
#include "resolve/activation_manifest.h"
#include "resolve/activation_store.h"
#include "resolve/artifact_table.h"
#include "resolve/dcp.h"
#include "resolve/safetensors.h"

enum { MAX_FILES = 10000 }; /* a file on disk costs two descriptors for the artifact's life */

/* --- the index document --- */

/* Where nothing can be listed, nothing is. */
static int list_names(struct source *source, char ***names, size_t *n_names, struct error *error)
{
    *names = NULL;
    *n_names = 0;
    int failed = source_list(source, names, n_names, error);
    return failed && error->code == ERROR_UNIMPLEMENTED ? 0 : failed;
}

/* A link that leads nowhere is listed but cannot be opened. Without this check a document that is one would be taken for
 * none, and whatever parts are there for the whole. */
static int fail_if_listed(struct source *source, const char *const *documents, size_t n_documents, struct error *error)
{
    char **names;
    size_t n_names;
    const char *listed = NULL;
    int failed = list_names(source, &names, &n_names, error);
    for (size_t i = 0; i < n_names; i++) {
        for (size_t k = 0; k < n_documents; k++)
            listed = strcmp(names[i], documents[k]) == 0 ? documents[k] : listed;
        free(names[i]);
    }
    free(names);
    return failed || !listed ? failed : fail(error, ERROR_NOT_FOUND, "DANGLING_LINK", "%s leads to no file", listed);
}

/* Opens the first of these that the directory has; `documents` ends before *found. */
static int open_first(struct discovery *discovery, const char *const *documents, size_t n_documents, size_t *found,
                      struct error *error)
{
    size_t file;
    for (*found = 0; *found < n_documents; ++*found) {
        if (source_add_file(discovery->index_source, documents[*found], &file, error) == 0)
            return 0;
        /* a server that lists nothing may hide what is not there behind "forbidden"; then the checkpoint itself must be
         * readable */
        if (!source_may_be_absent(discovery->source, error))
            return -1;
    }
    return 0;
}

/* Opens topology.json, or the index document, when the directory has one. */
static int open_index(struct discovery *discovery, const struct source_options *options, struct error *error)
{
    const char *const documents[] = {TOPOLOGY_NAME, discovery->format->index_name};
    enum { N_DOCUMENTS = sizeof documents / sizeof documents[0] };
    size_t found;
    if (source_open_beside(discovery->source, options, &discovery->index_source, error) < 0 ||
        open_first(discovery, documents, N_DOCUMENTS, &found, error) < 0)
        return -1;
    discovery->is_topology = found == 0;
    if (found == N_DOCUMENTS) {
        source_unref(discovery->index_source);
        discovery->index_source = NULL;
    }
    return found ? fail_if_listed(discovery->source, documents, found, error) : 0;
}

int discovery_need_document(struct discovery *discovery, struct lookup *lookup, struct error *error)
{
    struct source *source = discovery->index_source;
    struct document *text = &discovery->index_text;
    bool is_topology = discovery->is_topology;
    const char *name = is_topology ? TOPOLOGY_NAME : discovery->format->index_name;
    if (discovery->index || discovery->topology || !source)
        return 0;
    static const struct document_kind topology = {"a topology", TOPOLOGY_MAX_BYTES, "MALFORMED_TOPOLOGY"},
                                      index = {"an index", SHARD_INDEX_MAX_BYTES, "MALFORMED_INDEX"};
    if (document_read(lookup, source, 0, is_topology ? &topology : &index, text, error) < 0)
        return document_prefix(error, name);
    if (is_topology)
        discovery->topology = topology_parse(text->text, text->bytes, error);
    else
        discovery->index = shard_index_parse(text->text, text->bytes, error);
    if (!discovery->index && !discovery->topology)
        return document_prefix(error, name);
    document_keep(lookup, source, 0, text);
    return 0;
}

/* --- the part files --- */

static int add_file(struct source *source, const char *name, struct error *error)
{
    size_t file;
    if (source->n_files == MAX_FILES)
        return fail(error, ERROR_UNIMPLEMENTED, "TOO_MANY_FILES", "more than %d part files", MAX_FILES);
    return source_add_file(source, name, &file, error);
}

static int add_files(struct source *source, const char *const *names, size_t n_names, struct error *error)
{
    if (source_expect(source, names, n_names, error) < 0)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        if (add_file(source, names[i], error) < 0)
            return document_prefix(error, names[i]);
    }
    return 0;
}

static int add_indexed_files(struct discovery *discovery, struct lookup *lookup, struct error *error)
{
    const struct source_identity *identity = discovery_index_identity(discovery);
    struct artifact_table *hint = NULL;
    if (lookup_cache(lookup, discovery->index_source, 0) && !lookup->fresh)
        hint = header_cache_find_table(lookup->cache, identity, sizeof *identity);
    if (hint) {
        int failed = add_files(discovery->source, (const char *const *)hint->file_names, hint->n_files, error);
        artifact_table_unref(hint);
        return failed;
    }
    if (discovery_need_document(discovery, lookup, error) < 0)
        return -1;
    if (discovery->topology)
        return add_files(discovery->source, discovery->topology->files, discovery->topology->n_files, error);
    return add_files(discovery->source, discovery->index->files, discovery->index->n_files, error);
}

static bool is_wanted(const struct discovery *discovery, const char *name)
{
    const struct activation_run *run = &discovery->run;
    uint32_t number;
    return activation_parse_segment(name, ACTIVATION_SEALED, &number) && number >= run->first && number <= run->last;
}

/* Every part file of the folder that is not there yet, in the order of names. Returns -1 or sets how many there are in all. */
static int add_listed(struct discovery *discovery, char *const *names, size_t n_names, size_t *n_parts, struct error *error)
{
    struct source *source = discovery->source;
    struct map known;
    int failed = 0;
    *n_parts = 0;
    map_init(&known, source->n_files);
    for (size_t i = 0; i < source->n_files; i++)
        map_add(&known, source->files[i].name, strlen(source->files[i].name), 0);
    for (size_t i = 0; i < n_names && !failed; i++) {
        const char *const name = names[i];
        if (!discovery->format->probe(name) || (discovery->is_run && !is_wanted(discovery, name)))
            continue;
        ++*n_parts;
        if (map_find(&known, name, strlen(name)) == MAP_NONE)
            failed = add_files(source, &name, 1, error);
    }
    map_fini(&known);
    return failed;
}

static void free_names(char **names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
}

/* --- stores of activations --- */

/* The segments of one host, named from the store's folder on. */
static int add_host(struct discovery *discovery, const char *host, const struct source_options *options, size_t *n_parts,
                    struct error *error)
{
    char **names = NULL;
    size_t n_names = 0;
    struct source *folder = NULL;
    char *reference = memory_print("%s/%s", discovery->source->reference, host);
    int failed = source_open(reference, options, &folder, error);
    free(reference);
    if (!failed && !folder->is_single_file)
        failed = list_names(folder, &names, &n_names, error);
    for (size_t i = 0; i < n_names && !failed; i++) {
        if (!is_wanted(discovery, names[i]))
            continue;
        ++*n_parts;
        char *name = memory_print("%s/%s", host, names[i]);
        const char *const one = name;
        failed = add_files(discovery->source, &one, 1, error);
        free(name);
    }
    free_names(names, n_names);
    source_unref(folder);
    return failed;
}

/* All at once where each is a request. */
static int add_remote_hosts(struct discovery *discovery, size_t *n_parts, struct error *error)
{
    char **names;
    size_t n_names, n_segments = 0;
    int failed = source_list_folders(discovery->source, &names, &n_names, error);
    const char **segments = memory_alloc_array(n_names + 1, sizeof *segments);
    for (size_t i = 0; i < n_names && !failed; i++) {
        if (is_wanted(discovery, strchr(names[i], '/') + 1))
            segments[n_segments++] = names[i];
    }
    if (!failed)
        failed = add_files(discovery->source, segments, n_segments, error);
    *n_parts += n_segments;
    free(segments);
    free_names(names, n_names);
    return failed;
}

/* A folder without tensors of its own may be a store, whose hosts have a folder each. */
static int add_hosts(struct discovery *discovery, char *const *names, size_t n_names, const struct source_options *options,
                     size_t *n_parts, struct error *error)
{
    int failed = 0;
    if (discovery->source->ops->list_folders)
        return add_remote_hosts(discovery, n_parts, error);
    for (size_t i = 0; i < n_names && !failed; i++) {
        uint32_t host;
        if (activation_parse_host(names[i], &host))
            failed = add_host(discovery, names[i], options, n_parts, error);
    }
    return failed;
}

/* What the folder holds instead of a checkpoint, and what to do: "; it holds x.bin: ..", or "". */
static void describe_strangers(char *const *names, size_t n_names, char *text, size_t room)
{
    static const struct {
        const char *suffix, *remedy;
    } strangers[] = {
        {".bin", SAFETENSORS_CONVERT_HINT},
        {".pt", SAFETENSORS_CONVERT_HINT},
        {".pth", SAFETENSORS_CONVERT_HINT},
        {".ckpt", SAFETENSORS_CONVERT_HINT},
        {".gguf", "GGUF is not read; take the safetensors files that it was made of"},
        {".distcp",
         "convert it with torch.distributed.checkpoint.format_utils.dcp_to_torch_save, then safetensors.torch.save_file"},
    };
    char shown[TEXT_NAME_CHARS];
    text[0] = '\0';
    for (size_t k = 0; k < sizeof strangers / sizeof strangers[0]; k++) {
        for (size_t i = 0; i < n_names; i++) {
            size_t length = strlen(names[i]);
            if (!text_ends_with(names[i], length, strangers[k].suffix))
                continue;
            snprintf(text, room, "; it holds %s: %s", text_escape(names[i], length, shown), strangers[k].remedy);
            return;
        }
    }
}

/* A store that is too large to be one artifact is several. */
static int fail_many_segments(const struct discovery *discovery, struct error *error)
{
    const struct source *source = discovery->source;
    char text[TEXT_NAME_CHARS];
    bool is_too_many = error->code == ERROR_UNIMPLEMENTED || error->code == ERROR_RESOURCE_EXHAUSTED;
    if (!is_too_many || discovery->is_run || source->n_files == 0 || !activation_manifest_is_segment(source->files[0].name))
        return -1;
    error_prefix(error, "a store of so many segments is read some at a time, as %s/segment_000001-000100",
                 text_escape(source->reference, strlen(source->reference), text));
    return -1;
}

static int add_all_files(struct discovery *discovery, const struct source_options *options, struct error *error)
{
    char **names, text[TEXT_NAME_CHARS], strangers[2 * TEXT_NAME_CHARS] = "";
    size_t n_names, n_parts = 0;
    const struct format *format = discovery->format;
    int failed = list_names(discovery->source, &names, &n_names, error);
    if (!failed)
        failed = add_listed(discovery, names, n_names, &n_parts, error);
    if (!failed && !n_parts)
        failed = add_hosts(discovery, names, n_names, options, &n_parts, error);
    if (!failed && !n_parts)
        describe_strangers(names, n_names, strangers, sizeof strangers);
    free_names(names, n_names);
    discovery->has_all_files = true;
    if (failed)
        return fail_many_segments(discovery, error);
    if (n_parts)
        return 0;
    const char *reference = discovery->source->reference;
    if (discovery->is_run)
        return fail(error, ERROR_NOT_FOUND, "NO_CHECKPOINT", "%s holds no segment from %u to %u",
                    text_escape(reference, strlen(reference), text), discovery->run.first, discovery->run.last);
    return fail(error, ERROR_NOT_FOUND, "NO_CHECKPOINT", "%s holds no " TOPOLOGY_NAME ", no %s and no %s file%s",
                text_escape(reference, strlen(reference), text), format->index_name, format->pattern, strangers);
}

/* --- shards --- */

/* Asks for those that may be there; a rank may have saved nothing. */
static int add_numbered(struct discovery *discovery, char *const *names, size_t n_names, struct error *error)
{
    struct source *source = discovery->source;
    size_t file;
    if (source_expect(source, (const char *const *)names, n_names, error) < 0)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        if (source->n_files < MAX_FILES && source_add_file(source, names[i], &file, error) < 0 &&
            !source_may_be_absent(source, error))
            return document_prefix(error, names[i]);
    }
    return 0;
}

int discovery_add_shards(struct discovery *discovery, struct error *error)
{
    struct source *source = discovery->source;
    char **names, text[TEXT_NAME_CHARS];
    size_t n_names, n_parts;
    discovery->has_all_files = true;
    int failed = source_list(source, &names, &n_names, error);
    if (!failed) {
        failed = add_listed(discovery, names, n_names, &n_parts, error);
        free_names(names, n_names);
        return failed;
    }
    if (error->code != ERROR_UNIMPLEMENTED)
        return -1;
    if (!discovery->index_source)
        return fail(error, ERROR_FAILED_PRECONDITION, "SHARDS_NOT_LISTED",
                    "%s holds shards of a distributed checkpoint, but its files cannot be listed: it needs a %s that names "
                    "them",
                    text_escape(source->reference, strlen(source->reference), text), discovery->format->index_name);
    const char **known = memory_alloc_array(source->n_files, sizeof *known);
    for (size_t i = 0; i < source->n_files; i++)
        known[i] = source->files[i].name;
    names = dcp_names_between(known, source->n_files, MAX_FILES, &n_names);
    free(known);
    failed = add_numbered(discovery, names, n_names, error);
    free_names(names, n_names);
    return failed;
}

int discover(const char *reference, const struct source_options *options, struct lookup *lookup, struct discovery *discovery,
             struct error *error)
{
    *discovery = (struct discovery){.format = formats[0], .run = {1, ACTIVATION_MAX_SEGMENT}};
    if (activation_store_open(reference, options, &discovery->source, &discovery->is_run, &discovery->run, error) < 0)
        return -1;
    struct source *source = discovery->source;
    if (discovery->is_run) {
        struct activation_run *run = &discovery->run;
        discovery->run_reference = memory_print("%s/segment_%06u-%06u", source->reference, run->first, run->last);
    }
    if (discovery->is_run && !source->is_single_file)
        return add_all_files(discovery, options, error);
    const char *slash = strrchr(source->reference, '/'), *single = NULL;
    if (source->is_single_file)
        single = source->file_name ? source->file_name : slash ? slash + 1 : strchr(source->reference, ':') + 1;
    for (size_t i = 1; single && i < n_formats; i++)
        discovery->format = formats[i]->probe(single) ? formats[i] : discovery->format;
    if (single)
        return add_files(source, &single, 1, error);
    if (open_index(discovery, options, error) < 0)
        return -1;
    if (discovery->index_source)
        return add_indexed_files(discovery, lookup, error);
    if (add_file(source, discovery->format->single_name, error) == 0)
        return 0;
    return error->code == ERROR_NOT_FOUND ? add_all_files(discovery, options, error)
                                          : document_prefix(error, discovery->format->single_name);
}

void discovery_fini(struct discovery *discovery)
{
    source_unref(discovery->source);
    source_unref(discovery->index_source);
    free(discovery->run_reference);
    shard_index_destroy(discovery->index);
    topology_destroy(discovery->topology);
    document_free(&discovery->index_text);
}

/* --- the manifest --- */

/* A source in which a manifest would be, NULL when nothing is to be looked for. Beside a single object of a store nothing is:
 * what lies there in a bucket or on a web server mostly belongs to something else, and a query may be part of its address. A
 * reference as it is shown may lack its query: it is not opened again. Buckets hold stores of activations, whose segments are
 * named like nothing else. */
static struct source *open_beside(const struct discovery *discovery, const struct source_options *options,
                                  struct error *error)
{
    struct source *source = discovery->source, *beside = NULL;
    const char *reference = source->reference, *slash = strrchr(reference, '/');
    if (discovery->index_source) {
        beside = source_ref(discovery->index_source);
    } else if (!source->is_single_file) {
        source_open_beside(source, options, &beside, error);
    } else if (slash && (source->caps.has_folders ||
                         (source->ops->list_folders && activation_manifest_is_segment(source->files[0].name)))) {
        char *folder = memory_print("%.*s", (int)(slash - reference), reference);
        source_open(folder, options, &beside, error);
        free(folder);
    }
    return beside;
}

char *discover_manifest_name(const struct source *source)
{
    return manifest_name(source->is_single_file ? source->files[0].name : NULL);
}

static struct manifest *read_manifest(struct source *source, size_t file, const struct lookup *lookup, struct error *error)
{
    static const struct document_kind kind = {"a manifest", MANIFEST_MAX_BYTES, "MALFORMED_MANIFEST"};
    struct lookup uncounted = *lookup;
    struct document text;
    if (document_read(&uncounted, source, file, &kind, &text, error) < 0)
        return NULL;
    struct manifest *manifest = manifest_parse(text.text, text.bytes, error);
    if (manifest)
        document_keep(lookup, source, file, &text);
    document_free(&text);
    return manifest;
}

struct manifest *discover_manifest(const struct discovery *discovery, const struct source_options *options,
                                   const struct lookup *lookup, struct error *problem)
{
    char *name = discover_manifest_name(discovery->source);
    struct error error = {0};
    struct source *beside = open_beside(discovery, options, &error);
    struct manifest *manifest = NULL;
    size_t file;
    *problem = (struct error){0};
    if (beside && source_add_file(beside, name, &file, &error) == 0) {
        manifest = read_manifest(beside, file, lookup, &error);
        if (!manifest)
            *problem = error;
    } else if (beside && ((beside->caps.asks_server && !source_may_be_absent(beside, &error)) ||
                          error.kind == ERROR_KIND_SOURCE_BEING_WRITTEN)) {
        *problem = error; /* it is there, or may be: being written, or the server did not get to answer */
    }
    if (problem->code)
        error_prefix(problem, "%s", name);
    else if (beside && !manifest)
        manifest = activation_manifest_read(discovery->source, beside, options, lookup, problem);
    source_unref(beside);
    free(name);
    return manifest;
}
