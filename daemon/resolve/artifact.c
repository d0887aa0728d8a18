/* Resolving: which files count, what they hold, whether they agree. Happy path of a known checkpoint: the index file is
 * looked at but not read, the part files are opened, their identities make the key of a table that is there already.
 * Otherwise headers come from the cache or from the files. Failure modes: nothing to load, a missing or malformed file,
 * a name twice, an index that disagrees. */
#include "resolve/artifact.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/parallel.h"
#include "base/text.h"
#include "resolve/artifact_table.h"
#include "resolve/header_cache.h"
#include "resolve/resolving.h"
#include "resolve/safetensors.h"
#include "resolve/shard_index.h"
#include "resolve/source_format.h"

#define MODEL_NAME "model.safetensors"
#define SUFFIX ".safetensors"
enum {
    MAX_FILES = 10000,
    MAX_TENSORS = 1 << 24,
    READ_AHEAD_BYTES = 64 << 20
}; /* a file on disk costs two descriptors for the artifact's life */

struct resolver {
    struct header_cache *cache;
    bool fresh;
    struct source *source;
    struct source *index_source; /* with the index document as its only file; NULL = there is none */
    struct artifact_table *hint; /* of an earlier resolve with the same index: knows the file names */
    struct shard_index *index;   /* parsed only when needed */
    char *index_json;
    struct manifest *manifest; /* NULL = there is none, or a problem with it */
    struct error manifest_problem;
    uint64_t bytes_read;
    struct error *error;
};

static int prefix_file(struct error *error, const char *name)
{
    char text[TEXT_NAME_CHARS];
    if (!strstr(error->message, text_escape(name, strlen(name), text))) /* a message about a path names it */
        error_prefix(error, "%s", text);
    return error_note(error, "file", "%s", name);
}

static int read_bytes(struct resolver *resolver, struct source *source, size_t file, uint64_t offset, void *bytes,
                      uint64_t count, struct error *error)
{
    __atomic_add_fetch(&resolver->bytes_read, count, __ATOMIC_RELAXED);
    return count ? source_read_bytes(source, file, offset, bytes, count, error) : 0;
}

/* Whether what the cache has of the file, or gets, is what the file holds: its identity tells that. */
static struct header_cache *cache_for(const struct resolver *resolver, const struct source *source, size_t file)
{
    return source->files[file].changes_by == CHANGES_RACY ? NULL : resolver->cache;
}

/* --- the index document --- */

static const struct source_identity *index_identity(const struct resolver *resolver)
{
    return &resolver->index_source->files[0].identity;
}

/* Where nothing can be listed, nothing is. */
static int list_names(struct resolver *resolver, char ***names, size_t *n_names)
{
    *names = NULL;
    *n_names = 0;
    int failed = source_list(resolver->source, names, n_names, resolver->error);
    return failed && resolver->error->code == ERROR_UNIMPLEMENTED ? 0 : failed;
}

/* A link that leads nowhere is listed but cannot be opened. Without this check an index that is one would be taken for no
 * index, and whatever parts are there for the whole. */
static int fail_if_listed(struct resolver *resolver, const char *name)
{
    char **names;
    size_t n_names;
    bool listed = false;
    int failed = list_names(resolver, &names, &n_names);
    for (size_t i = 0; i < n_names; i++) {
        listed = listed || strcmp(names[i], name) == 0;
        free(names[i]);
    }
    free(names);
    return failed || !listed ? failed : fail(resolver->error, ERROR_NOT_FOUND, "DANGLING_LINK", "%s leads to no file", name);
}

/* Opens the index document when the directory has one. */
static int open_index(struct resolver *resolver, const struct source_options *options)
{
    size_t file;
    if (source_open_beside(resolver->source, options, &resolver->index_source, resolver->error) < 0)
        return -1;
    if (source_add_file(resolver->index_source, SHARD_INDEX_NAME, &file, resolver->error) == 0)
        return 0;
    source_unref(resolver->index_source);
    resolver->index_source = NULL;
    /* a server that lists nothing may hide what is not there behind "forbidden"; then the checkpoint itself must be readable
     */
    bool may_be_absent = source_may_be_absent(resolver->source, resolver->error);
    return may_be_absent ? fail_if_listed(resolver, SHARD_INDEX_NAME) : -1;
}

