/* The table of writers, what is known of folders from before, and whether a sample has room on the disk. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations/writer_private.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

enum { LOOK_PAUSE_MS = 200 };

/* --- sizes that other threads tell -------------------------------------------------------------------------------------- */

static void note_size(void *data, const char *path, uint32_t host, uint64_t disk_bytes)
{
    struct activations *table = data;
    pthread_mutex_lock(&table->sizes_lock);
    struct new_size *size = table->sizes;
    while (size && (size->host != host || strcmp(size->path, path) != 0))
        size = size->next;
    if (!size) {
        size = memory_alloc(sizeof *size);
        *size = (struct new_size){table->sizes, memory_copy_text(path), host, 0};
        table->sizes = size;
    }
    size->bytes = disk_bytes;
    pthread_mutex_unlock(&table->sizes_lock);
}

static struct new_size *take_size(struct activations *table)
{
    pthread_mutex_lock(&table->sizes_lock);
    struct new_size *size = table->sizes;
    table->sizes = size ? size->next : NULL;
    pthread_mutex_unlock(&table->sizes_lock);
    return size;
}

static void free_size(struct new_size *size)
{
    free(size->path);
    free(size);
}

struct activations *activations_create(struct loop *loop, const char *state_dir, struct upload_queue *uploads)
{
    struct activations *table = memory_alloc(sizeof *table);
    table->loop = loop;
    table->state_dir = memory_copy_text(state_dir);
    table->hosts = host_table_create();
    pthread_mutex_init(&table->sizes_lock, NULL);
    table->uploads = host_uploads_create(
        &(struct host_uploads_options){.state_dir = state_dir, .queue = uploads, .resized = note_size, .data = table});
    return table;
}

void activations_configure(struct activations *table, const struct activation_limits *limits)
{
    table->limits = *limits;
    host_uploads_configure(table->uploads, &limits->roots);
}

/* --- what was written before -------------------------------------------------------------------------------------------- */

static struct activations *table_of(struct loop_work *work)
{
    return (struct activations *)((char *)work - offsetof(struct activations, list));
}

static void list_hosts(struct loop_work *work)
{
    struct activations *table = table_of(work);
    table->listed = host_registry_list(table->state_dir, &table->n_listed);
}

static void free_listed(struct activations *table)
{
    for (size_t i = 0; i < table->n_listed; i++)
        known_host_fini(&table->listed[i]);
    free(table->listed);
    table->listed = NULL;
    table->n_listed = table->n_begun = 0;
}

/* Some at a time: each holds files open. */
static void begin_recoveries(struct activations *table)
{
    bool is_ending = table->is_draining || table->is_stopped;
    while (!is_ending && table->n_begun < table->n_listed && table->n_recoveries < MAX_RECOVERIES) {
        const struct known_host *known = &table->listed[table->n_begun++];
        const struct table_host *host = host_table_find(table->hosts, known->path, known->host);
        if (host && !host->writer) { /* who has opened it since has made it whole */
            table->n_recoveries++;
            writer_recover(table, known);
        }
    }
    if (is_ending || table->n_begun == table->n_listed)
        free_listed(table);
}

static void on_listed(struct loop_work *work)
{
    struct activations *table = table_of(work);
    struct error ignored; /* the registry has no more than the table may */
    table->is_listing = false;
    for (size_t i = 0; i < table->n_listed; i++) {
        struct table_host *host = host_table_add(table->hosts, table->listed[i].path, table->listed[i].host, &ignored);
        if (host)
            host->is_known = true;
    }
    begin_recoveries(table);
}

void activations_recover(struct activations *table)
{
    table->is_listing = true;
    table->list = (struct loop_work){.do_work = list_hosts, .done = on_listed, .pool = LOOP_LOCAL};
    loop_continue(table->loop, &table->list);
}

/* --- folders that were removed, or moved away -------------------------------------------------------------------------- */

static struct activations *table_of_look(struct loop_work *work)
{
    return (struct activations *)((char *)work - offsetof(struct activations, gone.work));
}

