/* Threads and order. Every thread keeps to a file of its own while there are enough of them; the pieces of one file are
 * taken in order, so whoever waits for its turn waits for somebody who reads. */
#include "integrity/scrub.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "integrity/scrub_private.h"
#include "integrity/verify_private.h"

enum { PIECE_BYTES = 8 << 20, DISK_THREADS = 4, REMOTE_THREADS = 8 };

struct crew {
    struct scrub *scrub;
    const struct scrub_options *options;
    struct scrub_lane *lanes;
    size_t n_lanes, n_started;
    uint64_t piece_bytes;
    bool is_second; /* what did not match is read again */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    bool has_failed;
    struct error error;
};

/* The next piece of the lane, or of one behind it. */
static bool take(struct crew *crew, size_t *lane, struct scrub_piece *piece)
{
    bool found = false;
    pthread_mutex_lock(&crew->lock);
    for (size_t i = 0; i < crew->n_lanes && !found && !crew->has_failed; i++) {
        struct scrub_lane *at = &crew->lanes[(*lane + i) % crew->n_lanes];
        found = at->next_piece < at->n_pieces;
        if (!found)
            continue;
        *lane = (*lane + i) % crew->n_lanes;
        uint64_t offset = at->next_piece * crew->piece_bytes, left = at->file->part->size_bytes - offset;
        piece->lane = at;
        piece->number = at->next_piece++;
        piece->offset = offset;
        piece->bytes = left < crew->piece_bytes ? left : crew->piece_bytes;
    }
    pthread_mutex_unlock(&crew->lock);
    return found;
}

struct scrub_arrival {
    struct arrival arrival;
    struct scrub_piece *piece;
    uint64_t *done_bytes;
};

/* No more than the piece has, also when some of it comes twice. */
static void tell(struct arrival *arrival, uint64_t bytes)
{
    const struct scrub_arrival *scrub = (struct scrub_arrival *)arrival;
    uint64_t all = scrub->piece->bytes, from = __atomic_fetch_add(&scrub->piece->told_bytes, bytes, __ATOMIC_RELAXED);
    if (from < all)
        __atomic_add_fetch(scrub->done_bytes, bytes < all - from ? bytes : all - from, __ATOMIC_RELAXED);
}

