/* See headers.h. What is far away is read many files at a time, but large headers one after the other, so that as many parts
 * as threads do not multiply the memory that one needs. */
#include "resolve/headers.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/metadata.h"
#include "base/parallel.h"

enum { MAX_TENSORS = 1 << 24, READ_AHEAD_BYTES = 64 << 20 };

struct header_reader {
    struct source *source;
    const struct format *format;
    struct lookup *lookup;
    struct part_header **headers; /* one per file */
    size_t n_tensors;             /* atomic */
    pthread_mutex_t lock;         /* of what follows */
    pthread_cond_t is_less;
    uint64_t reading_bytes; /* announced by the headers that are being read */
};

static struct part_header *read_and_parse(struct header_reader *reader, size_t file, uint64_t n_bytes, struct error *error)
{
    const struct source_file *part = &reader->source->files[file];
    const struct format *format = reader->format;
    struct header_cache *cache = lookup_cache(reader->lookup, reader->source, file);
    struct part_header *header = NULL;
    char *bytes = metadata_alloc(n_bytes, error);
    if (!bytes)
        return NULL;
    if (lookup_read(reader->lookup, reader->source, file, format->first_bytes, bytes, n_bytes, error) == 0 &&
        source_check_still(reader->source, file, error) == 0)
        header = format->parse(bytes, n_bytes, part->size_bytes, error);
    if (header && cache)
        header_cache_add(cache, format, &part->identity, header, bytes, n_bytes);
    metadata_free(bytes);
    return header;
}

static struct part_header *read_header(struct header_reader *reader, size_t file, struct error *error)
{
    const struct source_file *part = &reader->source->files[file];
    unsigned char first[FORMAT_MAX_FIRST_BYTES];
    uint64_t n_bytes, first_bytes = reader->format->first_bytes;
    if (part->size_bytes < first_bytes) {
        fail(error, ERROR_DATA_LOSS, "HEADER_TOO_SMALL", "a file of %llu bytes has no room for a header",
             (unsigned long long)part->size_bytes);
        return NULL;
    }
    if (lookup_read(reader->lookup, reader->source, file, 0, first, first_bytes, error) < 0 ||
        reader->format->length(first, part->size_bytes, &n_bytes, error) < 0)
        return NULL;
    pthread_mutex_lock(&reader->lock);
    while (reader->reading_bytes && reader->reading_bytes + n_bytes > READ_AHEAD_BYTES)
        pthread_cond_wait(&reader->is_less, &reader->lock);
    reader->reading_bytes += n_bytes;
    pthread_mutex_unlock(&reader->lock);
    struct part_header *header = read_and_parse(reader, file, n_bytes, error);
    pthread_mutex_lock(&reader->lock);
    reader->reading_bytes -= n_bytes;
    pthread_cond_broadcast(&reader->is_less);
    pthread_mutex_unlock(&reader->lock);
    return header;
}

static int find_or_read_header(void *data, size_t file, struct error *error)
{
    struct header_reader *reader = data;
    const struct source_file *part = &reader->source->files[file];
    struct header_cache *cache = lookup_cache(reader->lookup, reader->source, file);
    struct part_header *header = NULL;
    if (cache && !reader->lookup->fresh)
        header = header_cache_find(cache, reader->format, &part->identity);
    if (!header)
        header = read_header(reader, file, error);
    reader->headers[file] = header;
    if (!header)
        return document_prefix(error, part->name);
    if (__atomic_add_fetch(&reader->n_tensors, header->n_tensors, __ATOMIC_RELAXED) > MAX_TENSORS)
        return fail(error, ERROR_UNIMPLEMENTED, "TOO_MANY_TENSORS", "more than %d tensors", MAX_TENSORS);
    return 0;
}

/* Parsing is what takes time; few files are not worth a thread. */
static size_t local_threads(size_t n_files)
{
    enum { FILES_PER_THREAD = 8, LOCAL_THREADS = 8 };
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = 1 + n_files / FILES_PER_THREAD, most = n_cpus > 0 && n_cpus < LOCAL_THREADS ? (size_t)n_cpus : LOCAL_THREADS;
    return n < most ? n : most;
}

int headers_read(struct source *source, const struct format *format, struct lookup *lookup, struct part_header **headers,
                 struct error *error)
{
    struct header_reader reader = {.source = source,
                                   .format = format,
                                   .lookup = lookup,
                                   .headers = headers,
                                   .lock = PTHREAD_MUTEX_INITIALIZER,
                                   .is_less = PTHREAD_COND_INITIALIZER};
    size_t n_threads = source->caps.reads_are_requests ? source->caps.parallel_requests : local_threads(source->n_files);
    return parallel_run(source->n_files, n_threads, find_or_read_header, &reader, error);
}
