/* A list by FetchSidecars, bytes by Materialize with targets: each window is a load of a slice of one file, pinned to the
 * identity that was listed, into a region that is used again for a later window. Windows are taken in order and put in order,
 * so that a window that waits for its turn waits for one that is under way. */
#include "file_set.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "fill_targets.h"

enum { MOST_WINDOWS = 32, MAX_LISTED_FILES = 20000, HAD_BYTES = 1 << 20 };

struct pace { /* windows at a time, of so many bytes each */
    size_t n_windows;
    uint64_t bytes;
};
/* What a store sends at once is what is in flight: the daemon cuts a window into requests of 16 MiB, a reader asks for all of it. */
static const struct pace of_disk = {4, (uint64_t)64 << 20}, of_store = {16, (uint64_t)32 << 20},
                         of_reader = {MOST_WINDOWS, (uint64_t)8 << 20};

/* --- the list --- */

static int fail_answer(const char *complaint, struct error *error)
{
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to FetchSidecars makes no sense: %s", complaint);
}

static const char *copy_text(struct arena *arena, const char *text)
{
    return arena_text(arena, text, strlen(text));
}

/* "sha256 9f86..."; a kind that this client does not know is none. */
static void parse_sums(const Tensorcast__Daemon__V1__File *row, struct checksum sums[CHECKSUM_PER_FILE])
{
    size_t n = 0;
    for (size_t i = 0; i < row->n_checksums && n < CHECKSUM_PER_FILE; i++) {
        const char *blank = strchr(row->checksums[i], ' ');
        for (int kind = CHECKSUM_CRC32C; blank && kind <= CHECKSUM_MD5; kind++) {
            const char *name = checksum_kind_name((enum checksum_kind)kind);
            size_t length = (size_t)(blank - row->checksums[i]);
            if (strlen(name) == length && memcmp(name, row->checksums[i], length) == 0)
                n += checksum_parse_hex((enum checksum_kind)kind, blank + 1, &sums[n]);
        }
    }
}

/* Plain, or below plain folders. */
static bool is_file_name(const char *name)
{
    for (const char *slash;; name = slash + 1) {
        slash = strchrnul(name, '/');
        size_t length = (size_t)(slash - name);
        if (!length || length > 255 || name[0] == '.' || !text_is_utf8(name, length))
            return false;
        if (!*slash)
            return true;
    }
}

static int take_list(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    const Tensorcast__Daemon__V1__SidecarEvent *event = (const void *)answer;
    struct file_set *set = data;
    (void)arena;
    if (event->event_case != TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_LIST || set->files)
        return fail_answer("not one list", error);
    const Tensorcast__Daemon__V1__SidecarList *list = event->list;
    if (list->n_files > MAX_LISTED_FILES || !*list->identity)
        return fail_answer(*list->identity ? "too many files" : "it does not know how to list files", error);
    set->files = arena_array(&set->arena, list->n_files + 1, sizeof *set->files);
    for (size_t i = 0; i < list->n_files; i++) {
        const Tensorcast__Daemon__V1__File *row = list->files[i];
        if (!is_file_name(row->name))
            return fail_answer("a file has no plain name", error);
        struct set_file *file = &set->files[i];
        *file = (struct set_file){
            copy_text(&set->arena, row->name), copy_text(&set->arena, row->identity), row->bytes, {{0}}, 0};
        parse_sums(row, file->sums);
        if (row->bytes > INT64_MAX - set->total_bytes)
            return fail_answer("files of that size", error);
        set->total_bytes += row->bytes;
    }
    set->n_files = list->n_files;
    set->notes = arena_array(&set->arena, list->n_notes + 1, sizeof *set->notes);
    for (size_t i = 0; i < list->n_notes; i++)
        set->notes[set->n_notes++] = copy_text(&set->arena, list->notes[i]);
    set->identity = copy_text(&set->arena, list->identity);
    return 0;
}

int file_set_list(struct tc_client *client, const char *artifact, enum file_set_kind kind, const struct tc_options *options,
                  struct file_set *set, struct error *error)
{
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    const struct rpc_question question = {"FetchSidecars", &request.base, &tensorcast__daemon__v1__sidecar_event__descriptor,
                                          take_list, set};
    const struct wait wait = client_patient_wait(client, options);
    struct arena arena;
    *set = (struct file_set){.artifact = artifact};
    arena_init(&set->arena, 0);
    arena_init(&arena, 0);
    request.artifact = artifact;
    request.list_only = true;
    request.kind = (Tensorcast__Daemon__V1__FileKind)kind;
    request.allow_missing_shards = options && options->allow_missing_shards;
    int failed = rpc_client_ask(client->rpc, &question, &wait, &arena, error);
    arena_fini(&arena);
    return !failed && !set->files ? fail_answer("no list", error) : failed;
}

