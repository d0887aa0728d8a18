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
#include "resolve/part_names.h"
#include "resolve/safetensors.h"

enum { MAX_FILES = 10000 }; /* a file on disk costs two descriptors for the artifact's life */

/* --- the part files --- */

static void free_names(char **names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
}

/* Where nothing can be listed, nothing is. */
static int list_names(struct source *source, char ***names, size_t *n_names, struct error *error)
{
    *names = NULL;
    *n_names = 0;
    int failed = source_list(source, names, n_names, error);
    return failed && error->code == ERROR_UNIMPLEMENTED ? 0 : failed;
}

int discovery_list(struct discovery *discovery, struct error *error)
{
    if (discovery->is_listed)
        return 0;
    int failed = list_names(discovery->source, &discovery->listed, &discovery->n_listed, error);
    discovery->is_listed = !failed;
    return failed;
}

static void forget_listing(struct discovery *discovery)
{
    free_names(discovery->listed, discovery->n_listed);
    discovery->listed = NULL;
    discovery->n_listed = 0;
    discovery->is_listed = false;
}

int discovery_add_file(struct discovery *discovery, const char *name, struct error *error)
{
    size_t file;
    if (discovery->source->n_files == MAX_FILES)
        return fail(error, ERROR_UNIMPLEMENTED, "TOO_MANY_FILES", "more than %d part files", MAX_FILES);
    return source_add_file(discovery->source, name, &file, error);
}

int discovery_add_files(struct discovery *discovery, const char *const *names, size_t n_names, struct error *error)
{
    if (source_expect(discovery->source, names, n_names, error) < 0)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        if (discovery_add_file(discovery, names[i], error) < 0)
            return document_prefix(error, names[i]);
    }
    return 0;
}

static bool is_wanted(const struct discovery *discovery, const char *name)
{
    const struct activation_run *run = &discovery->run;
    uint32_t number;
    return activation_parse_segment(name, ACTIVATION_SEALED, &number) && number >= run->first && number <= run->last;
}

const char **discovery_listed_parts(const struct discovery *discovery, size_t *n_parts)
{
    const char **parts = memory_alloc_array(discovery->n_listed + 1, sizeof *parts);
    *n_parts = 0;
    for (size_t i = 0; i < discovery->n_listed; i++) {
        const char *name = discovery->listed[i];
        if (discovery->format->probe(name) && (!discovery->is_run || is_wanted(discovery, name)))
            parts[(*n_parts)++] = name;
    }
    return parts;
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
        failed = discovery_add_files(discovery, &one, 1, error);
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
        failed = discovery_add_files(discovery, segments, n_segments, error);
    *n_parts += n_segments;
    free(segments);
    free_names(names, n_names);
    return failed;
}

