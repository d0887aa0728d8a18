/* See headers.h. What is far away is read many files at a time, but large headers one after the other, so that as many parts
 * as threads do not multiply the memory that one needs.
 *
 * The files of one checkpoint resemble each other: a writer that cuts tensors evenly leaves the same header in each, which is
 * parsed once, and others have the same names in the same order. */
#include "resolve/headers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/parallel.h"

enum {
    MAX_TENSORS = 1 << 24,
    READ_AHEAD_BYTES = 64 << 20,
    LOCAL_THREADS = 8,
    FILES_PER_THREAD = 8,
    KEPT_BYTES = READ_AHEAD_BYTES / LOCAL_THREADS * 2
};

struct desk { /* what one thread works with, file after file */
    struct desk *next;
    char *bytes; /* metadata_alloc() */
    uint64_t room;
    struct format_help help;
};

struct sample { /* a header that others are compared with; the one of the most tensors so far, and the text of another */
    struct part_header *sibling, *header;
    char *bytes; /* what `header` was parsed from, metadata_alloc() */
    uint64_t n_bytes, file_bytes;
};

struct header_reader {
    struct source *source;
    const struct format *format;
    struct lookup *lookup;
    struct part_header **headers; /* one per file */
    size_t n_tensors;             /* atomic */
    pthread_mutex_t lock;         /* of what follows */
    pthread_cond_t is_less;
    uint64_t reading_bytes; /* announced by the headers that are being read */
    struct desk *idle;
    struct sample sample; /* its bytes do not change once they are there */
};

/* --- desks --- */

static struct desk *take_desk(struct header_reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    struct desk *desk = reader->idle;
    reader->idle = desk ? desk->next : NULL;
    struct part_header *sibling = reader->sample.sibling ? part_header_ref(reader->sample.sibling) : NULL;
    pthread_mutex_unlock(&reader->lock);
    desk = desk ? desk : memory_alloc(sizeof *desk);
    desk->help.sibling = sibling;
    return desk;
}

static void destroy_desk(struct desk *desk)
{
    metadata_free(desk->bytes);
    format_help_fini(&desk->help);
    free(desk);
}

/* Memory is kept for the next file where that is no more than reading may take in all. */
static void put_desk(struct header_reader *reader, struct desk *desk)
{
    part_header_unref(desk->help.sibling);
    if (reader->source->caps.reads_are_requests || desk->room > KEPT_BYTES) {
        destroy_desk(desk);
        return;
    }
    pthread_mutex_lock(&reader->lock);
    desk->next = reader->idle;
    reader->idle = desk;
    pthread_mutex_unlock(&reader->lock);
}

/* --- samples --- */

/* The first one that is not large gives its text, which its desk then lacks. */
static void keep_sample(struct header_reader *reader, struct part_header *header, struct desk *desk, uint64_t n_bytes,
                        uint64_t file_bytes)
{
    struct part_header *old = NULL;
    pthread_mutex_lock(&reader->lock);
    struct sample *sample = &reader->sample;
    if (!sample->sibling || header->n_tensors > sample->sibling->n_tensors) {
        old = sample->sibling;
        sample->sibling = part_header_ref(header);
    }
    if (!sample->bytes && n_bytes && n_bytes <= KEPT_BYTES) {
        sample->bytes = desk->bytes;
        sample->n_bytes = n_bytes;
        sample->file_bytes = file_bytes;
        sample->header = part_header_ref(header);
        desk->bytes = NULL;
        desk->room = 0;
    }
    pthread_mutex_unlock(&reader->lock);
    part_header_unref(old);
}

/* --- one file --- */

static struct part_header *read_and_parse(struct header_reader *reader, size_t file, uint64_t n_bytes, struct error *error)
{
    const struct source_file *part = &reader->source->files[file];
    const struct format *format = reader->format;
    struct header_cache *cache = lookup_cache(reader->lookup, reader->source, file);
    struct part_header *header = NULL;
    struct desk *desk = take_desk(reader);
    if (n_bytes > desk->room || !desk->bytes) {
        metadata_free(desk->bytes);
        desk->bytes = metadata_alloc(n_bytes, error);
        desk->room = desk->bytes ? n_bytes : 0;
    }
    if (desk->bytes &&
        lookup_read(reader->lookup, reader->source, file, format->first_bytes, desk->bytes, n_bytes, error) == 0 &&
        source_check_still(reader->source, file, error) == 0) {
        pthread_mutex_lock(&reader->lock);
        struct sample sample = reader->sample;
        pthread_mutex_unlock(&reader->lock);
        if (sample.bytes && sample.n_bytes == n_bytes && sample.file_bytes == part->size_bytes &&
            memcmp(sample.bytes, desk->bytes, n_bytes) == 0) /* the same text, of a file as long */
            header = part_header_ref(sample.header);
        else
            header = format->parse(desk->bytes, n_bytes, part->size_bytes, &desk->help, error);
    }
    if (header && cache)
        header_cache_add(cache, format, &part->identity, header, desk->bytes, n_bytes);
    if (header && reader->source->n_files > 1)
        keep_sample(reader, header, desk, n_bytes, part->size_bytes);
    put_desk(reader, desk);
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

int headers_read(struct source *source, const struct format *format, struct lookup *lookup, struct part_header **headers,
                 struct error *error)
{
    struct header_reader reader = {.source = source,
                                   .format = format,
                                   .lookup = lookup,
                                   .headers = headers,
                                   .lock = PTHREAD_MUTEX_INITIALIZER,
                                   .is_less = PTHREAD_COND_INITIALIZER};
    size_t n_threads = source->caps.parallel_requests;
    if (!source->caps.reads_are_requests) { /* parsing is what takes time; few files are not worth a thread */
        long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
        size_t most = n_cpus > 0 && n_cpus < LOCAL_THREADS ? (size_t)n_cpus : LOCAL_THREADS;
        n_threads = 1 + source->n_files / FILES_PER_THREAD;
        n_threads = n_threads < most ? n_threads : most;
    }
    int failed = parallel_run(source->n_files, n_threads, find_or_read_header, &reader, error);
    while (reader.idle) {
        struct desk *desk = reader.idle;
        reader.idle = desk->next;
        destroy_desk(desk);
    }
    part_header_unref(reader.sample.sibling);
    part_header_unref(reader.sample.header);
    metadata_free(reader.sample.bytes);
    return failed;
}
