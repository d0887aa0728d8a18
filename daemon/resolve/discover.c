/* See discover.h. Of a known checkpoint the index is looked at but not read: a table of an earlier resolve with the same index
 * knows the file names. Failure modes: nothing to load, a missing file, a link that leads nowhere, a malformed document, an index of
 * which no file is there and nothing else is. */
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

/* Once. Where nothing can be listed, nothing is. */
static int list_folder(struct discovery *discovery, struct error *error)
{
    if (discovery->is_listed)
        return 0;
    discovery->is_listed = source_list(discovery->source, NULL, &discovery->listed, &discovery->n_listed, error) == 0 ||
                           error->code == ERROR_UNIMPLEMENTED;
    return discovery->is_listed ? 0 : -1;
}

static void forget_listing(struct discovery *discovery)
{
    free_names(discovery->listed, discovery->n_listed);
    discovery->listed = NULL;
    discovery->n_listed = 0;
    discovery->is_listed = false;
}

static int add_file(struct discovery *discovery, const char *name, struct error *error)
{
    size_t file;
    if (discovery->source->n_files == MAX_FILES)
        return fail(error, ERROR_UNIMPLEMENTED, "TOO_MANY_FILES", "more than %d part files", MAX_FILES);
    return source_add_file(discovery->source, name, &file, error);
}