/* A folder without tensors of its own may be a store, whose hosts have a folder each. */
static int add_hosts(struct discovery *discovery, const struct source_options *options, size_t *n_parts, struct error *error)
{
    int failed = 0;
    if (discovery->source->ops->list_folders)
        return add_remote_hosts(discovery, n_parts, error);
    for (size_t i = 0; i < discovery->n_listed && !failed; i++) {
        uint32_t host;
        if (activation_parse_host(discovery->listed[i], &host))
            failed = add_host(discovery, discovery->listed[i], options, n_parts, error);
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

/* --- all there are --- */

/* Every rank has tensors of its own under the same names: together they are no checkpoint. */
static int check_ranks(const struct discovery *discovery, const char *const *names, size_t n_names, struct error *error)
{
    const char *reference = discovery->source->reference, *first;
    char text[TEXT_NAME_CHARS], file[TEXT_NAME_CHARS];
    bool have_parts;
    uint32_t n_ranks = part_names_count_ranks(names, n_names, &first, &have_parts);
    if (n_ranks < 2)
        return 0;
    text_escape(reference, strlen(reference), text);
    text_escape(first, strlen(first), file);
    return fail(
        error, ERROR_FAILED_PRECONDITION, "SHARDED_STATE",
        "%s is vLLM's sharded_state: files of %u tensor-parallel ranks, each with its own part of every tensor. Name "
        "the file of one rank: %s/%s%s. --tp-rank does not choose among them",
        text, n_ranks, text, file, have_parts ? ", or a folder that has the parts of one rank and no others" : "");
}

/* What was left out of the list by its name. */
static void note_variants(struct discovery *discovery, const char *const *names, size_t n_names)
{
    char file[TEXT_NAME_CHARS];
    if (n_names)
        notes_add(&discovery->notes,
                  n_names == 1
                      ? "%s is another variant of the same weights and is not read; a reference to that file reads it"
                      : "%s and %zu others are another variant of the same weights and are not read; a reference to "
                        "one of the files reads it",
                  text_escape(names[0], strlen(names[0]), file), n_names - 1);
}

/* A link that leads nowhere is no obstacle beside files that are known to be all there. `missing` is what opening it said. */
static int judge_dangling(struct discovery *discovery, const char *dangling, const char *const *names, size_t n_names,
                          const struct error *missing, struct error *error)
{
    char file[TEXT_NAME_CHARS];
    if (!dangling)
        return 0;
    if (!part_names_have_set(names, n_names)) {
        *error = *missing;
        return document_prefix(error, dangling);
    }
    notes_add(&discovery->notes, "%s leads to no file and is not read", text_escape(dangling, strlen(dangling), file));
    return 0;
}

/* These, without those that are folders. Compacts the list to what is there. */
static int add_parts(struct discovery *discovery, const char **names, size_t *n_names, struct error *error)
{
    struct error missing = {0};
    const char *dangling = NULL;
    size_t n_there = 0;
    if (source_expect(discovery->source, names, *n_names, error) < 0)
        return -1;
    for (size_t i = 0; i < *n_names; i++) {
        if (discovery_add_file(discovery, names[i], error) == 0) {
            names[n_there++] = names[i];
        } else if (error->code == ERROR_NOT_FOUND && !discovery->is_run) {
            dangling = dangling ? dangling : names[i];
            missing = *error;
        } else if (error->kind != ERROR_KIND_IS_A_FOLDER) {
            return document_prefix(error, names[i]);
        }
    }
    *n_names = n_there;
    return judge_dangling(discovery, dangling, names, n_there, &missing, error);
}

/* Of the folder itself. */
static int add_listed(struct discovery *discovery, size_t *n_parts, struct error *error)
{
    size_t n_all;
    const char **names = discovery_listed_parts(discovery, &n_all);
    int failed = 0;
    bool is_judged = !discovery->is_run && n_all <= MAX_FILES; /* more of them are refused anyway */
    *n_parts = is_judged ? part_names_drop_variants(names, n_all) : n_all;
    note_variants(discovery, names + *n_parts, n_all - *n_parts);
    if (is_judged)
        failed = check_ranks(discovery, names, *n_parts, error);
    if (!failed)
        failed = add_parts(discovery, names, n_parts, error);
    if (!failed && is_judged)
        discovery->gap = part_names_find_gap(names, *n_parts);
    free(names);
    return failed;
}

static int fail_nothing(const struct discovery *discovery, struct error *error)
{
    char text[TEXT_NAME_CHARS], strangers[2 * TEXT_NAME_CHARS] = "";
    const struct format *format = discovery->format;
    const char *reference = discovery->source->reference;
    text_escape(reference, strlen(reference), text);
    if (discovery->is_run)
        return fail(error, ERROR_NOT_FOUND, "NO_CHECKPOINT", "%s holds no segment from %u to %u", text, discovery->run.first,
                    discovery->run.last);
    describe_strangers(discovery->listed, discovery->n_listed, strangers, sizeof strangers);
    return fail(error, ERROR_NOT_FOUND, "NO_CHECKPOINT", "%s holds no " TOPOLOGY_NAME ", no %s and no %s file%s", text,
                format->index_names[0], format->pattern, strangers);
}

static int add_all_files(struct discovery *discovery, const struct source_options *options, struct error *error)
{
    size_t n_parts = 0;
    int failed = discovery_list(discovery, error);
    if (!failed)
        failed = add_listed(discovery, &n_parts, error);
    if (!failed && !n_parts)
        failed = add_hosts(discovery, options, &n_parts, error);
    discovery->has_all_files = true;
    if (failed)
        return fail_many_segments(discovery, error);
    return n_parts ? 0 : fail_nothing(discovery, error);
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

/* Every part file of the folder that is not there yet, in the order of names. */
static int add_others(struct discovery *discovery, struct error *error)
{
    struct source *source = discovery->source;
    struct map known;
    size_t n_names;
    const char **names = discovery_listed_parts(discovery, &n_names);
    int failed = 0;
    map_init(&known, source->n_files);
    for (size_t i = 0; i < source->n_files; i++)
        map_add(&known, source->files[i].name, strlen(source->files[i].name), 0);
    for (size_t i = 0; i < n_names && !failed; i++)
        if (map_find(&known, names[i], strlen(names[i])) == MAP_NONE)
            failed = discovery_add_files(discovery, &names[i], 1, error);
    map_fini(&known);
    free(names);
    return failed;
}

int discovery_add_shards(struct discovery *discovery, struct error *error)
{
    struct source *source = discovery->source;
    char **names, text[TEXT_NAME_CHARS];
    size_t n_names;
    discovery->has_all_files = true;
    int failed = source_list(source, &discovery->listed, &discovery->n_listed, error);
    if (!failed) {
        failed = add_others(discovery, error);
        forget_listing(discovery);
        return failed;
    }
    if (error->code != ERROR_UNIMPLEMENTED)
        return -1;
    if (!discovery->index_source)
        return fail(error, ERROR_FAILED_PRECONDITION, "SHARDS_NOT_LISTED",
                    "%s holds shards of a distributed checkpoint, but its files cannot be listed: it needs a %s that names "
                    "them",
                    text_escape(source->reference, strlen(source->reference), text), discovery->format->index_names[0]);
    const char **known = memory_alloc_array(source->n_files, sizeof *known);
    for (size_t i = 0; i < source->n_files; i++)
        known[i] = source->files[i].name;
    names = dcp_names_between(known, source->n_files, MAX_FILES, &n_names);
    free(known);
    failed = add_numbered(discovery, names, n_names, error);
    free_names(names, n_names);
    return failed;
}

static int find_files(struct discovery *discovery, const struct source_options *options, struct lookup *lookup,
                      struct error *error)
{
    struct source *source = discovery->source;
    if (discovery->is_run && !source->is_single_file)
        return add_all_files(discovery, options, error);
    const char *slash = strrchr(source->reference, '/'), *single = NULL;
    if (source->is_single_file)
        single = source->file_name ? source->file_name : slash ? slash + 1 : strchr(source->reference, ':') + 1;
    for (size_t i = 1; single && i < n_formats; i++)
        discovery->format = formats[i]->probe(single) ? formats[i] : discovery->format;
    if (single)
        return discovery_add_files(discovery, &single, 1, error);
    int found = discover_by_document(discovery, options, lookup, error);
    return found ? (found < 0 ? -1 : 0) : add_all_files(discovery, options, error);
}

int discover(const char *reference, const struct source_options *options, struct lookup *lookup, struct discovery *discovery,
             struct error *error)
{
    *discovery = (struct discovery){.format = formats[0], .run = {1, ACTIVATION_MAX_SEGMENT}};
    if (activation_store_open(reference, options, &discovery->source, &discovery->is_run, &discovery->run, error) < 0)
        return -1;
    if (discovery->is_run) {
        struct activation_run *run = &discovery->run;
        discovery->run_reference = memory_print("%s/segment_%06u-%06u", discovery->source->reference, run->first, run->last);
    }
    int failed = find_files(discovery, options, lookup, error);
    forget_listing(discovery);
    return failed;
}

void discovery_fini(struct discovery *discovery)
{
    source_unref(discovery->source);
    source_unref(discovery->index_source);
    free(discovery->run_reference);
    free(discovery->gap);
    forget_listing(discovery);
    notes_fini(&discovery->absent);
    notes_fini(&discovery->notes);
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
