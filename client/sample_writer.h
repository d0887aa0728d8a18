/* Appends samples to a host's folder of an activation store through the daemon: arrays are copied once, into memory that is
 * shared with it. One thread at a time; blocks. Inside of the library and the command. */
#ifndef CLIENT_SAMPLE_WRITER_H
#define CLIENT_SAMPLE_WRITER_H

#include "base/dtype.h"
#include "client.h"
#include "wait.h"

struct sample_plane { /* one layer's array */
    uint32_t layer, rank;
    enum dtype dtype;
    const uint64_t *shape;
    const unsigned char *bytes;
    bool is_big_endian;
    uint64_t n_bytes;
    const uint8_t *axes; /* the dimensions in the order in which they lie there, the slowest first */
};

/* The elements in C order and little endian, malloced; NULL: they are. */
unsigned char *sample_plane_turn(const struct sample_plane *plane);

struct sample_writer;

/* store: "disk:/data/acts". wait: of this and all that follows. What follows fails as the daemon says: docs/activations.md. */
int sample_writer_open(struct tc_client *client, const char *store, uint32_t host, uint64_t segment_bytes,
                       const struct wait *wait, struct sample_writer **writer, struct error *error);
/* info: a JSON object, "" = none. The planes are sorted, widest elements first. */
int sample_writer_append(struct sample_writer *writer, uint32_t sample, struct sample_plane *planes, size_t n_planes,
                         const char *info, struct error *error);
/* Makes durable and seals what was appended; the writer is gone whatever it returns. */
int sample_writer_close(struct sample_writer *writer, struct error *error);

#endif