static int add_files(struct discovery *discovery, const char *const *names, size_t n_names, struct error *error)
{
    if (source_expect(discovery->source, names, n_names, error) < 0)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        if (add_file(discovery, names[i], error) < 0)
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

/* The part files of the listing, borrowed; the caller frees the array. */
static const char **listed_parts(const struct discovery *discovery, size_t *n_parts)
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

/* A folder without tensors of its own may be a store, whose hosts have a folder each. */
static int add_hosts(struct discovery *discovery, size_t *n_parts, struct error *error)
{
    char **names;
    size_t n_names, n_segments = 0;
    int failed = activation_store_list(discovery->source, &names, &n_names, error);
    if (failed && error->code == ERROR_UNIMPLEMENTED)
        failed = 0;
    const char **segments = memory_alloc_array(n_names + 1, sizeof *segments);
    for (size_t i = 0; i < n_names && !failed; i++) {
        if (is_wanted(discovery, strchr(names[i], '/') + 1))
            segments[n_segments++] = names[i];
    }
    if (!failed)
        failed = add_files(discovery, segments, n_segments, error);
    *n_parts += n_segments;
    free(segments);
    free_names(names, n_names);
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
    text[0] = '\0';
    for (size_t k = 0; k < sizeof strangers / sizeof strangers[0]; k++) {
        for (size_t i = 0; i < n_names; i++) {
            size_t length = strlen(names[i]);
            if (!text_ends_with(names[i], length, strangers[k].suffix))
                continue;
            snprintf(text, room, "; it holds %s: %s", text_show_bytes(names[i], length), strangers[k].remedy);
            return;
        }
    }
}

/* A store that is too large to be one artifact is several. */
static int fail_many_segments(const struct discovery *discovery, struct error *error)
{
    const struct source *source = discovery->source;
    bool is_too_many = error->code == ERROR_UNIMPLEMENTED || error->code == ERROR_RESOURCE_EXHAUSTED;
    if (!is_too_many || discovery->is_run || source->n_files == 0 || !activation_is_segment(source->files[0].name))
        return -1;
    error_prefix(error, "a store of so many segments is read some at a time, as %s/segment_000001-000100",
                 text_show(source->reference));
    return -1;
}

/* --- all there are --- */

/* Every rank has tensors of its own under the same names: together they are no checkpoint. */
static int check_ranks(const struct discovery *discovery, const char *const *names, size_t n_names, struct error *error)
{
    const char *reference = discovery->source->reference, *first;
    bool have_parts;
    uint32_t n_ranks = part_names_count_ranks(names, n_names, &first, &have_parts);
    if (n_ranks < 2)
        return 0;
    const char *text = text_show(reference);
    const char *file = text_show(first);
    return fail(
        error, ERROR_FAILED_PRECONDITION, "SHARDED_STATE",
        "%s is vLLM's sharded_state: files of %u tensor-parallel ranks, each with its own part of every tensor. Name "
        "the file of one rank: %s/%s%s. --tp-rank does not choose among them",
        text, n_ranks, text, file, have_parts ? ", or a folder that has the parts of one rank and no others" : "");
}

/* These, without those that are folders. Compacts the list to what is there. A link that leads nowhere is no obstacle beside files
 * that are known to be all there. */
static int add_parts(struct discovery *discovery, const char **names, size_t *n_names, struct error *error)
{
    struct error missing = {0};
    const char *dangling = NULL;
    size_t n_there = 0;
    if (source_expect(discovery->source, names, *n_names, error) < 0)
        return -1;
    for (size_t i = 0; i < *n_names; i++) {
        if (add_file(discovery, names[i], error) == 0) {
            names[n_there++] = names[i];
        } else if (error->code == ERROR_NOT_FOUND && !discovery->is_run) {
            dangling = dangling ? dangling : names[i];
            missing = *error;
        } else if (error->kind != ERROR_KIND_IS_A_FOLDER) {
            return document_prefix(error, names[i]);
        }
    }
    *n_names = n_there;
    if (dangling && !part_names_have_set(names, n_there)) {
        *error = missing;
        return document_prefix(error, dangling);
    }
    if (dangling)
        notes_add(&discovery->notes, "%s leads to no file and is not read", text_show(dangling));
    return 0;
}

/* Of the folder itself. */
static int add_listed(struct discovery *discovery, size_t *n_parts, struct error *error)
{
    size_t n_all;
    const char **names = listed_parts(discovery, &n_all);
    int failed = 0;
    bool is_judged = !discovery->is_run && n_all <= MAX_FILES; /* more of them are refused anyway */
    *n_parts = is_judged ? part_names_drop_variants(names, n_all) : n_all;
    if (*n_parts < n_all)
        notes_add(&discovery->notes,
                  n_all - *n_parts == 1
                      ? "%s is another variant of the same weights and is not read; a reference to that file reads it"
                      : "%s and %zu others are another variant of the same weights and are not read; a reference to "
                        "one of the files reads it",
                  text_show(names[*n_parts]), n_all - *n_parts - 1);
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
    char strangers[2 * TEXT_NAME_CHARS] = "";
    const struct format *format = discovery->format;
    const char *reference = discovery->source->reference;
    const char *text = text_show(reference);
    if (discovery->is_run)
        return fail(error, ERROR_NOT_FOUND, "NO_CHECKPOINT", "%s holds no segment from %u to %u", text, discovery->run.first,
                    discovery->run.last);
    describe_strangers(discovery->listed, discovery->n_listed, strangers, sizeof strangers);
    return fail(error, ERROR_NOT_FOUND, "NO_CHECKPOINT", "%s holds no " TOPOLOGY_NAME ", no %s and no %s file%s", text,
                format->index_names[0], format->pattern, strangers);
}

static int add_all_files(struct discovery *discovery, struct error *error)
{
    size_t n_parts = 0;
    int failed = list_folder(discovery, error);
    if (!failed)
        failed = add_listed(discovery, &n_parts, error);
    if (!failed && !n_parts)
        failed = add_hosts(discovery, &n_parts, error);
    discovery->has_all_files = true;
    if (failed)
        return fail_many_segments(discovery, error);
    return n_parts ? 0 : fail_nothing(discovery, error);
}

/* --- shards --- */

/* Every part file of the folder that is not there yet, in the order of names. */
static int add_others(struct discovery *discovery, struct error *error)
{
    struct source *source = discovery->source;
    struct map known;
    size_t n_names;
    const char **names = listed_parts(discovery, &n_names);
    int failed = 0;
    map_init(&known, source->n_files);
    for (size_t i = 0; i < source->n_files; i++)
        map_add(&known, source->files[i].name, strlen(source->files[i].name), 0);
    for (size_t i = 0; i < n_names && !failed; i++)
        if (map_find(&known, names[i], strlen(names[i])) == MAP_NONE)
            failed = add_files(discovery, &names[i], 1, error);
    map_fini(&known);
    free(names);
    return failed;
}

int discovery_add_shards(struct discovery *discovery, struct error *error)
{
    struct source *source = discovery->source;
    char **names;
    size_t n_names, file;
    discovery->has_all_files = true;
    int failed = source_list(source, NULL, &discovery->listed, &discovery->n_listed, error);
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
                    text_show(source->reference), discovery->format->index_names[0]);
    const char **known = memory_alloc_array(source->n_files, sizeof *known);
    for (size_t i = 0; i < source->n_files; i++)
        known[i] = source->files[i].name;
    names = dcp_names_between(known, source->n_files, MAX_FILES, &n_names);
    free(known);
    failed = source_expect(source, (const char *const *)names, n_names, error);
    for (size_t i = 0; i < n_names && !failed; i++) /* those that may be there; a rank may have saved nothing */
        if (source->n_files < MAX_FILES && source_add_file(source, names[i], &file, error) < 0 &&
            !source_may_be_absent(source, error))
            failed = document_prefix(error, names[i]);
    free_names(names, n_names);
    return failed;
}

/* --- the documents that say which files count --- */

