/* count the units -> journal -> windows take units until there are none -> sync -> read back.
 *
 * A window's life: take_unit() -> build_run() -> run_start() -> workers fill it and write it -> on_run_done() -> the next. */
#include "export/export_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "execute/calibration.h"
#include "execute/residency.h"
#include "base/huge_pages.h"
#include "execute/engine.h"
#include "execute/scales.h"
#include "export/export_files.h"
#include "export/export_units.h"
#include "integrity/tally.h"
#include "plan/plan.h"

enum {
    BLOCK = OUTPUT_FILE_BLOCK_BYTES,
    MOST_WINDOWS = 16,
    MOST_REMOTE_WINDOWS = 32,
    LOCAL_UNIT_BYTES = 8 << 20,    /* the second copy of a unit finds it in the processor's cache, or nearly */
    REMOTE_UNIT_BYTES = 32 << 20,  /* several requests of a store, unless more are in flight when each is smaller ... */
    LEAST_REQUEST_BYTES = 4 << 20, /* ... down to this */
    MIN_UNIT_BYTES = 256 << 10,
    SCRATCH_BYTES = 2 << 20,
    BESIDE_BYTES = 48 << 20, /* what the process takes without windows and staging ... */
    TENSOR_BYTES = 512,      /* ... and for each tensor ... */
    PART_BYTES = 128,        /* ... and each part of one */
    MIN_WINDOWS_BYTES = 8 << 20,
    LONG_ROW_BYTES = 128 << 10,
    TICK_MS = 50,
    CHECKPOINT_MS = 1000,
    LOOK_AGAIN_UNITS = 32, /* how long what is known of the page cache holds */
    MAPPINGS_PART = 8,     /* of the memory, that mappings of runs under way may have before there are fewer */
    BATCH = 16,            /* units that are read back at once, by ... */
    THREADS = 4,
    PIECE_BYTES = 1 << 20,
};

struct export_sizes {
    uint64_t unit_bytes, scratch_bytes, staging_bytes;
    size_t n_windows;
};

struct exporting;

struct window {                     /* one unit in flight */
    struct destination_file output; /* first */
    struct exporting *all;
    unsigned char *memory; /* of unit and scratch */
    struct export_unit unit;
    uint32_t index; /* of the unit */
    struct mapping *mapping;
    struct plan *plan;
    struct run *run; /* NULL while it is idle */
    struct arena arena;
};

struct checkpoint { /* units on their way into the journal; with a helper while is_running */
    struct loop_work work;
    struct exporting *all;
    struct journal_record *records;
    size_t n_records;
    bool is_running, has_failed;
    struct error error;
    uint64_t next_ns;
};

struct exporting {
    const struct export_job *job;
    struct export_counts *counts;
    struct export_sizes sizes;
    struct loop *loop;
    struct engine *engine;
    struct tally *tally;
    struct calibration *calibration;
    struct export_files files;
    struct export_journal journal;
    struct export_units units; /* the walk */
    uint32_t n_taken;
    struct window *windows;
    size_t n_busy, n_useful;        /* windows at a time, of sizes.n_windows */
    struct journal_record *written; /* units that wait for a checkpoint */
    size_t n_written, written_room;
    struct checkpoint checkpoint;
    uint64_t total_bytes, done_bytes;
    double cached_share;
    uint32_t looked_at; /* unit, when cached_share was found out */
    bool has_failed;
    struct error *error;
};

static void fail_export(struct exporting *all, const struct error *error)
{
    if (!all->has_failed)
        *all->error = *error;
    all->has_failed = true;
    for (size_t i = 0; i < all->sizes.n_windows; i++)
        if (all->windows[i].run)
            run_cancel(all->windows[i].run);
}

/* --- sizes ---------------------------------------------------------------------------------------------------------- */

static size_t count_windows(const struct export_sizes *sizes, uint64_t bytes, size_t most)
{
    uint64_t n = bytes / (sizes->unit_bytes + sizes->scratch_bytes);
    return n < 1 ? 1 : n > most ? most : n;
}