static void free_look(struct gone_look *look)
{
    for (size_t i = 0; i < look->n_hosts; i++)
        free(look->hosts[i].path);
    free(look->hosts);
    look->hosts = NULL;
    look->n_hosts = 0;
}

static void look_at_folders(struct loop_work *work)
{
    struct gone_look *look = &table_of_look(work)->gone;
    for (size_t i = 0; i < look->n_hosts; i++) {
        struct seen_host *host = &look->hosts[i];
        struct error error = {0};
        int fd = store_path_open_host(&look->roots, host->path, host->host, false, &error);
        host->is_gone = fd < 0 && error.code == ERROR_NOT_FOUND;
        if (fd >= 0)
            close(fd);
    }
}

/* They take nothing until they are opened, or found at a start, again. */
static void on_looked(struct loop_work *work)
{
    struct activations *table = table_of_look(work);
    for (size_t i = 0; i < table->gone.n_hosts; i++) {
        const struct seen_host *seen = &table->gone.hosts[i];
        struct table_host *host = seen->is_gone ? host_table_find(table->hosts, seen->path, seen->host) : NULL;
        if (host && !host->writer)
            host_table_count(table->hosts, host, 0);
    }
    free_look(&table->gone);
    table->gone.rest_until_ns = clock_now_ns() + LOOK_PAUSE_MS * NS_PER_MS;
    table->gone.is_running = false;
}

/* While a sample waits for room, one look after the other; a disk that does not answer ends that, and nothing else. */
static void look_for_gone(struct activations *table)
{
    struct gone_look *look = &table->gone;
    const struct table_host *host;
    size_t capacity = 0;
    if (look->is_running || clock_now_ns() < look->rest_until_ns)
        return;
    for (size_t i = 0; (host = host_table_at(table->hosts, i)) != NULL; i++) {
        if (!host->bytes || host->writer)
            continue;
        ARRAY_RESERVE(look->hosts, look->n_hosts, capacity);
        look->hosts[look->n_hosts++] = (struct seen_host){memory_copy_text(host->path), host->host, false};
    }
    look->is_running = true;
    look->roots = table->limits.roots;
    look->work = (struct loop_work){.do_work = look_at_folders, .done = on_looked, .pool = LOOP_DISK};
    loop_continue(table->loop, &look->work);
}

/* --- the table ---------------------------------------------------------------------------------------------------------- */

int table_take_host(struct activation_writer *writer, const struct activation_writer **other, struct error *error)
{
    struct table_host *host = host_table_add(writer->table->hosts, writer->path, writer->options.host, error);
    if (!host)
        return -1;
    *other = host->writer;
    if (!host->writer) {
        host->writer = writer;
        writer->host = host;
    }
    return 0;
}

void table_leave_host(struct activation_writer *writer)
{
    struct activations *table = writer->table;
    if (writer->host) {
        writer->host->writer = NULL;
        if (!writer->host->is_known)
            host_table_remove(table->hosts, writer->host);
        writer->host = NULL;
    }
    if (writer->is_recovery) {
        table->n_recoveries--;
        begin_recoveries(table);
    }
}

void activations_upload_counts(const struct activations *table, const char *path, uint32_t host,
                               struct upload_counts *counts)
{
    host_uploads_counts(table->uploads, path, host, counts);
}

size_t activations_hosts(const struct activations *table, const char *path, struct store_host **hosts)
{
    const struct table_host *host;
    size_t n = 0, capacity = 0;
    *hosts = NULL;
    for (size_t i = 0; (host = host_table_at(table->hosts, i)) != NULL; i++) {
        if (strcmp(host->path, path) != 0)
            continue;
        ARRAY_RESERVE(*hosts, n, capacity);
        (*hosts)[n++] = (struct store_host){host->host, host->writer && !host->writer->is_recovery};
    }
    return n;
}

/* The number is no secret that guards anything: a writer answers its own user alone. */
struct activation_writer *activation_writer_find(const struct activations *table, const void *id, size_t id_bytes, uid_t uid)
{
    struct activation_writer *found = NULL;
    for (struct activation_writer *writer = table->writers; writer && id_bytes == WRITER_ID_BYTES; writer = writer->next)
        if (writer->user.uid == uid && !writer->is_recovery && memcmp(writer->id, id, WRITER_ID_BYTES) == 0)
            found = writer;
    return found;
}