/* From the source, although the cache may have it. */
static int read_index(struct resolver *resolver, uint64_t *json_bytes)
{
    *json_bytes = resolver->index_source->files[0].size_bytes;
    if (*json_bytes > SHARD_INDEX_MAX_BYTES)
        return fail(resolver->error, ERROR_DATA_LOSS, "MALFORMED_INDEX", "%llu bytes are too many for an index",
                    (unsigned long long)*json_bytes);
    resolver->index_json = metadata_alloc(*json_bytes, resolver->error);
    if (!resolver->index_json)
        return -1;
    return read_bytes(resolver, resolver->index_source, 0, 0, resolver->index_json, *json_bytes, resolver->error);
}

static int parse_index(struct resolver *resolver)
{
    const struct source_identity *identity = index_identity(resolver);
    struct header_cache *cache = cache_for(resolver, resolver->index_source, 0);
    uint64_t json_bytes;
    bool known = cache && !resolver->fresh && header_cache_find_index(cache, identity, &resolver->index_json, &json_bytes);
    if (!known &&
        (read_index(resolver, &json_bytes) < 0 || source_check_still(resolver->index_source, 0, resolver->error) < 0))
        return -1;
    resolver->index = shard_index_parse(resolver->index_json, json_bytes, resolver->error);
    if (resolver->index && cache && !known)
        header_cache_add_index(cache, identity, resolver->index_json, json_bytes);
    return resolver->index ? 0 : -1;
}

static int need_index(struct resolver *resolver)
{
    return resolver->index || parse_index(resolver) == 0 ? 0 : prefix_file(resolver->error, SHARD_INDEX_NAME);
}

/* --- the manifest --- */

static int read_manifest(struct resolver *resolver, struct source *source, size_t file)
{
    const struct source_file *document = &source->files[file];
    struct header_cache *cache = cache_for(resolver, source, file);
    char *json = NULL;
    uint64_t json_bytes = document->size_bytes;
    if (json_bytes > MANIFEST_MAX_BYTES)
        return fail(resolver->error, ERROR_DATA_LOSS, "MALFORMED_MANIFEST", "%llu bytes are too many for a manifest",
                    (unsigned long long)json_bytes);
    bool known = cache && !resolver->fresh && header_cache_find_index(cache, &document->identity, &json, &json_bytes);
    if (!known && !(json = metadata_alloc(json_bytes, resolver->error)))
        return -1;
    if (!known && ((json_bytes && source_read_bytes(source, file, 0, json, json_bytes, resolver->error) < 0) ||
                   source_check_still(source, file, resolver->error) < 0)) {
        metadata_free(json);
        return -1;
    }
    resolver->manifest = manifest_parse(json, json_bytes, resolver->error);
    if (resolver->manifest && cache && !known)
        header_cache_add_index(cache, &document->identity, json, json_bytes);
    metadata_free(json);
    return resolver->manifest ? 0 : -1;
}

/* The folder that a reference to a single file is in. NULL for a single object of a store: what lies beside it in a bucket
 * or on a web server mostly belongs to something else, and a query may be part of its address. */
static char *folder_of(const struct source *source)
{
    const char *reference = source->reference, *slash = strrchr(reference, '/');
    if (!source->is_single_file)
        return memory_copy_text(reference);
    return slash && source->caps.has_folders ? memory_print("%.*s", (int)(slash - reference), reference) : NULL;
}

/* A reference as it is shown may lack its query: it is not opened again. */
static int open_beside(struct source *source, const char *folder, const struct source_options *options,
                       struct source **beside, struct error *error)
{
    return source->is_single_file ? source_open(folder, options, beside, error)
                                  : source_open_beside(source, options, beside, error);
}