static struct export_sizes choose_sizes(const struct export_job *job)
{
    const struct source_caps *caps = &job->artifact->source->caps;
    bool is_remote = caps->reads_are_requests;
    const struct export_layout *layout = job->layout;
    uint64_t beside = BESIDE_BYTES + layout->n_tensors * TENSOR_BYTES + layout->first_part[layout->n_tensors] * PART_BYTES;
    bool has_room = job->memory_bytes > beside + MIN_WINDOWS_BYTES;
    uint64_t bytes = has_room ? job->memory_bytes - beside : MIN_WINDOWS_BYTES;
    struct export_sizes sizes = {.unit_bytes = is_remote ? REMOTE_UNIT_BYTES : LOCAL_UNIT_BYTES,
                                 .scratch_bytes = SCRATCH_BYTES,
                                 .staging_bytes = bytes / 4};
    bytes -= sizes.staging_bytes;
    while (sizes.unit_bytes > MIN_UNIT_BYTES && 4 * (sizes.unit_bytes + sizes.scratch_bytes) > bytes) {
        sizes.unit_bytes /= 2;
        sizes.scratch_bytes = sizes.unit_bytes < SCRATCH_BYTES ? sizes.unit_bytes : SCRATCH_BYTES;
    }
    while (is_remote &&
           sizes.unit_bytes > LEAST_REQUEST_BYTES) { /* until as many are in flight at once as the store takes */
        uint64_t of_unit = caps->request_bytes ? sizes.unit_bytes / caps->request_bytes : 1;
        if (count_windows(&sizes, bytes, MOST_REMOTE_WINDOWS) * (of_unit ? of_unit : 1) >= caps->parallel_requests)
            break;
        sizes.unit_bytes /= 2;
    }
    sizes.n_windows = count_windows(&sizes, bytes, is_remote ? MOST_REMOTE_WINDOWS : MOST_WINDOWS);
    return sizes;
}

static int map_windows(struct exporting *all, struct error *error)
{
    uint64_t bytes = all->sizes.unit_bytes + BLOCK + all->sizes.scratch_bytes;
    all->windows = memory_alloc_array(all->sizes.n_windows, sizeof *all->windows);
    for (size_t i = 0; i < all->sizes.n_windows; i++) {
        struct window *window = &all->windows[i];
        window->memory = huge_pages_map(bytes);
        if (!window->memory)
            return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a window of the export");
        window->all = all;
    }
    return 0;
}

static void unmap_windows(struct exporting *all)
{
    uint64_t bytes = all->sizes.unit_bytes + BLOCK + all->sizes.scratch_bytes;
    for (size_t i = 0; all->windows && i < all->sizes.n_windows; i++) {
        struct window *window = &all->windows[i];
        if (window->memory)
            munmap(window->memory, bytes);
        export_unit_fini(&window->unit);
    }
    free(all->windows);
}

/* --- units ---------------------------------------------------------------------------------------------------------- */

/* How many there are, and their bytes; also checks that each can be. */
static int count_units(struct exporting *all, uint32_t *n_units, struct error *error)
{
    struct export_units units = {.layout = all->job->layout, .unit_bytes = all->sizes.unit_bytes};
    struct export_unit unit = {0};
    int taken;
    for (*n_units = 0; (taken = export_units_next(&units, &unit, error)) > 0; ++*n_units)
        all->total_bytes += unit.bytes;
    export_unit_fini(&unit);
    return taken;
}

/* The next one that is not done. Same results as export_units_next(). */
static int take_unit(struct exporting *all, struct window *window, struct error *error)
{
    int taken;
    while ((taken = export_units_next(&all->units, &window->unit, error)) > 0) {
        window->index = all->n_taken++;
        if (!all->journal.is_done[window->index])
            return taken;
        all->done_bytes += window->unit.bytes;
        all->counts->resumed_bytes += window->unit.bytes;
    }
    return taken;
}

/* Then each is worth a request of its own, and a rank's part costs a store little more than its bytes. Gaps between short
 * rows are read with them. */