void activations_drain(struct activations *table)
{
    table->is_draining = true;
    struct activation_writer *next;
    for (struct activation_writer *writer = table->writers; writer; writer = next) {
        next = writer->next;
        writer_leave(writer);
    }
}

bool activations_idle(const struct activations *table)
{
    return !table->writers && !table->is_listing; /* a look at folders may hang, and nothing is lost with it */
}

void activations_stop(struct activations *table)
{
    table->is_stopped = true;
    for (struct activation_writer *writer = table->writers; writer; writer = writer->next) {
        loop_watch_destroy(writer->memory.watch);
        loop_timer_destroy(writer->wait.timer);
        writer->memory.watch = NULL;
        writer->wait.timer = NULL;
    }
}

void activations_destroy(struct activations *table)
{
    if (!table)
        return;
    while (table->writers) {
        struct activation_writer *next = table->writers->next;
        writer_free(table->writers);
        table->writers = next;
    }
    host_uploads_destroy(table->uploads);
    host_table_destroy(table->hosts);
    free_listed(table);
    if (!table->gone.is_running)
        free_look(&table->gone);
    while (table->sizes)
        free_size(take_size(table));
    pthread_mutex_destroy(&table->sizes_lock);
    free(table->state_dir);
    free(table);
}

/* --- the disk quota ----------------------------------------------------------------------------------------------------- */

/* Its own header and journal, and what the manifest will say of it, twice while it is replaced. */
static uint64_t room_for(const struct sample *sample)
{
    return segment_cost(sample) + 2 * (sample->info_bytes + 64);
}

/* Of the segment that it may begin, whose header has its room from then on. */
static uint64_t room_for_header(const struct activation_writer *writer, uint64_t left_bytes)
{
    uint64_t most = writer->coming.most_bytes, segment_bytes = writer->options.segment_bytes;
    uint64_t room = segment_room(segment_bytes < most ? segment_bytes : most, &writer->coming.sample);
    return room < left_bytes ? room : left_bytes;
}

void writer_count(struct activation_writer *writer)
{
    uint64_t bytes = writer->folder ? host_folder_disk_bytes(writer->folder) : writer->host->bytes;
    host_table_count(writer->table->hosts, writer->host, bytes + writer->coming.reserved_bytes);
}

/* What uploads have made room for. */
static void count_sizes(struct activations *table)
{
    for (struct new_size *size; (size = take_size(table)) != NULL; free_size(size)) {
        struct table_host *host = host_table_find(table->hosts, size->path, size->host);
        if (host && !host->writer)
            host_table_count(table->hosts, host, size->bytes);
        else if (host && (host->writer->state == WRITER_READY || host->writer->state == WRITER_WORKING))
            writer_count(host->writer);
    }
}

int writer_find_room(struct activation_writer *writer, struct error *error)
{
    struct activations *table = writer->table;
    count_sizes(table);
    writer_count(writer);
    uint64_t limit = table->limits.disk_quota_bytes, taken = host_table_bytes(table->hosts);
    uint64_t needed = room_for(&writer->coming.sample);
    uint64_t room = !limit ? UINT64_MAX : taken < limit ? limit - taken : 0;
    if (needed <= room) {
        writer->coming.most_bytes = room;
        writer->coming.reserved_bytes = needed + (limit ? room_for_header(writer, room - needed) : 0);
        writer_count(writer);
        return 1;
    }
    if (clock_now_ns() < writer->wait.until_ns) {
        look_for_gone(table);
        return 0;
    }
    char has[TEXT_SIZE_CHARS], most[TEXT_SIZE_CHARS], wants[TEXT_SIZE_CHARS];
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "DISK_QUOTA",
                "sample %u has no room: it takes %s, and the stores have %s of activations.disk_quota %s; what was "
                "appended before is kept",
                writer->coming.sample.id, text_people_bytes(needed, wants), text_people_bytes(taken, has),
                text_people_bytes(limit, most));
}

void writer_give_room_back(struct activation_writer *writer)
{
    writer->coming.reserved_bytes = 0;
}