static char *manifest_name_of(const struct source *source)
{
    return manifest_name(source->is_single_file ? source->files[0].name : NULL);
}

/* 0 also when there is none; one that is being written is there, and so may be one that a server did not get to answer for.
 */
static int open_manifest(struct resolver *resolver, struct source *beside, const char *name)
{
    size_t file;
    if (source_add_file(beside, name, &file, resolver->error) == 0)
        return read_manifest(resolver, beside, file);
    bool is_elsewhere = beside->caps.asks_server && !source_may_be_absent(beside, resolver->error);
    return is_elsewhere || resolver->error->kind == ERROR_KIND_SOURCE_BEING_WRITTEN ? -1 : 0;
}

/* Looks beside the checkpoint. Whether a manifest that cannot be used is an error is for verification to decide. */
static void find_manifest(struct resolver *resolver, const struct source_options *options)
{
    char *folder = folder_of(resolver->source), *name = manifest_name_of(resolver->source);
    struct error *outer = resolver->error, problem = {0};
    struct source *beside = resolver->index_source ? source_ref(resolver->index_source) : NULL;
    resolver->error = &problem;
    if (!beside && folder)
        open_beside(resolver->source, folder, options, &beside, &problem);
    if (beside && open_manifest(resolver, beside, name) < 0)
        resolver->manifest_problem = problem;
    if (resolver->manifest_problem.code)
        error_prefix(&resolver->manifest_problem, "%s", name);
    resolver->error = outer;
    source_unref(beside);
    free(folder);
    free(name);
}

/* --- which files --- */

static int add_file(struct resolver *resolver, const char *name)
{
    size_t file;
    if (resolver->source->n_files == MAX_FILES)
        return fail(resolver->error, ERROR_UNIMPLEMENTED, "TOO_MANY_FILES", "more than %d part files", MAX_FILES);
    return source_add_file(resolver->source, name, &file, resolver->error);
}

static int add_files(struct resolver *resolver, const char *const *names, size_t n_names)
{
    if (source_expect(resolver->source, names, n_names, resolver->error) < 0)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        if (add_file(resolver, names[i]) < 0)
            return prefix_file(resolver->error, names[i]);
    }
    return 0;
}

static int add_indexed_files(struct resolver *resolver)
{
    if (cache_for(resolver, resolver->index_source, 0) && !resolver->fresh)
        resolver->hint = header_cache_find_table(resolver->cache, index_identity(resolver), sizeof(struct source_identity));
    if (resolver->hint)
        return add_files(resolver, resolver->hint->file_names, resolver->hint->n_files);
    return need_index(resolver) < 0 ? -1 : add_files(resolver, resolver->index->files, resolver->index->n_files);
}

/* Hidden files are left out: "._model.safetensors" is what macOS leaves beside a copy. */
static bool is_part_file(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SUFFIX);
    return name[0] != '.' && length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static int add_all_files(struct resolver *resolver)
{
    char **names, text[TEXT_NAME_CHARS];
    size_t n_names, n_parts = 0;
    int failed = list_names(resolver, &names, &n_names);
    for (size_t i = 0; i < n_names; i++) {
        if (!failed && is_part_file(names[i])) {
            failed = add_files(resolver, (const char *const *)&names[i], 1);
            n_parts++;
        }
        free(names[i]);
    }
    free(names);
    if (failed || n_parts)
        return failed;
    const char *reference = resolver->source->reference;
    return fail(resolver->error, ERROR_NOT_FOUND, "NO_CHECKPOINT",
                "%s holds no " SHARD_INDEX_NAME " and no *" SUFFIX " file", text_escape(reference, strlen(reference), text));
}

static const char *single_file_name(const struct source *source)
{
    const char *slash = strrchr(source->reference, '/');
    return source->file_name ? source->file_name : slash ? slash + 1 : strchr(source->reference, ':') + 1;
}