/* 1 = it is open, as the only file of index_source; 0 = there is none. */
static int open_document(struct discovery *discovery, const char *name, struct error *error)
{
    size_t file;
    if (source_add_file(discovery->index_source, name, &file, error) == 0) {
        discovery->document_name = name;
        return 1;
    }
    /* a server that lists nothing may hide what is not there behind "forbidden"; then the checkpoint itself must be readable */
    return source_may_be_absent(discovery->source, error) ? 0 : -1;
}

static bool is_listed(const struct discovery *discovery, const char *name)
{
    for (size_t i = 0; i < discovery->n_listed; i++)
        if (strcmp(discovery->listed[i], name) == 0)
            return true;
    return false;
}

/* A link that leads nowhere is listed but cannot be opened. Without this check such a document would count as missing, and
 * the parts that exist would count as the whole. Of those that were looked for before pair `end`. */
static int check_dangling(struct discovery *discovery, size_t end, struct error *error)
{
    const char *dangling = NULL;
    if (list_folder(discovery, error) < 0)
        return -1;
    if (is_listed(discovery, TOPOLOGY_NAME))
        dangling = TOPOLOGY_NAME;
    for (size_t i = 0; i < end && !dangling; i++)
        dangling = is_listed(discovery, discovery->format->index_names[i]) ? discovery->format->index_names[i] : NULL;
    return dangling ? fail(error, ERROR_NOT_FOUND, "DANGLING_LINK", "%s leads to no file", dangling) : 0;
}

int discovery_need_document(struct discovery *discovery, struct lookup *lookup, struct error *error)
{
    struct source *source = discovery->index_source;
    struct document *text = &discovery->index_text;
    bool is_topology = discovery->is_topology;
    const char *name = discovery->document_name;
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
    if (discovery->index)
        discovery->index->document = name;
    document_keep(lookup, source, 0, text);
    return 0;
}

/* --- the files that it names --- */

/* Those that are there; the others are absent. */
static int add_those_there(struct discovery *discovery, const char *const *names, size_t n_names, struct error *error)
{
    if (source_expect(discovery->source, names, n_names, error) < 0)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        if (add_file(discovery, names[i], error) == 0)
            continue;
        if (error->code != ERROR_NOT_FOUND)
            return document_prefix(error, names[i]);
        notes_add(&discovery->absent, "%s", names[i]);
    }
    return 0;
}

static void forget_document(struct discovery *discovery)
{
    source_unref(discovery->index_source);
    shard_index_destroy(discovery->index);
    document_free(&discovery->index_text);
    discovery->index_source = NULL;
    discovery->index = NULL;
    discovery->document_name = NULL;
    notes_fini(&discovery->absent);
}

/* The one complete set that the folder has. Returns how many files that are, 0 = there is none; -1. */
static int add_set(struct discovery *discovery, struct error *error)
{
    size_t n_names;
    if (list_folder(discovery, error) < 0)
        return -1;
    const char **names = listed_parts(discovery, &n_names);
    if (n_names > SHARD_INDEX_MAX_FILES) /* too many for a checkpoint */
        n_names = 0;
    n_names = part_names_keep_set(names, part_names_drop_variants(names, n_names));
    int failed = n_names ? add_files(discovery, names, n_names, error) : 0;
    free(names);
    return failed ? -1 : (int)n_names;
}

/* With what the folder has instead. */
static int fail_stale(struct discovery *discovery, struct error *error)
{
    size_t n_names;
    char other[2 * TEXT_NAME_CHARS] = "";
    const char **names = listed_parts(discovery, &n_names), *absent = discovery->absent.texts[0];
    if (n_names > SHARD_INDEX_MAX_FILES)
        n_names = 0;
    char *gap = part_names_find_gap(names, part_names_drop_variants(names, n_names));
    if (gap)
        snprintf(other, sizeof other, ", and of the files that are there %s is missing", text_show(gap));
    free(gap);
    free(names);
    const char *document = discovery->document_name;
    const char *file = text_show(absent);
    if (discovery->absent.n == 1)
        fail(error, ERROR_NOT_FOUND, "INDEX_STALE", "%s, the only file that %s names, is not there%s", file, document,
             other);
    else
        fail(error, ERROR_NOT_FOUND, "INDEX_STALE", "%s: none of the %zu files that %s names is there%s", file,
             discovery->absent.n, document, other);
    return error_note(error, "file", "%s", absent);
}