static int read_piece(const struct crew *crew, struct scrub_piece *piece, struct error *error)
{
    struct scrub_arrival arrival = {{tell}, piece, crew->options->done_bytes};
    struct iovec iov = {piece->memory, piece->bytes};
    struct source_read read = {.file = piece->lane->index,
                               .offset = piece->offset,
                               .iov = &iov,
                               .n_iov = 1,
                               .fresh_connection = crew->is_second,
                               .cancel = crew->options->cancel,
                               .uid = crew->options->uid,
                               .arrival = crew->options->done_bytes ? &arrival.arrival : NULL};
    piece->told_bytes = 0;
    if (cancel_is_set(crew->options->cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while the files were read");
    return source_read(crew->scrub->artifact->source, &read, error);
}

static void add_in_turn(struct crew *crew, struct scrub_piece *piece)
{
    struct scrub_lane *lane = piece->lane;
    pthread_mutex_lock(&crew->lock);
    while (lane->next_in_order != piece->number && !crew->has_failed)
        pthread_cond_wait(&crew->turn, &crew->lock);
    bool goes_on = !crew->has_failed;
    pthread_mutex_unlock(&crew->lock);
    if (!goes_on)
        return;
    scrub_add_piece(crew->scrub, piece, crew->is_second); /* it is this lane's turn: nobody else is at it */
    pthread_mutex_lock(&crew->lock);
    lane->next_in_order++;
    pthread_cond_broadcast(&crew->turn);
    pthread_mutex_unlock(&crew->lock);
    if (crew->options->done_bytes && piece->told_bytes < piece->bytes)
        __atomic_add_fetch(crew->options->done_bytes, piece->bytes - piece->told_bytes, __ATOMIC_RELAXED);
}

static void *work(void *data)
{
    struct crew *crew = data;
    struct scrub_piece piece = {.memory = malloc(crew->piece_bytes)};
    struct error error;
    size_t lane = __atomic_fetch_add(&crew->n_started, 1, __ATOMIC_RELAXED) % crew->n_lanes;
    bool failed = !piece.memory && fail(&error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY",
                                        "no memory for a buffer of %" PRIu64 " bytes", crew->piece_bytes);
    while (!failed && take(crew, &lane, &piece)) {
        failed = read_piece(crew, &piece, &error) != 0;
        if (failed)
            break;
        scrub_sum_piece(crew->scrub, &piece);
        add_in_turn(crew, &piece);
    }
    if (failed) {
        pthread_mutex_lock(&crew->lock);
        if (!crew->has_failed)
            crew->error = error;
        crew->has_failed = true;
        pthread_cond_broadcast(&crew->turn);
        pthread_mutex_unlock(&crew->lock);
    }
    free(piece.memory);
    free(piece.segments);
    return NULL;
}

static int run_threads(struct crew *crew)
{
    pthread_t threads[REMOTE_THREADS];
    size_t n_wanted = crew->scrub->artifact->source->caps.reads_are_requests ? REMOTE_THREADS : DISK_THREADS, n_threads = 0;
    crew->n_started = 0;
    for (size_t i = 0; i < crew->n_lanes; i++)
        if (scrub_lane_start(&crew->lanes[i], &crew->error))
            return -1;
    while (n_threads + 1 < n_wanted && pthread_create(&threads[n_threads], NULL, work, crew) == 0)
        n_threads++;
    work(crew);
    for (size_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    return crew->has_failed ? -1 : 0;
}

/* Keeps the lanes that have to be read again. */
static void judge_files(struct crew *crew)
{
    size_t n_again = 0;
    for (size_t i = 0; i < crew->n_lanes; i++) {
        struct scrub_lane *lane = &crew->lanes[i];
        if (scrub_lane_judge(crew->scrub, lane)) {
            lane->file->healed = crew->is_second;
            scrub_lane_fini(lane);
        } else {
            crew->lanes[n_again++] = *lane;
        }
    }
    crew->n_lanes = n_again;
}

static int make_lanes(struct crew *crew)
{
    struct scrub *scrub = crew->scrub;
    for (size_t i = 0; i < scrub->n_files; i++) {
        struct scrub_lane *lane = &crew->lanes[crew->n_lanes];
        struct scrub_file *file = &scrub->files[i];
        uint64_t bytes = file->part->size_bytes;
        bool is_wanted = scrub_lane_init(lane, scrub, crew->options->for_manifest, i);
        if (verify_check_manifest(file->part, lane->manifest, &file->error) < 0 || !is_wanted)
            continue;
        lane->n_pieces = bytes / crew->piece_bytes + (bytes % crew->piece_bytes != 0);
        crew->n_lanes++;
        lane->piece_crcs = metadata_array(lane->n_pieces, sizeof *lane->piece_crcs, &crew->error);
        file->n_blocks = bytes / scrub->block_bytes + (bytes % scrub->block_bytes != 0);
        file->blocks = metadata_array(file->n_blocks, sizeof *file->blocks, &crew->error);
        if (!lane->piece_crcs || !file->blocks)
            return -1;
    }
    return 0;
}

static struct scrub *create_scrub(const struct scrub_options *options, struct error *error)
{
    struct artifact *artifact = options->artifact;
    struct scrub *scrub = memory_alloc(sizeof *scrub);
    scrub->artifact = artifact;
    scrub->block_bytes = MANIFEST_BLOCK_BYTES;
    if (!options->for_manifest && artifact->manifest && artifact->manifest->block_bytes)
        scrub->block_bytes = artifact->manifest->block_bytes;
    scrub->n_files = artifact->source->n_files;
    scrub->files = metadata_array(scrub->n_files, sizeof *scrub->files, error);
    scrub->piece_crcs = metadata_array(artifact->n_pieces, sizeof *scrub->piece_crcs, error);
    if (!scrub->files || !scrub->piece_crcs) {
        scrub_destroy(scrub);
        return NULL;
    }
    for (size_t i = 0; i < scrub->n_files; i++)
        scrub->files[i].part = &artifact->source->files[i];
    return scrub;
}

struct scrub *scrub_run(const struct scrub_options *options, struct error *error)
{
    struct crew crew = {.scrub = create_scrub(options, error), .options = options};
    if (!crew.scrub)
        return NULL;
    crew.piece_bytes = PIECE_BYTES > crew.scrub->block_bytes ? PIECE_BYTES : crew.scrub->block_bytes;
    crew.lanes = memory_alloc_array(crew.scrub->n_files + 1, sizeof *crew.lanes);
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.turn, NULL);
    int failed = make_lanes(&crew);
    for (int reading = 0; reading < 2 && crew.n_lanes && !failed; reading++) {
        crew.is_second = reading > 0;
        failed = run_threads(&crew);
        if (!failed)
            judge_files(&crew);
    }
    if (!failed)
        failed = scrub_compare_copies(crew.scrub, options, &crew.error);
    struct error changed;
    if (artifact_check_unchanged(options->artifact, options->cancel, &changed) < 0 &&
        !(failed && crew.error.code == ERROR_CANCELLED)) {
        failed = -1; /* also instead of the damage that the change seemed to be */
        crew.error = changed;
    }
    for (size_t i = 0; i < crew.n_lanes; i++)
        scrub_lane_fini(&crew.lanes[i]);
    pthread_cond_destroy(&crew.turn);
    pthread_mutex_destroy(&crew.lock);
    free(crew.lanes);
    if (!failed)
        return crew.scrub;
    *error = crew.error;
    scrub_destroy(crew.scrub);
    return NULL;
}

void scrub_destroy(struct scrub *scrub)
{
    if (!scrub)
        return;
    for (size_t i = 0; scrub->files && i < scrub->n_files; i++)
        metadata_free(scrub->files[i].blocks);
    metadata_free(scrub->files);
    metadata_free(scrub->piece_crcs);
    free(scrub);
}

uint64_t scrub_total_bytes(const struct scrub_options *options)
{
    struct error error;
    struct scrub *scrub = create_scrub(options, &error); /* NULL: nothing will be read */
    struct scrub_lane lane;
    uint64_t bytes = scrub ? scrub_copies_bytes(scrub->artifact) : 0;
    for (size_t i = 0; scrub && i < scrub->n_files; i++)
        if (scrub_lane_init(&lane, scrub, options->for_manifest, i))
            bytes += scrub->files[i].part->size_bytes;
    scrub_destroy(scrub);
    return bytes;
}

const char *scrub_status(const struct scrub_file *file)
{
    return file->error.code ? "damaged" : file->by | file->by_manifest ? "verified" : "unverified";
}

char *scrub_by(const struct scrub_file *file, char text[SCRUB_BY_CHARS])
{
    text[0] = '\0';
    checksum_print_kinds(file->by, "", text, SCRUB_BY_CHARS);
    checksum_print_kinds(file->by_manifest, "manifest ", text, SCRUB_BY_CHARS);
    return text;
}

const struct error *scrub_damage(const struct scrub *scrub)
{
    for (size_t i = 0; i < scrub->n_files; i++)
        if (scrub->files[i].error.code)
            return &scrub->files[i].error;
    return NULL;
}