static int discover(struct resolver *resolver, const struct source_options *options)
{
    const char *single = resolver->source->is_single_file ? single_file_name(resolver->source) : NULL;
    if (single)
        return add_files(resolver, &single, 1);
    if (open_index(resolver, options) < 0)
        return -1;
    if (resolver->index_source)
        return add_indexed_files(resolver);
    if (add_file(resolver, MODEL_NAME) == 0)
        return 0;
    return resolver->error->code == ERROR_NOT_FOUND ? add_all_files(resolver) : prefix_file(resolver->error, MODEL_NAME);
}

/* --- what they hold --- */

static void add_worst(const struct source *source, enum change_detector *worst, const char **reason)
{
    for (size_t i = 0; i < source->n_files; i++) {
        const struct source_file *file = &source->files[i];
        if (file->changes_by <= *worst)
            continue;
        *worst = file->changes_by;
        *reason = file->changes_reason;
    }
}

/* reason may be NULL. */
static enum change_detector worst_detector(const struct resolver *resolver, const char **reason)
{
    enum change_detector worst = CHANGES_BY_VERSION;
    const char *why = "";
    add_worst(resolver->source, &worst, &why);
    if (resolver->index_source)
        add_worst(resolver->index_source, &worst, &why);
    if (reason)
        *reason = why;
    return worst;
}

static void add_file_key(struct digest *digest, const struct source_file *file)
{
    digest_add_text(digest, file->name);
    digest_add(digest, &file->identity, sizeof file->identity);
}

/* For the source key. */
static void identify(const struct resolver *resolver, char key[DIGEST_HEX_CHARS + 1])
{
    unsigned char out[DIGEST_BYTES];
    struct digest *digest = digest_create();
    for (size_t i = 0; i < resolver->source->n_files; i++)
        add_file_key(digest, &resolver->source->files[i]);
    if (resolver->index_source)
        add_file_key(digest, &resolver->index_source->files[0]);
    digest_finish(digest, out);
    digest_hex(out, sizeof out, key);
}

static void add_file_identity(struct digest *digest, const struct source_file *file, struct safetensors_header *header)
{
    struct source_file without_span = *file;
    without_span.identity.lease_span = 0;
    add_file_key(digest, &without_span);
    if (header)
        digest_add(digest, header->prefix_crcs, sizeof header->prefix_crcs);
}

/* What clients know the artifact by: a span ends with a load, but what they were told of the tensors is true as long as the
 * headers are the same. They count always, not only while times tell too little, which is soon over. */
static void identify_for_clients(const struct resolver *resolver, struct artifact_table *table,
                                 char identity[DIGEST_HEX_CHARS + 1])
{
    unsigned char out[DIGEST_BYTES];
    struct digest *digest = digest_create();
    for (size_t i = 0; i < resolver->source->n_files; i++)
        add_file_identity(digest, &resolver->source->files[i], table->headers[i]);
    if (resolver->index_source)
        add_file_identity(digest, &resolver->index_source->files[0], NULL);
    digest_finish(digest, out);
    digest_hex(out, sizeof out, identity);
}

struct header_reader {
    struct resolver *resolver;
    struct safetensors_header **headers; /* one per file */
    size_t n_tensors;                    /* atomic */
    pthread_mutex_t lock;                /* of what follows */
    pthread_cond_t is_less;
    uint64_t reading_bytes; /* announced by the headers that are being read */
};

/* Large headers are read one after the other, so that as many parts as threads do not multiply what one needs. */
static void begin_reading(struct header_reader *reader, uint64_t bytes)
{
    pthread_mutex_lock(&reader->lock);
    while (reader->reading_bytes && reader->reading_bytes + bytes > READ_AHEAD_BYTES)
        pthread_cond_wait(&reader->is_less, &reader->lock);
    reader->reading_bytes += bytes;
    pthread_mutex_unlock(&reader->lock);
}