/* No file of the index is there. */
static int pass_over(struct discovery *discovery, size_t pair, struct error *error)
{
    const char *single = discovery->format->single_names[pair], *document = discovery->document_name;
    size_t n_absent = discovery->absent.n;
    int n_files = 1;
    if (add_file(discovery, single, error) < 0) {
        if (error->code != ERROR_NOT_FOUND)
            return document_prefix(error, single);
        n_files = add_set(discovery, error);
        if (n_files <= 0)
            return n_files ? -1 : fail_stale(discovery, error);
    }
    const char *name = discovery->source->files[0].name;
    notes_add(&discovery->notes,
              "%s is stale and was passed over, because none of the files that it names (%zu) is there; %s%s read", document,
              n_absent, text_show(name), n_files == 1 ? " is" : " and the other files of its set are");
    forget_document(discovery);
    return 0;
}

/* The single file of older or newer weights may lie beside an index that counts. */
static int note_single(struct discovery *discovery, size_t pair, struct error *error)
{
    const char *single = discovery->format->single_names[pair];
    const struct source *source = discovery->source;
    if (list_folder(discovery, error) < 0)
        return -1;
    for (size_t i = 0; i < source->n_files; i++)
        if (strcmp(source->files[i].name, single) == 0)
            return 0;
    if (is_listed(discovery, single))
        notes_add(&discovery->notes, "%s says which files are read; %s beside it is none of them", discovery->document_name,
                  single);
    return 0;
}

/* The files that the document names: from the table of an earlier resolve with the same document, or from the document itself. */
static int add_named(struct discovery *discovery, size_t pair, struct lookup *lookup, struct error *error)
{
    const struct source_identity *identity = discovery_index_identity(discovery);
    struct artifact_table *hint = NULL;
    if (lookup_cache(lookup, discovery->index_source, 0) && !lookup->fresh)
        hint = header_cache_find_value(lookup->cache, HEADER_CACHE_TABLES, identity, sizeof *identity);
    if (!hint && discovery_need_document(discovery, lookup, error) < 0)
        return -1;
    const char *const *names = hint                  ? (const char *const *)hint->file_names
                               : discovery->topology ? discovery->topology->files
                                                     : discovery->index->files;
    size_t n_names = hint ? hint->n_files : discovery->topology ? discovery->topology->n_files : discovery->index->n_files;
    int failed = discovery->is_topology ? add_files(discovery, names, n_names, error)
                                        : add_those_there(discovery, names, n_names, error);
    artifact_table_unref(hint);
    if (failed || discovery->is_topology)
        return failed;
    return discovery->source->n_files ? note_single(discovery, pair, error) : pass_over(discovery, pair, error);
}

/* Of a folder: 1 = its document, or the name of its only file, has told; 0 = there is neither. */
static int look_for_documents(struct discovery *discovery, const struct source_options *options, struct lookup *lookup,
                              struct error *error)
{
    const struct format *format = discovery->format;
    struct error hidden = {0};
    size_t pair = 0;
    if (source_open_beside(discovery->source, options, &discovery->index_source, error) < 0)
        return -1;
    int found = open_document(discovery, TOPOLOGY_NAME, error);
    discovery->is_topology = found > 0;
    if (found > 0)
        return add_named(discovery, 0, lookup, error) < 0 ? -1 : 1;
    for (; !found && format->single_names[pair]; pair++) {
        found = open_document(discovery, format->index_names[pair], error);
        if (found > 0)
            return check_dangling(discovery, pair, error) || add_named(discovery, pair, lookup, error) ? -1 : 1;
        if (found)
            continue;
        const char *single = format->single_names[pair];
        found = add_file(discovery, single, error) == 0;
        if (found)
            continue;
        document_prefix(error, single);
        if (!source_may_be_absent(discovery->source, error))
            found = -1;
        else if (error->code != ERROR_NOT_FOUND && !hidden.code)
            hidden = *error; /* it may be there: the first error is kept */
    }
    forget_document(discovery);
    if (found < 0 || check_dangling(discovery, pair, error) < 0)
        return -1;
    if (found || !hidden.code)
        return found;
    *error = hidden;
    return -1;
}

/* --- the whole --- */

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
    const struct source *source = discovery->source;
    const char *slash = strrchr(source->reference, '/'), *single = NULL;
    int found = 0;
    if (source->is_single_file)
        single = source->file_name ? source->file_name : slash ? slash + 1 : strchr(source->reference, ':') + 1;
    for (size_t i = 1; single && i < n_formats; i++)
        discovery->format = formats[i]->probe(single) ? formats[i] : discovery->format;
    if (single)
        found = add_files(discovery, &single, 1, error) < 0 ? -1 : 1;
    else if (!discovery->is_run)
        found = look_for_documents(discovery, options, lookup, error);
    if (!found)
        found = add_all_files(discovery, error);
    forget_listing(discovery);
    return found < 0 ? -1 : 0;
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
    } else if (slash && (source->caps.has_folders || activation_is_segment(source->files[0].name))) {
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
