/* A stage for loads through the engine without a daemon: random checkpoints, random views, real plans, and the comparison
 * of what came out with what a byte-by-byte copy gives. One thread (the loop's) calls everything. */
#ifndef SUPPORT_LOAD_SCENE_H
#define SUPPORT_LOAD_SCENE_H

#include <pthread.h>

#include "device/device.h"
#include "execute/engine.h"
#include "plan/plan.h"
#include "resolve/artifact.h"
#include "source/source.h"
#include "tests/support/source_fault.h"

/* A device in front of another one: counts calls, fails the n-th, and can hide that its memory has a host address, or
 * give out memory with old bytes in it, as GPUs do.
 * Wrappers stack. Thread-safe. */
struct device_fault {
    struct device base;
    struct device *inner;
    uint64_t n_calls;   /* atomic: allocate, prepare, copy, seal, export_fd */
    uint64_t fail_from; /* this call (1 = the first) fails; 0 = none */
    uint64_t delay_ns;  /* before each call */
    int64_t n_segments; /* atomic: alive */
    bool hides_address;
    bool gives_dirty_memory;
};

struct device_fault *device_fault_create(struct device *inner); /* inner stays the caller's; free with device_destroy() */
struct segment *device_fault_inner(struct segment *segment);    /* the inner device's segment behind a wrapped one */

/* A store that is far away, in front of another source: each request waits, then its bytes come at the pace of one
 * connection and of a link that all requests share. Counts what was asked of it. NULL iovecs are thrown away; waits ask for
 * cancellation.
 *
 * Goes between a scene's artifact and its files: source_remote_create(scene.artifact->source). Thread-safe. */
struct source_remote {
    struct source base;
    struct source *inner;
    uint64_t latency_ns, connection_bytes_per_s, link_bytes_per_s; /* 0 = none, and no limits */
    uint32_t allowed_requests; /* what its speed says of how many are allowed; 0 = nothing */
    bool hides_speed;
    bool invents_bytes; /* sevens instead of what the inner source has: the least that a network card does */
    uint64_t n_reads, read_bytes, n_cancelled, in_flight, most_in_flight; /* atomic */
    uint64_t shortest_read, longest_read;                                 /* atomic: bytes */
    uint64_t holds_after_bytes; /* a read that has told of so many waits for `is_released`; whole MiB, 0 = none waits */
    uint64_t n_held;            /* atomic */
    bool is_released;           /* atomic */
    pthread_mutex_t lock;
    uint64_t link_free_ns;
};

/* Takes over the reference to `inner`; caps are those of a store with 16 MiB requests, 32 at once. Adjust caps and the
 * fields above before it is shared; free with source_unref(). */
struct source_remote *source_remote_create(struct source *inner);

enum { SCENE_MAX_FILES = 17, SCENE_MAX_TENSORS = 64, SCENE_PATIENCE_MS = 60000 };
enum { SCENE_ROWS = 700, SCENE_COLUMNS = 1000 }; /* of scene_init_matrices() */

struct load_scene {
    struct loop *loop;
    struct engine *engine;
    struct device *device;
    uint64_t seed, random;
    char folder[64]; /* "" = the checkpoint is in memory */
    size_t n_files;
    unsigned char *images[SCENE_MAX_FILES];
    uint64_t image_bytes[SCENE_MAX_FILES];
    size_t n_tensors;
    struct scene_tensor {
        char name[24];
        uint64_t shape[3];
        uint32_t rank;
    } tensors[SCENE_MAX_TENSORS];
    struct artifact *artifact;
    bool fine_slices;             /* remote_fine_slices of the strategy */
    bool is_of_group;             /* loads are ranks of one, as far as the engine is told */
    struct block_holder *holders; /* of all loads */
    int n_running, n_done;
    const struct load *awaited;
};