static void end_reading(struct header_reader *reader, uint64_t bytes)
{
    pthread_mutex_lock(&reader->lock);
    reader->reading_bytes -= bytes;
    pthread_cond_broadcast(&reader->is_less);
    pthread_mutex_unlock(&reader->lock);
}

static struct safetensors_header *read_json(struct resolver *resolver, size_t file, uint64_t json_bytes, struct error *error)
{
    const struct source_file *part = &resolver->source->files[file];
    struct safetensors_header *header = NULL;
    char *json = metadata_alloc(json_bytes, error);
    if (!json)
        return NULL;
    struct header_cache *cache = cache_for(resolver, resolver->source, file);
    if (read_bytes(resolver, resolver->source, file, 8, json, json_bytes, error) == 0 &&
        source_check_still(resolver->source, file, error) == 0)
        header = safetensors_parse(json, json_bytes, part->size_bytes, error);
    if (header && cache)
        header_cache_add(cache, &part->identity, header, json, json_bytes);
    metadata_free(json);
    return header;
}

static struct safetensors_header *read_header(struct header_reader *reader, size_t file, struct error *error)
{
    struct resolver *resolver = reader->resolver;
    const struct source_file *part = &resolver->source->files[file];
    unsigned char first[8];
    uint64_t json_bytes;
    if (part->size_bytes < sizeof first) {
        fail(error, ERROR_DATA_LOSS, "HEADER_TOO_SMALL", "a file of %llu bytes has no room for a header",
             (unsigned long long)part->size_bytes);
        return NULL;
    }
    if (read_bytes(resolver, resolver->source, file, 0, first, sizeof first, error) < 0 ||
        safetensors_header_length(first, part->size_bytes, &json_bytes, error) < 0)
        return NULL;
    begin_reading(reader, json_bytes);
    struct safetensors_header *header = read_json(resolver, file, json_bytes, error);
    end_reading(reader, json_bytes);
    return header;
}

static int get_header(void *data, size_t file, struct error *error)
{
    struct header_reader *reader = data;
    struct resolver *resolver = reader->resolver;
    const struct source_file *part = &resolver->source->files[file];
    struct safetensors_header *known = NULL;
    struct header_cache *cache = cache_for(resolver, resolver->source, file);
    if (cache && !resolver->fresh)
        known = header_cache_find(cache, &part->identity);
    if (!known)
        known = read_header(reader, file, error);
    reader->headers[file] = known;
    if (!known)
        return prefix_file(error, part->name);
    if (__atomic_add_fetch(&reader->n_tensors, known->n_tensors, __ATOMIC_RELAXED) > MAX_TENSORS)
        return fail(error, ERROR_UNIMPLEMENTED, "TOO_MANY_TENSORS", "more than %d tensors", MAX_TENSORS);
    return 0;
}

/* What is far away is read many files at a time. */
static int get_headers(struct resolver *resolver, struct safetensors_header **headers)
{
    struct header_reader reader = {
        .resolver = resolver, .headers = headers, .lock = PTHREAD_MUTEX_INITIALIZER, .is_less = PTHREAD_COND_INITIALIZER};
    const struct source *source = resolver->source;
    size_t n_threads = source->caps.reads_are_requests ? source->caps.parallel_requests : 1;
    return parallel_run(source->n_files, n_threads, get_header, &reader, resolver->error);
}

static struct artifact_table *build_table(struct resolver *resolver, const char *key)
{
    const struct source *source = resolver->source;
    struct safetensors_header **headers = memory_alloc_array(source->n_files, sizeof *headers);
    const char **names = memory_alloc_array(source->n_files, sizeof *names);
    struct artifact_table *table = NULL;
    for (size_t i = 0; i < source->n_files; i++)
        names[i] = source->files[i].name;
    if (get_headers(resolver, headers) == 0 && (!resolver->index_source || need_index(resolver) == 0))
        table = artifact_table_build(headers, names, source->n_files, resolver->index, resolver->error);
    for (size_t i = 0; i < source->n_files; i++)
        safetensors_unref(headers[i]);
    free(headers);
    free(names);
    if (!table || !resolver->cache || worst_detector(resolver, NULL) == CHANGES_RACY)
        return table;
    header_cache_add_table(resolver->cache, key, DIGEST_HEX_CHARS, table);
    if (resolver->index_source)
        header_cache_add_table(resolver->cache, index_identity(resolver), sizeof(struct source_identity), table);
    return table;
}

