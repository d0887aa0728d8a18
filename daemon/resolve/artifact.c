/* Resolving, in three steps: discover (which files count), headers (what each holds), artifact (what that comes to: one table
 * of tensors, and the keys it is known by). Happy path of a known checkpoint: the index file is looked at but not read, the
 * part files are opened, their identities make the key of a table that is there already. Failure modes: nothing to load, a
 * missing or malformed file, a name twice, an index that disagrees. */
#include "resolve/artifact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "resolve/derivation.h"
#include "resolve/discover.h"
#include "resolve/headers.h"
#include "resolve/piece_table.h"
#include "resolve/resolving.h"

/* --- what it is known by --- */

static struct change_proof worst_proof(const struct source *source, struct change_proof worst)
{
    for (size_t i = 0; i < source->n_files; i++) {
        const struct source_file *file = &source->files[i];
        if (file->changes_by > worst.by)
            worst = (struct change_proof){file->changes_by, file->changes_reason ? file->changes_reason : ""};
    }
    return worst;
}

static struct change_proof proof_of(const struct discovery *found)
{
    const struct change_proof proof = worst_proof(found->source, (struct change_proof){CHANGES_BY_VERSION, ""});
    return found->index_source ? worst_proof(found->index_source, proof) : proof;
}

void artifact_add_file_key(struct digest *digest, const struct source_file *file, bool with_span)
{
    struct source_identity identity = file->identity;
    identity.lease_span = with_span ? identity.lease_span : 0;
    digest_add_text(digest, file->name);
    digest_add(digest, &identity, sizeof identity);
}

/* Without a table: the source key. With one: what clients know the artifact by. A span ends with a load, but what they were
 * told of the tensors is true as long as the headers are the same; these count always, not only while times tell too little,
 * which is soon over. */
static void identify(const struct discovery *found, const struct artifact_table *table, char key[DIGEST_HEX_CHARS + 1])
{
    unsigned char out[DIGEST_BYTES];
    struct digest *digest = digest_create();
    for (size_t i = 0; i < found->source->n_files; i++) {
        artifact_add_file_key(digest, &found->source->files[i], !table);
        if (table)
            digest_add(digest, table->headers[i]->prefix_crcs, sizeof table->headers[i]->prefix_crcs);
    }
    if (found->index_source)
        artifact_add_file_key(digest, &found->index_source->files[0], !table);
    if (table && table->document_crc)
        digest_add_u64(digest, table->document_crc);
    if (!table && found->has_all_files) /* the same files, but as a table of all of them, not as a finding */
        digest_add_text(digest, "all files");
    digest_finish(digest, out);
    digest_hex(out, sizeof out, key);
}

/* --- its table --- */

struct table_question {
    struct discovery *found;
    struct lookup *lookup;
    const char *key;
    bool allow_missing_shards;
};

static int fail_absent(const char *file, size_t n_absent, const char *document, struct error *error)
{
    char others[64] = "";
    if (n_absent > 1)
        snprintf(others, sizeof others, ", nor %s %zu other%s that it names", n_absent == 2 ? "is" : "are", n_absent - 1,
                 n_absent == 2 ? "" : "s");
    fail(error, ERROR_NOT_FOUND, "FILE_MISSING", "%s, which %s names, is not there%s", text_show(file), document, others);
    return error_note(error, "file", "%s", file);
}

