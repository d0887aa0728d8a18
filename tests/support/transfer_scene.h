/* A stage for the engine's steps without artifacts and devices: one part file of random bytes, runs whose transfers have
 * random strides on both sides, an item with a part for each of them, and the memory that a naive copy makes. The runs write
 * to plain memory: the simplest destination there is. */
#ifndef SUPPORT_TRANSFER_SCENE_H
#define SUPPORT_TRANSFER_SCENE_H

#include <pthread.h>

#include "execute/engine_private.h"

enum { TRANSFER_SCENE_RUNS = 4 };

struct heap_destination { /* the row for plain memory: what a destination has to do, and nothing else */
    struct destination base;
    unsigned char *memory;
    uint64_t bytes;
    int n_prepared, n_written, n_finished, n_abandoned;
    bool fails_prepare, fails_write, fails_finish;
    pthread_mutex_t lock; /* of the counters */
};

struct heap_destination *heap_destination_create(uint64_t bytes, bool has_address);
void heap_destination_destroy(struct heap_destination *heap);

struct scene_source {
    struct source base;
    const unsigned char *image;
    uint64_t read_bytes, n_reads, n_cached_reads; /* atomic */
    uint64_t fail_from;                           /* this byte of the file cannot be read; UINT64_MAX = every byte can */
    double resident_share;
};

struct transfer_scene {
    uint64_t random;
    unsigned char *image;
    uint64_t image_bytes;
    struct source_file file;
    struct scene_source source;
    struct artifact artifact;
    struct engine engine; /* a lock and buffers, no threads */
    struct scan scan;
    struct item item;
    struct loop *loop;
    size_t n_runs, n_running;
    struct scene_run {
        struct run run;
        struct mapping mapping;
        struct plan plan;
        size_t step_first[2];
        struct heap_destination *heap;
        unsigned char *expected;
        struct run *started; /* by an engine */
        struct transfer_scene *scene;
        bool has_failed;
        struct error error;
        struct run_report report;
    } runs[TRANSFER_SCENE_RUNS];
};

void transfer_scene_init(struct transfer_scene *scene, uint64_t seed, uint64_t image_bytes);
void transfer_scene_fini(struct transfer_scene *scene);
uint64_t transfer_scene_random(struct transfer_scene *scene, uint64_t below);

/* One more run and its part: transfers of rows of up to most_bytes with gaps and strides on both sides, covered by steps. */
struct scene_run *transfer_scene_add_run(struct transfer_scene *scene, uint64_t most_bytes, bool has_address);
/* The same with these transfers, in any order, which leave room for each other at the destination. */
struct scene_run *transfer_scene_add_transfers(struct transfer_scene *scene, const struct transfer *transfers, size_t n,
                                               bool has_address);
/* The same with these operations, [0] = the copy, which are borrowed. */
struct scene_run *transfer_scene_add_operations(struct transfer_scene *scene, const struct transfer *transfers, size_t n,
                                                struct operation *operations, size_t n_operations, bool has_address);
/* Takes the last run away. */
void transfer_scene_drop_run(struct transfer_scene *scene);
/* Runs all of them in an engine with these options, whose loop is filled in, and waits. */
void transfer_scene_run_all(struct transfer_scene *scene, struct engine_options options);
/* What was placed is what the naive copy says, within the range of the file; and nothing was written beside it. */
bool transfer_scene_is_right(const struct scene_run *run);

#endif