struct table_question {
    struct resolver *resolver;
    const char *key;
};

static int find_or_build_table(void *data, const struct cancel *cancel, void **found, struct error *error)
{
    const struct table_question *question = data;
    (void)cancel; /* the source has it */
    struct resolver *resolver = question->resolver;
    struct error *outer = resolver->error;
    struct artifact_table *table = header_cache_find_table(resolver->cache, question->key, DIGEST_HEX_CHARS);
    resolver->error = error;
    if (!table)
        table = build_table(resolver, question->key);
    resolver->error = outer;
    *found = table;
    return table ? 0 : -1;
}

static void ref_table(void *table)
{
    artifact_table_ref(table);
}

/* Ranks that start together would all read and parse the same headers. */
static struct artifact_table *get_table(struct resolver *resolver, const char *key)
{
    static const struct resolving_ops ops = {find_or_build_table, ref_table};
    struct table_question question = {resolver, key};
    void *table = NULL;
    if (!resolver->cache || resolver->fresh || worst_detector(resolver, NULL) == CHANGES_RACY)
        return build_table(resolver, key);
    resolving_share(header_cache_resolving(resolver->cache), key, &ops, &question, resolver->source->cancel, &table,
                    resolver->error);
    return table;
}

/* --- the whole --- */

/* A span ends with its last lease. If the index file's ended with the resolve, the next one would get another key. */
static struct source *take_index_source(struct resolver *resolver)
{
    struct source *source = resolver->index_source;
    if (!source || index_identity(resolver)->lease_span == 0)
        return NULL;
    resolver->index_source = NULL;
    return source;
}

/* Takes the table and the resolver's source. */
static struct artifact *assemble(struct resolver *resolver, struct artifact_table *table, const char *key)
{
    struct artifact *artifact = memory_alloc(sizeof *artifact);
    artifact->source = resolver->source;
    artifact->reference = resolver->source->reference;
    memcpy(artifact->source_key, key, sizeof artifact->source_key);
    identify_for_clients(resolver, table, artifact->identity);
    artifact->table = table;
    artifact->tensors = table->tensors;
    artifact->n_tensors = table->n_tensors;
    artifact->pieces = table->pieces;
    artifact->n_pieces = table->n_pieces;
    artifact->by_name = table->by_name;
    artifact->total_bytes = table->total_bytes;
    artifact->manifest = resolver->manifest;
    artifact->manifest_problem = resolver->manifest_problem;
    resolver->manifest = NULL;
    artifact->header_bytes_read = resolver->bytes_read;
    artifact->from_cache = resolver->bytes_read == 0;
    artifact->changes_by = worst_detector(resolver, &artifact->changes_reason);
    artifact->references = 1;
    resolver->source = NULL;
    artifact->index_source = take_index_source(resolver);
    return artifact;
}

static struct artifact *resolve(struct resolver *resolver, const char *reference, const struct source_options *options)
{
    char key[DIGEST_HEX_CHARS + 1];
    if (source_open(reference, options, &resolver->source, resolver->error) < 0 || discover(resolver, options) < 0)
        return NULL;
    identify(resolver, key);
    struct artifact_table *table = get_table(resolver, key);
    if (!table)
        return NULL;
    find_manifest(resolver, options);
    return assemble(resolver, table, key);
}

struct question {
    const char *reference;
    const struct source_options *options;
    struct header_cache *cache;
    bool fresh;
};

