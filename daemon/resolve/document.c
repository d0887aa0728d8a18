/* See document.h. A file that may change unseen is never cached, and each is looked at once more after it was read. */
#include "resolve/document.h"

#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "blocks/blocks.h"

enum { PIECE_BYTES = 32 << 20, MAX_READERS = 4 };

int document_prefix(struct error *error, const char *file_name)
{
    const char *text = text_show(file_name);
    if (!strstr(error->message, text))
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
    const struct block_stretch stretch = {file, offset, offset + count, bytes};
    /* one thread takes half a second for the largest, most of it to make the pages */
    const struct block_stream stream = {
        .source = source, .stretches = &stretch, .n_stretches = 1, .piece_bytes = PIECE_BYTES, .n_threads = MAX_READERS};
    __atomic_add_fetch(&lookup->bytes_read, count, __ATOMIC_RELAXED);
    return blocks_stream(&stream, error);
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
    if (document->text && lookup_read(lookup, source, file, 0, document->text, document->bytes, error) == 0 &&
        source_check_still(source, file, error) == 0) {
        uint64_t at = 0;
        while (at < document->bytes && strchr(" \t\r\n", document->text[at]) && document->text[at])
            at++;
        if (at == document->bytes || document->text[at] != '<')
            return 0;
        /* every document is JSON; what a browser or a portal leaves instead begins with a tag */
        fail(error, ERROR_DATA_LOSS, "WEB_PAGE", "this is a web page (HTML), not %s", kind->what);
    }
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