/* What the headers come to, by the layout of the artifact. */
static struct artifact_table *join_headers(const struct table_question *question, struct part_header *const *headers,
                                           const char *const *names, struct error *error)
{
    struct discovery *found = question->found;
    size_t n_files = found->source->n_files;
    bool is_dcp = false;
    for (size_t i = 0; i < n_files && !is_dcp && !found->topology && !found->source->is_single_file; i++)
        is_dcp = dcp_is_shard(headers[i]);
    if (is_dcp && found->absent.n) { /* what a shard lacks cannot be told from the others */
        fail_absent(found->absent.texts[0], found->absent.n, found->document_name, error);
        return NULL;
    }
    if (!is_dcp && found->gap) {
        fail(error, ERROR_NOT_FOUND, "FILE_MISSING",
             "%s is missing: the names of the other files say that they are more. A reference to one file reads that file",
             text_show(found->gap));
        error_note(error, "file", "%s", found->gap);
        return NULL;
    }
    if (found->topology)
        return topology_table_build(headers, names, n_files, found->topology, error);
    if (is_dcp && found->has_all_files)
        return dcp_table_build(headers, names, n_files, found->index, question->allow_missing_shards, error);
    if (!is_dcp)
        return artifact_table_build(headers, names, n_files, found->index, error);
    struct artifact_table *finding = artifact_table_create(headers, names, n_files, 0, 0, error);
    if (finding)
        finding->needs_all_files = true;
    return finding;
}

static struct artifact_table *build_table(const struct table_question *question, struct error *error)
{
    struct discovery *found = question->found;
    struct source *source = found->source;
    struct part_header **headers = memory_alloc_array(source->n_files, sizeof *headers);
    const char **names = memory_alloc_array(source->n_files, sizeof *names);
    struct artifact_table *table = NULL;
    for (size_t i = 0; i < source->n_files; i++)
        names[i] = source->files[i].name;
    if (discovery_need_document(found, question->lookup, error) == 0 &&
        headers_read(source, found->format, question->lookup, headers, error) == 0)
        table = join_headers(question, headers, names, error);
    if (table && found->index_text.text)
        table->document_crc = crc_update(CHECKSUM_CRC64NVME, 0, found->index_text.text, found->index_text.bytes);
    for (size_t i = 0; i < source->n_files; i++)
        part_header_unref(headers[i]);
    free(headers);
    free(names);
    struct header_cache *cache = question->lookup->cache;
    if (!table || !cache || proof_of(found).by == CHANGES_RACY)
        return table;
    header_cache_add_value(cache, HEADER_CACHE_TABLES, question->key, DIGEST_HEX_CHARS, table, table->memory_bytes);
    /* so that the document need not be read to know the files it names, which shards are more than */
    if (found->index_source && table->layout.kind != LAYOUT_DCP && !table->absent.files.n)
        header_cache_add_value(cache, HEADER_CACHE_TABLES, discovery_index_identity(found), sizeof(struct source_identity),
                               table, table->memory_bytes);
    return table;
}

static int find_or_build_table(void *data, const struct cancel *cancel, void **found, struct error *error)
{
    const struct table_question *question = data;
    (void)cancel; /* the source has it */
    void *table = header_cache_find_value(question->lookup->cache, HEADER_CACHE_TABLES, question->key, DIGEST_HEX_CHARS);
    *found = table ? table : build_table(question, error);
    return *found ? 0 : -1;
}

static void ref_table(void *table)
{
    artifact_table_ref(table);
}

/* Ranks that start together would all read and parse the same headers. A rank that allows what others do not has an error of its
 * own. */
static struct artifact_table *share_table(struct table_question *question, struct error *error)
{
    static const struct resolving_ops ops = {find_or_build_table, ref_table};
    const struct lookup *lookup = question->lookup;
    void *table = NULL;
    if (!lookup->cache || lookup->fresh || proof_of(question->found).by == CHANGES_RACY)
        return build_table(question, error);
    char *shared_by = memory_print("%s%s", question->key, question->allow_missing_shards ? "+" : "");
    resolving_share(header_cache_resolving(lookup->cache), shared_by, &ops, question, question->found->source->cancel,
                    &table, error);
    free(shared_by);
    return table;
}