void file_set_fini(struct file_set *set)
{
    if (set->artifact)
        arena_fini(&set->arena);
    *set = (struct file_set){0};
}

/* --- bytes --- */

struct window {
    size_t file;
    uint64_t offset, bytes;
};

struct file_state {
    uint64_t put_bytes;
    struct checksum_stream sums[CHECKSUM_PER_FILE];
    bool is_summing[CHECKSUM_PER_FILE];
};

struct fetching {
    struct tc_client *client;         /* NULL: by the reader */
    const struct file_reader *reader; /* NULL: by the client */
    const struct file_set *set;
    const struct file_sink *sink;
    const struct tc_options *options;
    struct pace pace;
    struct wait wait; /* for all windows together */
    struct window *windows;
    size_t n_windows;
    pthread_mutex_t lock; /* of what follows, except for the state of a file, which is its turn's */
    pthread_cond_t turned;
    struct file_state *files;
    struct tc_region *regions[MOST_WINDOWS]; /* that no window has */
    size_t n_regions;
    uint64_t done_bytes, total_bytes;
    bool has_failed;
    struct error cause; /* the first */
};

static int fail_fetch(struct fetching *fetch, struct error *error)
{
    pthread_mutex_lock(&fetch->lock);
    if (!fetch->has_failed)
        fetch->cause = *error;
    fetch->has_failed = true;
    pthread_cond_broadcast(&fetch->turned);
    pthread_mutex_unlock(&fetch->lock);
    return -1;
}

static struct tc_region *take_region(struct fetching *fetch)
{
    pthread_mutex_lock(&fetch->lock);
    struct tc_region *region = fetch->regions[--fetch->n_regions]; /* as many as threads */
    pthread_mutex_unlock(&fetch->lock);
    return region;
}

static void give_region(struct fetching *fetch, struct tc_region *region)
{
    pthread_mutex_lock(&fetch->lock);
    fetch->regions[fetch->n_regions++] = region;
    pthread_mutex_unlock(&fetch->lock);
}

/* Bytes count as they come. Non-zero: the caller wants no more. */
static int tell_arrived(struct fetching *fetch, uint64_t bytes)
{
    const struct tc_options *options = fetch->options;
    pthread_mutex_lock(&fetch->lock);
    fetch->done_bytes += bytes;
    int stop = options->progress ? options->progress(options->data, "fetch", fetch->done_bytes, fetch->total_bytes) : 0;
    pthread_mutex_unlock(&fetch->lock);
    return stop;
}

struct arriving { /* of one window */
    struct fetching *fetch;
    uint64_t told_bytes;
};

static int on_window_progress(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    struct arriving *arriving = data;
    uint64_t fresh = done_bytes > arriving->told_bytes && done_bytes <= total_bytes ? done_bytes - arriving->told_bytes : 0;
    (void)stage;
    arriving->told_bytes += fresh;
    return tell_arrived(arriving->fetch, fresh);
}

static int load_window(struct fetching *fetch, const struct window *window, const struct tc_region *region,
                       struct error *error)
{
    const struct set_file *file = &fetch->set->files[window->file];
    const struct tc_slice slice = {(int64_t)window->offset, (int64_t)(window->offset + window->bytes)};
    const struct tc_view_item item = {file->name, 1, &slice};
    const struct tc_view view = {.items = &item, .n_items = 1};
    const struct tc_target target = {
        .name = file->name, .dtype = "U8", .shape = &window->bytes, .rank = 1, .region = region};
    const struct tc_targets targets = {.targets = &target, .n_targets = 1};
    const char *names[] = {file->name};
    Tensorcast__Daemon__V1__FileSet files = TENSORCAST__DAEMON__V1__FILE_SET__INIT;
    struct tc_options options = *fetch->options;
    struct load_question question = {
        .artifact = fetch->set->artifact, .view = &view, .options = &options, .device = "", .files = &files};
    struct arriving arriving = {.fetch = fetch};
    if (wait_check(&fetch->wait, error) < 0)
        return -1;
    uint64_t now = clock_now_ns(), deadline = fetch->wait.deadline_ns;
    if (deadline != UINT64_MAX)
        options.timeout_ms = (deadline > now ? deadline - now : 0) / NS_PER_MS + 1;
    options.progress = on_window_progress;
    options.data = &arriving;
    options.variant = NULL;
    files.names = names;
    files.n_names = 1;
    files.identity = file->identity;
    if (fill_targets(fetch->client, &question, &targets, NULL, error) < 0)
        return -1;
    uint64_t left = arriving.told_bytes < window->bytes ? window->bytes - arriving.told_bytes : 0;
    return left && tell_arrived(fetch, left) ? wait_cancelled(error) : 0;
}