/* From here on the source is shared, and whoever asked may be gone. */
static struct artifact *let_go(struct artifact *artifact, struct error *error)
{
    enum error_code problem = artifact->manifest_problem.code;
    artifact->source->cancel = NULL;
    if (artifact->index_source)
        artifact->index_source->cancel = NULL;
    if (problem != ERROR_CANCELLED && problem != ERROR_RESOURCE_EXHAUSTED) /* neither says anything about the manifest */
        return artifact;
    *error = artifact->manifest_problem;
    artifact_unref(artifact);
    return NULL;
}

static int answer(void *data, const struct cancel *cancel, void **found, struct error *error)
{
    const struct question *question = data;
    struct source_options options = *question->options;
    options.format = &source_format_safetensors;
    options.cancel = cancel;
    struct resolver resolver = {.cache = question->cache, .fresh = question->fresh, .error = error};
    struct artifact *artifact = resolve(&resolver, question->reference, &options);
    if (artifact)
        artifact = let_go(artifact, error);
    source_unref(resolver.source);
    source_unref(resolver.index_source);
    manifest_destroy(resolver.manifest);
    artifact_table_unref(resolver.hint);
    shard_index_destroy(resolver.index);
    metadata_free(resolver.index_json);
    *found = artifact;
    return artifact ? 0 : -1;
}

static void ref_artifact(void *artifact)
{
    artifact_ref(artifact);
}

int artifact_resolve(const char *reference, const struct source_options *options, struct header_cache *cache, bool fresh,
                     struct artifact **artifact, struct error *error)
{
    static const struct resolving_ops ops = {answer, ref_artifact};
    struct question question = {reference, options, cache, fresh};
    void *found = NULL;
    bool shares = cache && !fresh && source_is_remote(reference);
    int failed =
        shares ? resolving_share(header_cache_resolving(cache), reference, &ops, &question, options->cancel, &found, error)
               : answer(&question, options->cancel, &found, error);
    *artifact = found;
    return failed;
}

struct artifact *artifact_ref(struct artifact *artifact)
{
    __atomic_add_fetch(&artifact->references, 1, __ATOMIC_RELAXED);
    return artifact;
}

void artifact_unref(struct artifact *artifact)
{
    if (!artifact || __atomic_sub_fetch(&artifact->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    artifact_table_unref(artifact->table);
    manifest_destroy(artifact->manifest);
    source_unref(artifact->index_source);
    source_unref(artifact->source);
    free(artifact);
}

char *artifact_manifest_name(const struct artifact *artifact)
{
    return manifest_name_of(artifact->source);
}

const struct tensor_record *artifact_find(const struct artifact *artifact, const char *name, size_t length)
{
    uint32_t index = map_find(&artifact->by_name, name, length);
    return index == MAP_NONE ? NULL : &artifact->tensors[index];
}

uint64_t artifact_piece_end(const struct artifact *artifact, const struct tensor_piece *piece)
{
    const struct tensor_record *tensor = &artifact->tensors[piece->tensor];
    uint64_t bits = dtype_bits(tensor->dtype);
    if (!piece->box)
        return piece->offset + tensor->bytes;
    for (uint32_t i = 0; i < tensor->rank; i++)
        bits *= piece->box[tensor->rank + i];
    return piece->offset + bits / 8;
}

size_t artifact_find_piece(const struct artifact *artifact, uint32_t file, uint64_t at)
{
    size_t lo = 0, hi = artifact->n_pieces;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        const struct tensor_piece *piece = &artifact->pieces[middle];
        if (piece->file < file || (piece->file == file && artifact_piece_end(artifact, piece) <= at))
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

bool artifact_is_racy(const struct artifact *artifact)
{
    return artifact->changes_by == CHANGES_RACY;
}

int artifact_check_unchanged(const struct artifact *artifact, struct error *error)
{
    for (size_t i = 0; i < artifact->source->n_files; i++) {
        if (source_check_unchanged(artifact->source, i, error) < 0)
            return -1;
    }
    return 0;
}