static bool has_long_rows(const struct mapping *mapping)
{
    for (size_t i = 0; i < mapping->n_transfers; i++)
        if (mapping->transfers[i].row_bytes < LONG_ROW_BYTES && mapping->transfers[i].n_rows > 1)
            return false;
    return true;
}

static int build_run(struct window *window, struct error *error)
{
    struct exporting *all = window->all;
    const struct export_job *job = all->job;
    struct source *source = job->artifact->source;
    const struct load_request request = {
        .artifact = job->artifact->reference,
        .view = {.items = window->unit.items, .n_items = window->unit.n_items, .align_bytes = 1}};
    struct load_spec spec;
    if (load_spec_build(&request, &job->config->engine.strategy, &window->arena, &spec, error) < 0)
        return -1;
    window->mapping = mapping_build(&spec.view, job->artifact, error);
    if (!window->mapping || scales_read(window->mapping, &(struct scales_options){.uid = job->uid}, error) < 0)
        return -1;
    /* where single elements change places, a mapping is larger than what it moves: fewer runs at a time then */
    uint64_t n_useful = job->memory_bytes / MAPPINGS_PART / (window->mapping->arena.total_bytes + 1);
    all->n_useful = n_useful < 1 ? 1 : n_useful < all->sizes.n_windows ? n_useful : all->sizes.n_windows;
    if (window->index == 0 || window->index >= all->looked_at + LOOK_AGAIN_UNITS) {
        all->cached_share = residency_cached_share(window->mapping);
        all->looked_at = window->index;
    }
    struct materialization_strategy strategy = job->config->engine.strategy;
    strategy.remote_fine_slices = has_long_rows(window->mapping);
    struct cost_constants costs = calibration_get(all->calibration, source->caps.device_id);
    const struct plan_facts facts = {.strategy = &strategy,
                                     .costs = &costs,
                                     .source = source->caps,
                                     .speed = engine_source_speed(all->engine, source),
                                     .device = {.direct_segments = true, .name = "files"},
                                     .staging_budget_bytes = all->sizes.staging_bytes,
                                     .extent_cache_bytes = engine_extent_cache_bytes(all->engine, true),
                                     .cached_share = all->cached_share};
    window->plan = plan_build(window->mapping, &spec, &facts, error);
    return window->plan ? 0 : -1;
}

static void end_run(struct window *window)
{
    run_destroy(window->run);
    plan_destroy(window->plan);
    mapping_destroy(window->mapping);
    arena_fini(&window->arena);
    window->run = NULL;
    window->plan = NULL;
    window->mapping = NULL;
}

static void on_run_done(struct run *run, void *data, const struct error *error);

static void tally_window(struct destination_file *output, const struct mapping *mapping)
{
    struct window *window = (struct window *)output;
    tally_add(window->all->tally, mapping, output->destination.address);
}

/* The largest put lies in memory as in its file, so that it can be written without another copy. */
static void place_window(struct window *window)
{
    const struct export_unit *unit = &window->unit;
    const struct export_sizes *sizes = &window->all->sizes;
    const struct file_put *largest = &unit->puts[0];
    for (size_t i = 1; i < unit->n_puts; i++)
        if (file_put_bytes(&unit->puts[i]) > file_put_bytes(largest))
            largest = &unit->puts[i];
    uint64_t shift = (largest->offset - largest->at) % BLOCK;
    destination_file_init(&window->output, window->memory + sizes->scratch_bytes + shift);
    window->output.files = window->all->files.list;
    window->output.puts = unit->puts;
    window->output.n_puts = unit->n_puts;
    window->output.scratch = window->memory;
    window->output.scratch_bytes = sizes->scratch_bytes;
    window->output.on_whole = tally_window;
    window->output.wants_sum = window->all->job->verify;
}