/* A read of no byte at the end of an empty file looks whether that has changed, too. */
static int read_window(struct fetching *fetch, const struct window *window, char *memory, struct error *error)
{
    const struct file_reader *reader = fetch->reader;
    uint64_t at = 0;
    do {
        uint64_t left = window->bytes - at, count = left < reader->most_bytes ? left : reader->most_bytes;
        if (reader->read(reader->data, window->file, window->offset + at, memory + at, count, error) < 0)
            return -1;
        at += count;
        if (tell_arrived(fetch, count))
            return wait_cancelled(error);
    } while (at < window->bytes);
    return 0;
}

static int check_sums(const struct set_file *file, struct file_state *state, struct error *error)
{
    char found[CHECKSUM_TEXT_CHARS], expected[CHECKSUM_TEXT_CHARS];
    int failed = 0;
    for (size_t k = 0; k < CHECKSUM_PER_FILE; k++) {
        if (!state->is_summing[k])
            continue;
        struct checksum sum = checksum_finish(&state->sums[k]);
        state->is_summing[k] = false;
        if (!failed && !checksum_equal(&sum, &file->sums[k]))
            failed = fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
                          "%s: its bytes have %s, the store says %s; nothing was written under its name, fetch it again",
                          text_show(file->name), checksum_print(&sum, found), checksum_print(&file->sums[k], expected));
    }
    return failed;
}

static void add_sums(struct file_state *state, const void *bytes, uint64_t count)
{
    for (size_t k = 0; k < CHECKSUM_PER_FILE; k++)
        if (state->is_summing[k])
            checksum_add(&state->sums[k], bytes, count);
}

/* What an earlier run has fetched counts as it is read back. */
static int sum_had(const struct file_sink *sink, size_t index, const struct set_file *file, struct file_state *state,
                   struct error *error)
{
    uint64_t at = 0;
    int failed = 0;
    char *bytes = file->had_bytes && file->sums[0].kind != CHECKSUM_NONE ? memory_alloc(HAD_BYTES) : NULL;
    while (bytes && at < file->had_bytes && !failed) {
        uint64_t left = file->had_bytes - at, count = left < HAD_BYTES ? left : HAD_BYTES;
        failed = sink->had(sink->data, index, at, bytes, count, error);
        if (!failed)
            add_sums(state, bytes, count);
        at += count;
    }
    free(bytes);
    return failed;
}

static int put_window(struct fetching *fetch, const struct window *window, const void *bytes, struct error *error)
{
    const struct set_file *file = &fetch->set->files[window->file];
    struct file_state *state = &fetch->files[window->file];
    const struct file_sink *sink = fetch->sink;
    if (window->offset == file->had_bytes) {
        for (size_t k = 0; k < CHECKSUM_PER_FILE; k++)
            state->is_summing[k] =
                file->sums[k].kind != CHECKSUM_NONE && checksum_start(&state->sums[k], file->sums[k].kind);
        if (sink->begin(sink->data, window->file, error) < 0 || sum_had(sink, window->file, file, state, error) < 0)
            return -1;
    }
    add_sums(state, bytes, window->bytes);
    if (sink->put(sink->data, window->file, bytes, window->bytes, error) < 0)
        return -1;
    if (window->offset + window->bytes < file->bytes)
        return 0;
    if (check_sums(file, state, error) == 0)
        return sink->end(sink->data, window->file, error);
    if (sink->spoil)
        sink->spoil(sink->data, window->file);
    return -1;
}

/* False: another window has failed. */
static bool wait_for_turn(struct fetching *fetch, const struct window *window)
{
    pthread_mutex_lock(&fetch->lock);
    while (!fetch->has_failed && fetch->files[window->file].put_bytes != window->offset)
        pthread_cond_wait(&fetch->turned, &fetch->lock);
    bool has_turn = !fetch->has_failed;
    pthread_mutex_unlock(&fetch->lock);
    return has_turn;
}

