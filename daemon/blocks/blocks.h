/* Bytes of a source's files, for all that want some: runs, verification, scales, documents, commands. Nothing else calls
 * source_read(). A want names a file by its source, which was opened with the file at one version
 * (source->files[file].identity); bytes of another version are an error. Any thread; blocks. */
#ifndef BLOCKS_BLOCKS_H
#define BLOCKS_BLOCKS_H

#include "source/source.h"

/* How bytes of a want came. */
enum block_way {
    BLOCK_ASKED,       /* a holder took charge of them, gaps included; the other ways say what it did */
    BLOCK_FROM_SOURCE, /* the holder asked the source for them, perhaps for more than is wanted */
    BLOCK_FROM_HOST,   /* another host sent them */
    BLOCK_KEPT,        /* they were on this host */
    BLOCK_HEDGED,      /* their owner was late, and so this host or another one read them */
    BLOCK_N_WAYS,
};

struct block_count {
    /* On the thread that asks, before blocks_get() returns. host: of BLOCK_FROM_HOST, copied; NULL for the others. */
    void (*add)(struct block_count *count, enum block_way way, const char *host, uint64_t bytes);
};

struct block_want {
    struct source *source;
    struct source_read read;      /* which bytes, where to, who asks, what ends it */
    struct block_holder *holders; /* asked before the source, in order; NULL = none */
    struct block_count *count;    /* holders tell it what they did; may be NULL */
    uint64_t deadline_ns;         /* as clock_now_ns(); 0 = none */
};

struct block_place { /* a block that a load needs */
    size_t file;
    uint64_t offset;
    uint64_t turn; /* out: 0 = this host reads it from the source; else it comes from elsewhere, the lowest first */
};

/* Has bytes of files, or knows where they can be had more cheaply than from their source. */
struct block_holder {
    const char *name; /* "peers" */
    struct block_holder *next;
    uint64_t block_bytes; /* it serves blocks of so many bytes, from offset 0: loads read no larger ones; 0 = of any size */
    /* Optional. Whether it gives bytes of the file; of others it gives none, and the source is read. Any thread; short. */
    bool (*serves)(const struct source *source, size_t file);
    /* Optional. When a load takes each of its blocks. Any thread; short. */
    void (*arrange)(struct block_holder *holder, const struct source *source, struct block_place *places, size_t n);
    /* Optional, with arrange(). Reads `bytes` of one block of this host from the source and keeps them, before a host asks for them: of the
     * want, its source, file, offset, user and cancel count. False: it is to read no more ahead, as there is no room, or the source
     * fails. Any thread; blocks. */
    bool (*read_ahead)(struct block_holder *holder, const struct block_want *want, uint64_t bytes);
    /* Of a want for a fresh connection it gives nothing that it gave before. 0: all of the want is there, its checksum computed and its arrivals told as by source_read(). 1: the next one is to be
     * asked. -1: an error that the source would not mend. */
    int (*get)(struct block_holder *holder, struct block_want *want, struct error *error);
};

/* Fills the buffers. CANCELLED, or DEADLINE_EXCEEDED, as soon as the wait for the bytes can be ended. */
int blocks_get(struct block_want *want, struct error *error);

/* Stretches of files, read in pieces by several threads, for sums and copies that need no more than a few buffers.
 *
 *     stretch 0  |piece 0|piece 1|piece 2|       on_read    in any order, several at once
 *     stretch 1  |piece 0|piece 1|               on_turn    of one stretch: one at a time, in order
 *
 * Each thread keeps to a stretch of its own while there are enough of them. Pieces of a stretch are taken in order, so a
 * thread that waits for a turn waits for one that reads. */
struct block_stretch {
    size_t file;
    uint64_t lo, hi;
    unsigned char *memory; /* where byte lo goes; NULL = to a buffer, for the callbacks alone */
};

struct block_piece {
    size_t stretch; /* index */
    uint64_t number, offset, bytes;
    unsigned char *memory;
    void *made; /* NULL; on_read may put heap memory here for on_turn, which is freed afterwards */
};

struct block_stream {
    struct source *source;
    const struct block_stretch *stretches;
    size_t n_stretches;
    uint64_t piece_bytes;
    size_t n_threads;                                                           /* at most; one of them is the caller's */
    int (*on_read)(void *data, struct block_piece *piece, struct error *error); /* may be NULL, like ... */
    int (*on_turn)(void *data, struct block_piece *piece, struct error *error);
    void *data;
    uint64_t *done_bytes; /* atomic, may be NULL: grows as bytes come */
    bool fresh_connection;
    const struct cancel *cancel;
    uid_t uid;
};

/* -1 with the error of a read or a callback: no piece and no turn is begun after that. Blocks. */
int blocks_stream(const struct block_stream *stream, struct error *error);

#endif