/* Fills in the key. */
static struct artifact_table *get_table(struct discovery *found, struct lookup *lookup, bool allow_missing_shards,
                                        char key[DIGEST_HEX_CHARS + 1], struct error *error)
{
    struct table_question question = {found, lookup, key, allow_missing_shards};
    identify(found, NULL, key);
    struct artifact_table *table = share_table(&question, error);
    if (!table || !table->needs_all_files)
        return table;
    artifact_table_unref(table);
    if (discovery_add_shards(found, error) < 0)
        return NULL;
    identify(found, NULL, key);
    return share_table(&question, error);
}

/* --- the whole --- */

static int check_absent(const struct artifact_absent *absent, const char *document, struct error *error)
{
    return absent->files.n ? fail_absent(absent->files.texts[0], absent->files.n, document, error) : 0;
}

struct artifact *artifact_of_table(struct source *source, struct artifact_table *table)
{
    struct artifact *artifact = memory_alloc(sizeof *artifact);
    *artifact = (struct artifact){
        .source = source,
        .reference = source->reference,
        .layout = table->layout,
        .tensors = table->tensors,
        .n_tensors = table->n_tensors,
        .pieces = table->pieces,
        .n_pieces = table->n_pieces,
        .piece_lists = table->piece_lists,
        .copies = table->copies,
        .by_name = table->by_name,
        .total_bytes = table->total_bytes,
        .table = table,
        .changes = worst_proof(source, (struct change_proof){CHANGES_BY_VERSION, ""}),
        .references = 1,
    };
    return artifact;
}

/* Takes the table and the source; and the index file's while its lease has a span, which ends with its last lease: if that
 * ended with the resolve, the next one would get another key. */
static struct artifact *assemble(struct discovery *found, struct artifact_table *table, const char *key)
{
    struct artifact *artifact = artifact_of_table(found->source, table);
    memcpy(artifact->source_key, key, sizeof artifact->source_key);
    identify(found, table, artifact->identity);
    artifact->changes = proof_of(found);
    artifact->document_name = found->document_name;
    notes_append(&artifact->notes, &found->notes);
    notes_append(&artifact->notes, &table->notes);
    artifact->run_reference = found->run_reference;
    artifact->reference = found->run_reference ? found->run_reference : artifact->reference;
    found->run_reference = NULL;
    found->source = NULL;
    if (found->index_source && discovery_index_identity(found)->lease_span != 0) {
        artifact->index_source = found->index_source;
        found->index_source = NULL;
    }
    return artifact;
}

static struct artifact *resolve(struct discovery *found, struct lookup *lookup, const char *reference,
                                const struct source_options *options, unsigned flags, struct error *error)
{
    bool allow_missing_shards = flags & RESOLVE_ALLOW_MISSING_SHARDS;
    char key[DIGEST_HEX_CHARS + 1];
    struct error problem;
    if (discover(reference, options, lookup, found, error) < 0)
        return NULL;
    struct artifact_table *table = get_table(found, lookup, allow_missing_shards, key, error);
    if (!table)
        return NULL;
    if ((!allow_missing_shards && dcp_check_numbers(&table->layout, error) < 0) ||
        (!(flags & RESOLVE_ALLOW_ABSENT_FILES) && check_absent(&table->absent, found->document_name, error) < 0)) {
        artifact_table_unref(table); /* another caller allowed it */
        return NULL;
    }
    struct manifest *manifest = discover_manifest(found, options, lookup, &problem);
    struct artifact *artifact = assemble(found, table, key);
    artifact->manifest = manifest;
    artifact->manifest_problem = problem;
    artifact->header_bytes_read = lookup->bytes_read;
    return artifact;
}

struct question {
    const char *reference;
    const struct source_options *options;
    struct header_cache *cache;
    unsigned flags;
};

