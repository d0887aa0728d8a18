/* See document.h. A file that may change unseen is never cached, and each is looked at once more after it was read. */
#include "resolve/document.h"

#include <string.h>

#include "base/metadata.h"
#include "base/parallel.h"
#include "base/text.h"

enum { PIECE_BYTES = 32 << 20, MAX_READERS = 4 };

int document_prefix(struct error *error, const char *file_name)
{
    char text[TEXT_NAME_CHARS];
    if (!strstr(error->message, text_escape(file_name, strlen(file_name), text)))
        error_prefix(error, "%s", text);
    return error_note(error, "file", "%s", file_name);
}

struct header_cache *lookup_cache(const struct lookup *lookup, const struct source *source, size_t file)
{
    return source->files[file].changes_by == CHANGES_RACY ? NULL : lookup->cache;
}

int lookup_read(struct lookup *lookup, struct source *source, size_t file, uint64_t offset, void *bytes, uint64_t count,
                struct error *error)
{
    __atomic_add_fetch(&lookup->bytes_read, count, __ATOMIC_RELAXED);
    return count ? source_read_bytes(source, file, offset, bytes, count, error) : 0;
}

struct reading {
    struct lookup *lookup;
    struct source *source;
    size_t file;
    struct document *document;
};

static int read_piece(void *data, size_t i, struct error *error)
{
    const struct reading *reading = data;
    uint64_t at = (uint64_t)i * PIECE_BYTES, left = reading->document->bytes - at;
    return lookup_read(reading->lookup, reading->source, reading->file, at, reading->document->text + at,
                       left < PIECE_BYTES ? left : PIECE_BYTES, error);
}

/* One thread takes half a second for the largest, most of it to make the pages. */
static int read_text(struct lookup *lookup, struct source *source, size_t file, struct document *document,
                     struct error *error)
{
    struct reading reading = {lookup, source, file, document};
    size_t n_pieces = (size_t)((document->bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    return parallel_run(n_pieces, n_pieces < MAX_READERS ? n_pieces : MAX_READERS, read_piece, &reading, error);
}

/* Every document is JSON. What a browser or a portal leaves instead begins with a tag. */
static int check_no_page(const struct document *document, const char *what, struct error *error)
{
    uint64_t at = 0;
    while (at < document->bytes && strchr(" \t\r\n", document->text[at]) && document->text[at])
        at++;
    if (at == document->bytes || document->text[at] != '<')
        return 0;
    return fail(error, ERROR_DATA_LOSS, "WEB_PAGE", "this is a web page (HTML), not %s", what);
}

int document_read(struct lookup *lookup, struct source *source, size_t file, const struct document_kind *kind,
                  struct document *document, struct error *error)
{
    const struct source_file *part = &source->files[file];
    struct header_cache *cache = lookup_cache(lookup, source, file);
    *document = (struct document){.bytes = part->size_bytes};
    if (document->bytes > kind->max_bytes)
        return fail(error, ERROR_DATA_LOSS, kind->reason, "%llu bytes are too many for %s",
                    (unsigned long long)document->bytes, kind->what);
    document->is_cached =
        cache && !lookup->fresh && header_cache_find_index(cache, &part->identity, &document->text, &document->bytes);
    if (document->is_cached)
        return 0;
    document->text = metadata_alloc(document->bytes, error);
    if (document->text && read_text(lookup, source, file, document, error) == 0 &&
        source_check_still(source, file, error) == 0 && check_no_page(document, kind->what, error) == 0)
        return 0;
    document_free(document);
    return -1;
}

void document_keep(const struct lookup *lookup, const struct source *source, size_t file, const struct document *document)
{
    struct header_cache *cache = lookup_cache(lookup, source, file);
    if (cache && !document->is_cached)
        header_cache_add_index(cache, &source->files[file].identity, document->text, document->bytes);
}

void document_free(struct document *document)
{
    metadata_free(document->text);
    document->text = NULL;
}
