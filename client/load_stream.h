/* The Materialize call of a load: one request, progress as it comes, and the result at its end. */
#ifndef CLIENT_LOAD_STREAM_H
#define CLIENT_LOAD_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "client.h"
#include "handoff.h"
#include "tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "wait.h"

struct load_question { /* all borrowed */
    const char *artifact;
    const struct tc_view *view;               /* NULL = every tensor */
    const struct tc_options *options;         /* may be NULL */
    const char *device;                       /* UUID of the GPU where the memory is; "" = host memory */
    struct region *region;                    /* memory of the caller that is filled as a whole; NULL = none */
    Tensorcast__Daemon__V1__Targets *targets; /* or target by target */
    Tensorcast__Daemon__V1__FileSet *files;   /* instead of tensors; NULL = tensors */
};

enum { LOAD_STREAM_STAGE_CHARS = 224 };

struct load_stream {
    const struct tc_options *options; /* may be NULL; set by the caller, the rest begins as zeros */
    const Tensorcast__Daemon__V1__LoadResult *result;
    bool has_ended; /* the daemon's answer is complete: errors from here on are about what it says */
    uint64_t told_ns;
    char stage[LOAD_STREAM_STAGE_CHARS]; /* of the last progress, or "waiting for ..."; "" = none came */
    uint64_t done_bytes, total_bytes;
};

/* The result is in the arena, and says that memory is where it was asked for; it is of files only where those were wanted. */
int load_stream_ask(struct tc_client *client, const struct load_question *question, const struct wait *wait,
                    struct arena *arena, struct load_stream *stream, struct error *error);
/* Adds to the error of a time limit that has passed how far the load was; -1. */
int load_stream_how_far(const struct load_stream *stream, struct error *error);
/* The last call of the caller's progress function. */
int load_stream_done(struct load_stream *stream, uint64_t bytes, struct error *error);
bool load_stream_of_files(const Tensorcast__Daemon__V1__LoadResult *result);

#endif