static int answer(void *data, const struct cancel *cancel, void **found, struct error *error)
{
    const struct question *question = data;
    struct source_options options = *question->options;
    options.cancel = cancel;
    options.format = formats[0]->source_format;
    struct lookup lookup = {.cache = question->cache, .fresh = question->flags & RESOLVE_FRESH};
    struct discovery discovery;
    struct artifact *artifact = resolve(&discovery, &lookup, question->reference, &options, question->flags, error);
    if (artifact) { /* from here on the source is shared, and the request that asked may be gone */
        enum error_code problem = artifact->manifest_problem.code;
        artifact->source->cancel = NULL;
        if (artifact->index_source)
            artifact->index_source->cancel = NULL;
        if (problem == ERROR_CANCELLED || problem == ERROR_RESOURCE_EXHAUSTED) { /* neither tells of the manifest */
            *error = artifact->manifest_problem;
            artifact_unref(artifact);
            artifact = NULL;
        }
    }
    discovery_fini(&discovery);
    *found = artifact;
    return artifact ? 0 : -1;
}

static void ref_artifact(void *artifact)
{
    artifact_ref(artifact);
}

enum { AGAIN_FOR_MS = 200, CRC_CHARS = 8 };

int artifact_resolve(const char *reference, const struct source_options *options, struct header_cache *cache, unsigned flags,
                     struct artifact **artifact, struct error *error)
{
    static const struct resolving_ops ops = {answer, ref_artifact};
    struct question question = {reference, options, cache, flags};
    void *found = NULL;
    int failed;
    if (cache && !(flags & RESOLVE_FRESH) && source_is_remote(reference)) {
        char *shared_by = memory_print("%u %s", flags, reference);
        failed = resolving_share(header_cache_resolving(cache), shared_by, &ops, &question, options->cancel, &found, error);
        free(shared_by);
    } else { /* another process may write to a file while its header is read: then it is looked at again */
        uint64_t until_ns = clock_now_ns() + AGAIN_FOR_MS * NS_PER_MS;
        do
            failed = answer(&question, options->cancel, &found, error);
        while (failed && source_has_changed(error) && clock_now_ns() < until_ns && !cancel_is_set(options->cancel));
    }
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
    if (artifact->stored) {
        artifact_unref(artifact->stored);
        derivation_unref(artifact->derivation);
        free(artifact);
        return;
    }
    artifact_table_unref(artifact->table);
    manifest_unref(artifact->manifest);
    source_unref(artifact->index_source);
    source_unref(artifact->source);
    notes_fini(&artifact->notes);
    free(artifact->run_reference);
    free(artifact);
}

const struct artifact_absent *artifact_absent(const struct artifact *artifact)
{
    static const struct artifact_absent none;
    const struct artifact *stored = artifact->stored ? artifact->stored : artifact;
    return stored->table ? &stored->table->absent : &none;
}

int artifact_check_complete(const struct artifact *artifact, struct error *error)
{
    return check_absent(artifact_absent(artifact), artifact->document_name, error);
}

char *artifact_manifest_name(const struct artifact *artifact)
{
    return discover_manifest_name(artifact->source);
}

uint64_t artifact_prefix_bytes(const struct artifact *artifact, size_t file)
{
    return artifact->table->headers[file]->data_offset;
}

uint64_t artifact_prefix_crc(const struct artifact *artifact, size_t file, enum checksum_kind kind)
{
    return artifact->table->headers[file]->prefix_crcs[kind];
}

const struct part_metadata *artifact_metadata(const struct artifact *artifact, size_t file, size_t *n_pairs)
{
    const struct part_header *header = artifact->table ? artifact->table->headers[file] : NULL;
    *n_pairs = header ? header->n_metadata : 0;
    return header && header->has_metadata ? header->metadata : NULL;
}

/* From the last to the first, so that the value that counts is met first. */
size_t artifact_metadata_keep_last(const struct part_metadata *pairs, size_t n_pairs, struct map *known,
                                   const struct part_metadata **kept)
{
    size_t n_kept = 0;
    for (size_t i = n_pairs; i-- > 0;)
        if (map_add(known, pairs[i].key, pairs[i].key_length, 0) == MAP_NONE)
            kept[n_pairs - ++n_kept] = &pairs[i];
    return n_kept;
}