/* Returns whether the window is busy from now on. */
static bool start_window(struct window *window)
{
    struct exporting *all = window->all;
    struct error error;
    int taken = all->has_failed ? 0 : take_unit(all, window, &error);
    if (taken == 0)
        return false;
    if (taken < 0 || build_run(window, &error) < 0) {
        end_run(window);
        fail_export(all, &error);
        return false;
    }
    place_window(window);
    const struct run_options options = {.mapping = window->mapping,
                                        .plan = window->plan,
                                        .destination = &window->output.destination,
                                        .done = on_run_done,
                                        .data = window,
                                        .uid = all->job->uid,
                                        .is_unverified = true};
    window->run = run_start(all->engine, &options);
    all->n_busy++;
    return true;
}

static void start_windows(struct exporting *all)
{
    for (size_t i = 0; i < all->sizes.n_windows && all->n_busy < all->n_useful; i++)
        if (!all->windows[i].run && !start_window(&all->windows[i]))
            return;
}

static void stop_when_idle(struct exporting *all)
{
    if (all->n_busy == 0 && !all->checkpoint.is_running)
        loop_stop(all->loop);
}

static void on_run_done(struct run *run, void *data, const struct error *error)
{
    struct window *window = data;
    struct exporting *all = window->all;
    all->counts->read_bytes += run_report(run)->read_bytes;
    if (error) {
        fail_export(all, error);
    } else {
        ARRAY_RESERVE(all->written, all->n_written, all->written_room);
        all->written[all->n_written++] = (struct journal_record){.unit = window->index, .sum = window->output.sum};
        all->done_bytes += window->unit.bytes;
        for (size_t i = 0; i < window->unit.n_puts; i++)
            all->counts->written_bytes += file_put_bytes(&window->unit.puts[i]);
    }
    end_run(window);
    all->n_busy--;
    start_windows(all);
    stop_when_idle(all);
}

/* --- checkpoints ---------------------------------------------------------------------------------------------------- */

static int write_records(struct exporting *all, struct error *error)
{
    struct checkpoint *checkpoint = &all->checkpoint;
    int status = export_files_sync(&all->files, error);
    if (status == 0)
        status = export_journal_add(&all->journal, checkpoint->records, checkpoint->n_records, error);
    free(checkpoint->records);
    checkpoint->records = NULL;
    return status;
}

static void write_checkpoint(struct loop_work *work)
{
    struct checkpoint *checkpoint = (struct checkpoint *)work;
    checkpoint->has_failed = write_records(checkpoint->all, &checkpoint->error) < 0;
}

static void on_checkpoint(struct loop_work *work)
{
    struct checkpoint *checkpoint = (struct checkpoint *)work;
    struct exporting *all = checkpoint->all;
    checkpoint->is_running = false;
    if (checkpoint->has_failed)
        fail_export(all, &checkpoint->error);
    stop_when_idle(all);
}

static void take_written(struct exporting *all)
{
    struct checkpoint *checkpoint = &all->checkpoint;
    checkpoint->records = all->written;
    checkpoint->n_records = all->n_written;
    all->written = NULL;
    all->n_written = all->written_room = 0;
}

static void begin_checkpoint(struct exporting *all)
{
    struct checkpoint *checkpoint = &all->checkpoint;
    uint64_t now_ns = clock_now_ns();
    struct error error;
    if (checkpoint->is_running || !all->n_written || now_ns < checkpoint->next_ns || all->has_failed)
        return;
    checkpoint->next_ns = now_ns + CHECKPOINT_MS * (uint64_t)NS_PER_MS;
    take_written(all);
    checkpoint->work = (struct loop_work){.do_work = write_checkpoint, .done = on_checkpoint, .pool = LOOP_DISK};
    checkpoint->is_running = loop_submit(all->loop, &checkpoint->work, &error) == 0;
    if (!checkpoint->is_running)
        fail_export(all, &error);
}

/* --- the loop ------------------------------------------------------------------------------------------------------- */