struct load { /* one load from view to segment */
    struct load_scene *scene;
    uint32_t uid;             /* whose it is */
    struct artifact artifact; /* the scene's, with a source of its own in front */
    struct source_fault *source;
    struct mapping *mapping;
    struct plan *plan;
    struct segment *segment;
    struct run *run;
    struct lanes *lanes; /* a test's, for what workers do; NULL = they do not draw */
    bool is_done, has_failed;
    int order; /* among the loads of the scene that are done; 1 = the first */
    struct error error;
    struct run_report report;
};

void scene_init(struct load_scene *scene, uint64_t seed, uint64_t staging_bytes, uint64_t n_threads, uint64_t pool_bytes);
/* With four matrices of bytes in memory: t.0 and t.2 in one file, t.1 and t.3 in another. */
void scene_init_matrices(struct load_scene *scene);
void scene_fini(struct load_scene *scene);
/* An engine with an extent cache instead; before the first load. */
void scene_use_extent_cache(struct load_scene *scene, uint64_t staging_bytes, uint64_t cache_bytes);
/* Puts a store in front of the checkpoint's files; after scene_write(). */
struct source_remote *scene_move_away(struct load_scene *scene);
uint64_t scene_random(struct load_scene *scene, uint64_t below);

/* Adds a U8 tensor to the checkpoint; tensors go to the files in turn. */
void scene_add_tensor(struct load_scene *scene, uint32_t rank, const uint64_t *shape);
/* Matrices, cubes, vectors, scalars and empty ones; some are larger than a block when scale is in the hundreds. */
void scene_add_mixed_tensors(struct load_scene *scene, size_t n_tensors, uint64_t scale);
/* Writes n_files with random bytes, to memory or to a new folder under /tmp, and resolves them. */
void scene_write(struct load_scene *scene, size_t n_files, bool on_disk);

/* A load of the items with that executor (an executor_preference); asserts that it can be planned. */
struct load *scene_load_create(struct load_scene *scene, const struct view_spec *view, int executor, struct device *device);
struct random_transfers;
/* Of these transfers instead, which are borrowed. */
struct load *scene_load_create_transfers(struct load_scene *scene, struct random_transfers *transfers, int executor,
                                         struct device *device);
/* Of one tensor, whole when n_slices is 0. */
struct load *scene_load_create_item(struct load_scene *scene, const char *name, uint32_t n_slices,
                                    const struct slice *slices, int executor);
/* Of the rows [lo, hi) of a matrix, by whichever executor. */
struct load *scene_load_create_rows(struct load_scene *scene, const char *name, int64_t lo, int64_t hi);
/* A random view of the scene's tensors. */
struct load *scene_load_create_random(struct load_scene *scene, int executor, struct device *device);
/* As of a disk that is read past the page cache, where that share of it is cached. */
void scene_pretend_disk(struct load *load, double resident_share);
void scene_load_start(struct load *load);
struct collective;
void scene_load_start_in(struct load *load, struct collective *collective, uint32_t rank);
void scene_wait(struct load_scene *scene); /* until every started load is done */
bool scene_wait_for(struct load *load);    /* false when it is not done after SCENE_PATIENCE_MS */
/* Every byte of the segment is the source's or, where no tensor lies, zero. */
bool load_is_right(const struct load *load);
bool load_is_right_in(const struct load *load, const void *memory); /* the segment's bytes, looked at some other way */
/* It is right, and its report accounts for every byte. Prints what is not. */
bool load_has_succeeded(const struct load *load);
void load_destroy(struct load *load);

/* Loads from a store of which REMOTE_SCENE_REQUEST bytes are asked at once. Blocks are as large, so a few MiB are several. */
enum { REMOTE_SCENE_REQUEST = 2 << 20 };
struct source_remote *remote_scene_move_away(struct load_scene *scene);
struct load *remote_scene_load_columns(struct load_scene *scene, const char *name, int64_t from, int64_t to);
void remote_scene_release(struct source_remote *remote);

#endif