static int fetch_window(void *data, size_t i, struct error *error)
{
    struct fetching *fetch = data;
    const struct window *window = &fetch->windows[i];
    struct tc_region *region = take_region(fetch);
    int failed = fetch->reader   ? read_window(fetch, window, tc_region_memory(region, NULL), error)
                 : window->bytes ? load_window(fetch, window, region, error)
                                 : 0;
    if (!failed && !wait_for_turn(fetch, window)) {
        give_region(fetch, region);
        return fail(error, ERROR_CANCELLED, "CANCELLED", "another file failed");
    }
    if (!failed)
        failed = put_window(fetch, window, tc_region_memory(region, NULL), error);
    if (!failed) {
        pthread_mutex_lock(&fetch->lock);
        fetch->files[window->file].put_bytes += window->bytes;
        pthread_cond_broadcast(&fetch->turned);
        pthread_mutex_unlock(&fetch->lock);
    }
    give_region(fetch, region);
    return failed ? fail_fetch(fetch, error) : 0;
}

static void cut_windows(struct fetching *fetch)
{
    const struct file_set *set = fetch->set;
    size_t n = 0;
    for (size_t f = 0; f < set->n_files; f++)
        n += set->files[f].bytes / fetch->pace.bytes + 1;
    fetch->windows = memory_alloc_array(n + 1, sizeof *fetch->windows);
    for (size_t f = 0; f < set->n_files; f++) {
        uint64_t offset = set->files[f].had_bytes, left = set->files[f].bytes - offset;
        fetch->files[f].put_bytes = offset;
        fetch->total_bytes += left;
        do {
            uint64_t bytes = left < fetch->pace.bytes ? left : fetch->pace.bytes;
            fetch->windows[fetch->n_windows++] = (struct window){f, offset, bytes};
            offset += bytes;
            left -= bytes;
        } while (left);
    }
}

static int make_regions(struct fetching *fetch, struct error *error)
{
    uint64_t largest = 1;
    struct tc_error cause;
    for (size_t i = 0; i < fetch->n_windows; i++)
        largest = fetch->windows[i].bytes > largest ? fetch->windows[i].bytes : largest;
    size_t n = fetch->n_windows < fetch->pace.n_windows ? fetch->n_windows : fetch->pace.n_windows;
    while (fetch->n_regions < n) {
        struct tc_region *region = tc_region_create(largest, &cause);
        if (!region)
            return fail(error, (enum error_code)cause.code, cause.reason, "%s", cause.message);
        fetch->regions[fetch->n_regions++] = region;
    }
    return 0;
}

static int fetch_all(struct fetching *fetch, struct error *error)
{
    bool is_disk = strncmp(fetch->set->artifact, "disk:", strlen("disk:")) == 0;
    fetch->pace = is_disk ? of_disk : fetch->reader ? of_reader : of_store;
    fetch->files = memory_alloc_array(fetch->set->n_files + 1, sizeof *fetch->files);
    cut_windows(fetch);
    int failed = make_regions(fetch, error);
    if (!failed && parallel_run(fetch->n_windows, fetch->pace.n_windows, fetch_window, fetch, error) < 0) {
        failed = -1;
        *error = fetch->has_failed ? fetch->cause : *error;
    }
    /* Of files that were begun and not ended. */
    for (size_t f = 0; f < fetch->set->n_files; f++)
        for (size_t k = 0; k < CHECKSUM_PER_FILE; k++)
            if (fetch->files[f].is_summing[k])
                checksum_finish(&fetch->files[f].sums[k]);
    while (fetch->n_regions)
        tc_region_destroy(fetch->regions[--fetch->n_regions]);
    free(fetch->files);
    free(fetch->windows);
    return failed;
}

int file_set_fetch(struct tc_client *client, const struct file_set *set, const struct file_sink *sink,
                   const struct tc_options *options, struct error *error)
{
    struct fetching fetch = {.client = client,
                             .set = set,
                             .sink = sink,
                             .options = options,
                             .wait = client_wait(options),
                             .lock = PTHREAD_MUTEX_INITIALIZER,
                             .turned = PTHREAD_COND_INITIALIZER};
    return fetch_all(&fetch, error);
}

int file_set_read(const struct file_set *set, const struct file_reader *reader, const struct file_sink *sink,
                  const struct tc_options *options, struct error *error)
{
    struct fetching fetch = {.reader = reader,
                             .set = set,
                             .sink = sink,
                             .options = options,
                             .wait = client_wait(options),
                             .lock = PTHREAD_MUTEX_INITIALIZER,
                             .turned = PTHREAD_COND_INITIALIZER};
    return fetch_all(&fetch, error);
}