static void on_tick(void *data)
{
    struct exporting *all = data;
    const struct export_job *job = all->job;
    uint64_t done_bytes = all->done_bytes;
    struct error error;
    for (size_t i = 0; i < all->sizes.n_windows; i++)
        done_bytes += all->windows[i].run ? run_done_bytes(all->windows[i].run) : 0;
    if (job->progress)
        job->progress(job->data, "export", all->counts->resumed_bytes, done_bytes, all->total_bytes);
    if (!all->has_failed && cancel_is_set(job->cancel)) {
        fail(&error, ERROR_CANCELLED, "INTERRUPTED", "the export was interrupted; --resume goes on with it");
        fail_export(all, &error);
    }
    begin_checkpoint(all);
}

static int run_windows(struct exporting *all, struct error *error)
{
    struct loop_timer *timer = loop_timer_create(all->loop, on_tick, all);
    loop_timer_start(timer, TICK_MS, TICK_MS);
    all->checkpoint.all = all;
    all->checkpoint.next_ns = clock_now_ns() + CHECKPOINT_MS * (uint64_t)NS_PER_MS;
    all->n_useful = all->sizes.n_windows;
    start_windows(all);
    if (all->n_busy)
        loop_run(all->loop);
    loop_timer_destroy(timer);
    if (!all->has_failed && all->job->progress)
        all->job->progress(all->job->data, "export", all->counts->resumed_bytes, all->total_bytes, all->total_bytes);
    struct error ignored; /* after a failure it means no more than that less can be resumed */
    take_written(all);
    int status = write_records(all, all->has_failed ? &ignored : error);
    return all->has_failed ? -1 : status;
}

/* --- reading back ------------------------------------------------------------------------------------------------------- */

struct checking {
    const struct exporting *run;
    struct export_unit units[BATCH];
    uint32_t first; /* of the batch */
    uint64_t done_bytes;
};

struct reading { /* of one file at a time, by one thread */
    const struct exporting *run;
    const char *name;
    int fd;                /* -1 = none is open */
    unsigned char *memory; /* of one piece and two blocks */
    uint32_t sum;
};

static int fail_compare(const struct exporting *run, const char *name, struct error *error)
{
    return fail(error, ERROR_DATA_LOSS, "VERIFICATION_FAILED", "%s/%s does not hold what was written to it",
                run->job->target->shown, name);
}

static void close_reading(struct reading *reading)
{
    if (reading->fd >= 0)
        close(reading->fd);
    reading->fd = -1;
}