int artifact_metadata_collect(const struct artifact *artifact, struct arena *arena, struct artifact_metadata *metadata,
                              struct error *error)
{
    const struct artifact *stored = artifact->stored ? artifact->stored : artifact;
    struct map known;
    size_t n_pairs = 0;
    const struct part_metadata *pairs = stored->source->n_files ? artifact_metadata(stored, 0, &n_pairs) : NULL;
    uint64_t bytes = n_pairs * (uint64_t)ARTIFACT_METADATA_PAIR_BYTES;
    for (size_t i = 0; i < n_pairs; i++)
        bytes += pairs[i].key_length + pairs[i].value_length;
    *metadata = (struct artifact_metadata){.is_there = pairs != NULL,
                                           .left_out_bytes = bytes > ARTIFACT_METADATA_MAX_BYTES ? bytes : 0};
    if (metadata->left_out_bytes || n_pairs == 0)
        return 0;
    const struct part_metadata **kept = arena_try_array(arena, n_pairs, sizeof *kept, error);
    if (!kept || map_init_charged(&known, n_pairs, error) < 0)
        return -1;
    metadata->n_pairs = artifact_metadata_keep_last(pairs, n_pairs, &known, kept);
    metadata->pairs = kept + n_pairs - metadata->n_pairs;
    map_fini(&known);
    return 0;
}

const char *layout_kind_name(enum layout_kind kind)
{
    static const char *const names[] = {"plain", "topology", "dcp"};
    return names[kind];
}

uint32_t artifact_n_copies(const struct artifact *artifact, const struct tensor_record *tensor)
{
    const struct derivation *derivation = artifact->derivation;
    uint32_t fewest = artifact->copies ? UINT32_MAX : 1;
    if (derivation && !derivation->tensors[tensor - derivation->records].is_stored)
        return 1; /* it is stored nowhere as it is */
    for (uint32_t k = 0; artifact->copies && k < tensor->n_pieces; k++) {
        uint32_t first = (uint32_t)(artifact_piece(artifact, tensor, k) - artifact->pieces), n = 1;
        for (uint32_t other = artifact->copies[first]; other != first; other = artifact->copies[other])
            n++;
        fewest = n < fewest ? n : fewest;
    }
    return fewest;
}

uint64_t artifact_piece_end(const struct artifact *artifact, const struct tensor_piece *piece)
{
    const struct tensor_record *tensor = artifact_stored(artifact, piece->tensor);
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

bool artifact_piece_crc32c(const struct artifact *artifact, const struct manifest_file *file,
                           const struct tensor_piece *piece, uint32_t *crc32c)
{
    const struct manifest *manifest = artifact->manifest;
    const struct tensor_record *record = artifact_stored(artifact, piece->tensor);
    if (piece->box)
        return false;
    if (file->arrays) { /* listed by place: each of the file's is */
        size_t first = artifact_find_piece(artifact, piece->file, 0),
               end = artifact_find_piece(artifact, piece->file + 1, 0);
        char digits[CRC_CHARS + 1] = "";
        if (end - first != file->n_arrays)
            return false;
        memcpy(digits, file->arrays + ((size_t)(piece - artifact->pieces) - first) * CRC_CHARS, CRC_CHARS);
        *crc32c = (uint32_t)strtoul(digits, NULL, 16);
        return true;
    }
    const struct manifest_tensor *known = manifest_find_tensor(manifest, record->name, record->name_length);
    if (!known || (&manifest->files[known->file] != file && !artifact_is_copied(artifact, piece)))
        return false;
    *crc32c = known->crc32c;
    return true;
}

bool artifact_is_racy(const struct artifact *artifact)
{
    return artifact->changes.by == CHANGES_RACY;
}

int artifact_check_unchanged(const struct artifact *artifact, struct error *error)
{
    for (size_t i = 0; i < artifact->source->n_files; i++) {
        if (source_check_unchanged(artifact->source, i, error) < 0)
            return -1;
    }
    return 0;
}
