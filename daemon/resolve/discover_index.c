/* The documents that say which files count, and what becomes of them when files are not there. Of a known checkpoint the index is
 * looked at but not read: a table of an earlier resolve with the same index knows the file names. Failure modes: a document that
 * leads nowhere, one that is malformed, an index of which no file is there and nothing else is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "resolve/artifact_table.h"
#include "resolve/discover.h"
#include "resolve/part_names.h"

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
    if (discovery_list(discovery, error) < 0)
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
        if (discovery_add_file(discovery, names[i], error) == 0)
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
    if (discovery_list(discovery, error) < 0)
        return -1;
    const char **names = discovery_listed_parts(discovery, &n_names);
    if (n_names > SHARD_INDEX_MAX_FILES) /* too many for a checkpoint */
        n_names = 0;
    n_names = part_names_keep_set(names, part_names_drop_variants(names, n_names));
    int failed = n_names ? discovery_add_files(discovery, names, n_names, error) : 0;
    free(names);
    return failed ? -1 : (int)n_names;
}

/* With what the folder has instead. */
static int fail_stale(struct discovery *discovery, struct error *error)
{
    size_t n_names;
    char file[TEXT_NAME_CHARS], other[2 * TEXT_NAME_CHARS] = "", gap_shown[TEXT_NAME_CHARS];
    const char **names = discovery_listed_parts(discovery, &n_names), *absent = discovery->absent.texts[0];
    if (n_names > SHARD_INDEX_MAX_FILES)
        n_names = 0;
    char *gap = part_names_find_gap(names, part_names_drop_variants(names, n_names));
    if (gap)
        snprintf(other, sizeof other, ", and of the files that are there %s is missing",
                 text_escape(gap, strlen(gap), gap_shown));
    free(gap);
    free(names);
    const char *document = discovery->document_name;
    text_escape(absent, strlen(absent), file);
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
    char first[TEXT_NAME_CHARS];
    int n_files = 1;
    if (discovery_add_file(discovery, single, error) < 0) {
        if (error->code != ERROR_NOT_FOUND)
            return document_prefix(error, single);
        n_files = add_set(discovery, error);
        if (n_files <= 0)
            return n_files ? -1 : fail_stale(discovery, error);
    }
    const char *name = discovery->source->files[0].name;
    notes_add(&discovery->notes,
              "%s is stale and was passed over, because none of the files that it names (%zu) is there; %s%s read", document,
              n_absent, text_escape(name, strlen(name), first),
              n_files == 1 ? " is" : " and the other files of its set are");
    forget_document(discovery);
    return 0;
}

/* The single file of older or newer weights may lie beside an index that counts. */
static int note_single(struct discovery *discovery, size_t pair, struct error *error)
{
    const char *single = discovery->format->single_names[pair];
    const struct source *source = discovery->source;
    if (discovery_list(discovery, error) < 0)
        return -1;
    for (size_t i = 0; i < source->n_files; i++)
        if (strcmp(source->files[i].name, single) == 0)
            return 0;
    if (is_listed(discovery, single))
        notes_add(&discovery->notes, "%s says which files are read; %s beside it is none of them", discovery->document_name,
                  single);
    return 0;
}

/* The files that the document names: from the table of an earlier resolve with the same document, which *hint holds, or from the
 * document itself. */
static int find_names(struct discovery *discovery, struct lookup *lookup, struct artifact_table **hint,
                      const char *const **names, size_t *n_names, struct error *error)
{
    const struct source_identity *identity = discovery_index_identity(discovery);
    *hint = NULL;
    if (lookup_cache(lookup, discovery->index_source, 0) && !lookup->fresh)
        *hint = header_cache_find_table(lookup->cache, identity, sizeof *identity);
    if (!*hint && discovery_need_document(discovery, lookup, error) < 0)
        return -1;
    *names = *hint                 ? (const char *const *)(*hint)->file_names
             : discovery->topology ? discovery->topology->files
                                   : discovery->index->files;
    *n_names = *hint ? (*hint)->n_files : discovery->topology ? discovery->topology->n_files : discovery->index->n_files;
    return 0;
}

static int add_named(struct discovery *discovery, size_t pair, struct lookup *lookup, struct error *error)
{
    struct artifact_table *hint;
    const char *const *names;
    size_t n_names;
    if (find_names(discovery, lookup, &hint, &names, &n_names, error) < 0)
        return -1;
    int failed = discovery->is_topology ? discovery_add_files(discovery, names, n_names, error)
                                        : add_those_there(discovery, names, n_names, error);
    if (hint)
        artifact_table_unref(hint);
    if (failed || discovery->is_topology)
        return failed;
    return discovery->source->n_files ? note_single(discovery, pair, error) : pass_over(discovery, pair, error);
}

/* 1 = it is there; 0 = it is not, or is hidden, of which the first error is kept. */
static int try_single(struct discovery *discovery, size_t pair, struct error *hidden, struct error *error)
{
    const char *name = discovery->format->single_names[pair];
    if (discovery_add_file(discovery, name, error) == 0)
        return 1;
    document_prefix(error, name);
    if (!source_may_be_absent(discovery->source, error))
        return -1;
    if (error->code != ERROR_NOT_FOUND && !hidden->code)
        *hidden = *error;
    return 0;
}

int discover_by_document(struct discovery *discovery, const struct source_options *options, struct lookup *lookup,
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
        if (!found)
            found = try_single(discovery, pair, &hidden, error);
    }
    forget_document(discovery);
    if (found < 0 || check_dangling(discovery, pair, error) < 0)
        return -1;
    if (found || !hidden.code)
        return found;
    *error = hidden;
    return -1;
}