static int open_reading(struct reading *reading, const char *name, struct error *error)
{
    int folder = reading->run->job->target->content_fd;
    close_reading(reading);
    reading->name = name;
    reading->fd = openat(folder, name, O_RDONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    if (reading->fd < 0)
        reading->fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (reading->fd < 0)
        return fail_errno(error, errno, "cannot read back %s/%s", reading->run->job->target->shown, name);
    posix_fadvise(reading->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

static int begin_reading(struct reading *reading, const struct exporting *run, struct error *error)
{
    void *memory = mmap(NULL, PIECE_BYTES + 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory to read back");
    *reading = (struct reading){.run = run, .fd = -1, .memory = memory};
    return 0;
}

static void end_reading(struct reading *reading)
{
    close_reading(reading);
    munmap(reading->memory, PIECE_BYTES + 2 * BLOCK);
}

/* Adds bytes of the open file to the sum, read with the whole blocks around them. */
static int sum_back(struct reading *reading, uint64_t offset, uint64_t bytes, struct error *error)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t count = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES, begin = offset + done;
        uint64_t from = begin / BLOCK * BLOCK, need = begin + count - from, has = 0;
        uint64_t room = (need + BLOCK - 1) / BLOCK * BLOCK;
        while (has < need) {
            ssize_t n = pread(reading->fd, reading->memory + has, room - has, (off_t)(from + has));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return fail_compare(reading->run, reading->name, error);
            has += (uint64_t)n;
        }
        reading->sum = crc32c_update(reading->sum, reading->memory + (begin - from), count);
        done += count;
    }
    return 0;
}

/* The puts' bytes in their order, which is that of the sum: what several wrote one behind the other in a file is read as
 * one. */
static int check_unit(void *data, size_t i, struct error *error)
{
    const struct checking *all = data;
    const struct export_unit *unit = &all->units[i];
    const struct export_file *files = all->run->job->layout->files;
    struct reading reading;
    int status = begin_reading(&reading, all->run, error);
    if (status < 0)
        return -1;
    for (size_t p = 0, next; status == 0 && p < unit->n_puts; p = next) {
        const struct file_put *put = &unit->puts[p];
        uint64_t bytes = file_put_bytes(put);
        for (next = p + 1;
             next < unit->n_puts && unit->puts[next].file == put->file && unit->puts[next].offset == put->offset + bytes;
             next++)
            bytes += file_put_bytes(&unit->puts[next]);
        if (reading.name != files[put->file].name)
            status = open_reading(&reading, files[put->file].name, error);
        if (status == 0)
            status = sum_back(&reading, put->offset, bytes, error);
    }
    end_reading(&reading);
    if (status == 0 && reading.sum != all->run->journal.sums[all->first + i])
        status = fail_compare(all->run, files[unit->puts[0].file].name, error);
    return status;
}

static int check_units(struct checking *all, struct error *error)
{
    const struct export_job *job = all->run->job;
    struct export_units units = {.layout = job->layout, .unit_bytes = all->run->sizes.unit_bytes};
    uint32_t n_units = all->run->journal.n_units;
    int status = 0;
    for (all->first = 0; status == 0 && all->first < n_units; all->first += BATCH) {
        uint32_t n = n_units - all->first < BATCH ? n_units - all->first : BATCH;
        for (uint32_t i = 0; i < n && status == 0; i++)
            status = export_units_next(&units, &all->units[i], error) > 0 ? 0 : -1;
        if (status == 0)
            status = parallel_run(n, THREADS, check_unit, all, error);
        for (uint32_t i = 0; i < n && status == 0; i++)
            all->done_bytes += all->units[i].bytes;
        if (job->progress)
            job->progress(job->data, "verify", 0, all->done_bytes, all->run->total_bytes);
        if (status == 0 && cancel_is_set(job->cancel))
            status = fail(error, ERROR_CANCELLED, "INTERRUPTED", "reading back was interrupted; --resume goes on with it");
    }
    for (size_t i = 0; i < BATCH; i++)
        export_unit_fini(&all->units[i]);
    return status;
}

/* The first bytes of a file are those of that sum. */
static int check_beginning(const struct exporting *run, const char *name, uint64_t bytes, uint32_t wanted,
                           struct error *error)
{
    struct reading reading;
    if (begin_reading(&reading, run, error) < 0)
        return -1;
    int status = open_reading(&reading, name, error) < 0 || sum_back(&reading, 0, bytes, error) < 0 ? -1 : 0;
    end_reading(&reading);
    return status == 0 && reading.sum != wanted ? fail_compare(run, name, error) : status;
}

struct text_sum {
    uint64_t bytes;
    uint32_t sum;
};

static int sum_text(void *data, const char *text, size_t length, struct error *error)
{
    struct text_sum *sum = data;
    (void)error;
    sum->bytes += length;
    sum->sum = crc32c_update(sum->sum, text, length);
    return 0;
}

/* Headers and documents are made once more and compared. Units are read in batches, several at once, past the page cache where
 * that can be: what is in it would say nothing about the disk. */
static int check_export(const struct exporting *run, struct error *error)
{
    const struct export_layout *layout = run->job->layout;
    struct checking *all = memory_alloc(sizeof *all);
    int status = 0;
    all->run = run;
    for (uint32_t f = 0; status == 0 && f < layout->n_files; f++) {
        const struct export_file *file = &layout->files[f];
        if (!file->is_written)
            continue;
        char *head = export_layout_head(layout, f);
        status = check_beginning(run, file->name, file->head_bytes, crc32c_update(0, head, file->head_bytes), error);
        free(head);
    }
    if (status == 0 && layout->document_name) {
        struct text_sum sum = {0};
        const struct export_sink sink = {sum_text, &sum};
        status = export_layout_write_document(layout, &sink, error);
        if (status == 0)
            status = check_beginning(run, layout->document_name, sum.bytes, sum.sum, error);
    }
    if (status == 0)
        status = check_units(all, error);
    free(all);
    return status;
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

/* What a killed run left counts when it was about the same, and its files are there. */
static int open_journal(struct exporting *all, uint32_t n_units, struct error *error)
{
    const struct export_job *job = all->job;
    struct export_target *target = job->target;
    char fingerprint[DIGEST_HEX_CHARS + 1];
    unsigned char bytes[DIGEST_BYTES];
    struct digest *digest = digest_create();
    digest_add_text(digest, "tensorcast export 1");
    digest_add_text(digest, job->artifact->identity);
    digest_add_u64(digest, all->sizes.unit_bytes);
    digest_add_u64(digest, job->verify);
    export_layout_digest(job->layout, digest);
    digest_finish(digest, bytes);
    digest_hex(bytes, sizeof bytes, fingerprint);
    bool may_resume = job->resume && export_files_are_there(target->content_fd, job->layout);
    if (export_journal_open(&all->journal, target->journal_fd, fingerprint, n_units, may_resume, error) < 0)
        return -1;
    return all->journal.n_done ? export_files_drop_others(target->content_fd, job->layout, error)
                               : export_target_empty(target, error);
}

static int check_outcome(struct exporting *all, struct error *error)
{
    const struct export_job *job = all->job;
    uint64_t before_ns = clock_now_ns();
    if (artifact_check_unchanged(job->artifact, error) < 0)
        return -1;
    if (!export_files_are_there(job->target->content_fd, job->layout)) {
        all->counts->is_void = true;
        return fail(error, ERROR_ABORTED, "OUTPUT_CHANGED",
                    "another process has changed the files of %s while they were written", job->target->shown);
    }
    int status = tally_judge(all->tally, all->counts->resumed_bytes, &all->counts->source, error);
    if (status == 0 && job->verify)
        status = check_export(all, error);
    /* units that are not on the disk as they were written, or were damaged when they were read, are not done: --resume starts
     * over */
    if (status < 0 && error->code == ERROR_DATA_LOSS) {
        struct error ignored;
        export_journal_restart(&all->journal, &ignored);
        all->counts->is_void = true;
    }
    all->counts->verify_ns = clock_now_ns() - before_ns;
    return status;
}

int export_run(const struct export_job *job, struct export_counts *counts, struct error *error)
{
    struct exporting all = {.job = job, .counts = counts, .sizes = choose_sizes(job), .error = error};
    struct source_caps *caps = &job->artifact->source->caps; /* of this process alone */
    if (caps->request_bytes > all.sizes.unit_bytes)          /* units that share a block would wait for one request */
        caps->request_bytes = all.sizes.unit_bytes;
    uint64_t before_ns = clock_now_ns();
    uint32_t n_units;
    all.loop = loop_create();
    all.units = (struct export_units){.layout = job->layout, .unit_bytes = all.sizes.unit_bytes};
    all.calibration = calibration_create(NULL);
    int status = tally_create(job->artifact, &all.tally, error);
    if (status == 0)
        status = count_units(&all, &n_units, error);
    if (status == 0 &&
        (open_journal(&all, n_units, error) < 0 ||
         export_files_open(&all.files, job->target->content_fd, job->target->shown, job->layout, error) < 0 ||
         map_windows(&all, error) < 0 ||
         engine_create(&(struct engine_options){.loop = all.loop, .staging_budget_bytes = all.sizes.staging_bytes},
                       &all.engine, error) < 0 ||
         run_windows(&all, error) < 0))
        status = -1;
    counts->write_ns = clock_now_ns() - before_ns;
    counts->document_bytes = all.files.document_bytes;
    if (status == 0)
        status = check_outcome(&all, error);
    counts->is_void |= status < 0 && source_has_changed(error); /* a resumed export finds another identity */
    engine_destroy(all.engine);
    calibration_destroy(all.calibration);
    loop_destroy(all.loop);
    tally_destroy(all.tally);
    unmap_windows(&all);
    export_files_close(&all.files);
    export_journal_close(&all.journal);
    free(all.written);
    return status;
}
