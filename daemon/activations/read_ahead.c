#include "activations/read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/huge_pages.h"

enum {
    PIECE_BYTES = 512 << 10, /* stays in a cache between the read and what is done with it */
    N_PIECES = 4,            /* one is used, one is read, the others wait */
    MEMORY_BYTES = N_PIECES * PIECE_BYTES,
    STACK_BYTES = 256 << 10,
};

struct reader {
    int fd, flags; /* as the descriptor was */
    const char *name;
    uint64_t file_bytes;
    unsigned char *pieces; /* one behind the other, in huge pages: the device takes more of those at a time */
    pthread_mutex_t lock;  /* of all that follows */
    pthread_cond_t changed;
    size_t counts[N_PIECES];
    uint64_t n_read, n_used; /* pieces; piece i lies in i % N_PIECES */
    bool has_ended, has_failed;
    struct error error;
};

static ssize_t read_once(const struct reader *reader, unsigned char *piece, uint64_t at)
{
    ssize_t got;
    do {
        got = pread(reader->fd, piece, PIECE_BYTES, (off_t)at);
        if (got < 0 && errno == EINVAL && fcntl(reader->fd, F_GETFL) & O_DIRECT) { /* not on this file system */
            fcntl(reader->fd, F_SETFL, reader->flags);
            errno = EINTR;
        }
    } while (got < 0 && errno == EINTR);
    return got;
}

/* How much came of what is at `at`: whole blocks but at the end. 0: an error. */
static size_t read_piece(const struct reader *reader, unsigned char *piece, uint64_t at, struct error *error)
{
    uint64_t left = reader->file_bytes - at;
    ssize_t got = read_once(reader, piece, at);
    if (got > 0)
        return (uint64_t)got < left ? (size_t)got : (size_t)left;
    if (got < 0)
        fail_errno(error, errno, "cannot read %s", reader->name);
    else
        fail(error, ERROR_DATA_LOSS, "SEGMENT_CUT", "%s got shorter while it was read", reader->name);
    return 0;
}

static void *read_all(void *data)
{
    struct reader *reader = data;
    struct error error;
    for (uint64_t at = 0, i = 0; at < reader->file_bytes; i++) {
        pthread_mutex_lock(&reader->lock);
        while (i - reader->n_used >= N_PIECES)
            pthread_cond_wait(&reader->changed, &reader->lock);
        pthread_mutex_unlock(&reader->lock);
        size_t count = read_piece(reader, reader->pieces + i % N_PIECES * PIECE_BYTES, at, &error);
        pthread_mutex_lock(&reader->lock);
        reader->counts[i % N_PIECES] = count;
        reader->n_read += count > 0;
        reader->has_failed = count == 0;
        if (!count)
            reader->error = error;
        pthread_cond_signal(&reader->changed);
        pthread_mutex_unlock(&reader->lock);
        if (!count)
            break;
        at += count;
    }
    pthread_mutex_lock(&reader->lock);
    reader->has_ended = true;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* Until the thread has ended: what it has read is used even where what follows cannot be. */
static void use_all(struct reader *reader, void (*take)(void *data, const void *bytes, size_t count), void *data)
{
    pthread_mutex_lock(&reader->lock);
    for (;;) {
        while (reader->n_used == reader->n_read && !reader->has_ended)
            pthread_cond_wait(&reader->changed, &reader->lock);
        if (reader->n_used == reader->n_read)
            break;
        uint64_t i = reader->n_used % N_PIECES;
        size_t count = reader->counts[i];
        pthread_mutex_unlock(&reader->lock);
        take(data, reader->pieces + i * PIECE_BYTES, count);
        pthread_mutex_lock(&reader->lock);
        reader->n_used++;
        pthread_cond_signal(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
}

/* Where there is no second thread. */
static void read_in_turns(struct reader *reader, void (*take)(void *data, const void *bytes, size_t count), void *data)
{
    for (uint64_t at = 0; at < reader->file_bytes && !reader->has_failed;) {
        size_t count = read_piece(reader, reader->pieces, at, &reader->error);
        reader->has_failed = count == 0;
        if (count)
            take(data, reader->pieces, count);
        at += count;
    }
}

int read_ahead(int fd, const char *name, uint64_t file_bytes, void (*take)(void *data, const void *bytes, size_t count),
               void *data, struct error *error)
{
    struct reader reader = {.fd = fd, .flags = fcntl(fd, F_GETFL), .name = name, .file_bytes = file_bytes};
    pthread_attr_t attributes;
    pthread_t thread;
    reader.pieces = huge_pages_map(MEMORY_BYTES);
    if (!reader.pieces)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_MEMORY", "there is no memory to read %s", name);
    pthread_mutex_init(&reader.lock, NULL);
    pthread_cond_init(&reader.changed, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    fcntl(fd, F_SETFL, reader.flags | O_DIRECT); /* what was written past the page cache need not come into it */
    bool is_worth_it = file_bytes > PIECE_BYTES;
    if (is_worth_it && pthread_create(&thread, &attributes, read_all, &reader) == 0) {
        use_all(&reader, take, data);
        pthread_join(thread, NULL);
    } else {
        read_in_turns(&reader, take, data);
    }
    fcntl(fd, F_SETFL, reader.flags);
    pthread_attr_destroy(&attributes);
    pthread_cond_destroy(&reader.changed);
    pthread_mutex_destroy(&reader.lock);
    munmap(reader.pieces, MEMORY_BYTES);
    if (reader.has_failed)
        *error = reader.error;
    return reader.has_failed ? -1 : 0;
}
