/* The table of writers, what is known of folders from before, and whether a sample has room on the disk. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "activations/writer_private.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/text.h"

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
    table->places = upload_places_create();
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
        const struct known_host *listed = &table->listed[i];
        struct table_host *host = host_table_add(table->hosts, listed, 0, &ignored);
        if (host && !host->is_known)
            upload_places_enter(table->places, listed->upload.reference, listed, 0, &host->place, &ignored);
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

/* --- the table ---------------------------------------------------------------------------------------------------------- */

int table_take_host(struct activation_writer *writer, const struct activation_writer **other, struct error *error)
{
    struct activations *table = writer->table;
    const struct known_host user = {
        .path = writer->path, .host = writer->options.host, .uid = writer->user.uid, .is_shared = writer->user.is_member};
    unsigned kept = quota_is_privileged(writer->user.uid) ? 0 : table->limits.kept_percent;
    if (!writer->is_recovery && host_table_check(table->hosts, &user, error) < 0)
        return -1;
    struct table_host *host = host_table_add(table->hosts, &user, kept, error);
    if (!host)
        return -1;
    *other = host->writer;
    if (host->writer)
        return 0;
    host->writer = writer;
    writer->host = host;
    const struct known_host known = host_table_known(host);
    return upload_places_enter(table->places, writer->upload.reference, &known, writer->is_recovery ? 0 : writer->user.uid,
                               &writer->place, error);
}

void table_keep_host(struct activation_writer *writer)
{
    upload_places_leave(writer->table->places, writer->host->place);
    writer->host->place = upload_place_ref(writer->place);
    writer->host->is_known = true;
}

void table_leave_host(struct activation_writer *writer)
{
    struct activations *table = writer->table;
    upload_places_leave(table->places, writer->place);
    writer->place = NULL;
    if (writer->host) {
        writer->host->writer = NULL;
        if (!writer->host->is_known) {
            upload_places_leave(table->places, writer->host->place);
            host_table_remove(table->hosts, writer->host);
        }
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

bool activations_has_writer(const struct activations *table, const char *path, uint32_t host)
{
    const struct table_host *found = host_table_find(table->hosts, path, host);
    return found && found->writer && !found->writer->is_recovery;
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
    upload_places_destroy(table->places);
    free_listed(table);
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
    const struct activations *table = writer->table;
    count_sizes(writer->table);
    uint64_t limit = table->limits.disk_quota_bytes, taken, own, needed = room_for(&writer->coming.sample);
    writer_count(writer);
    host_table_bytes(table->hosts, host_table_known(writer->host).uid, &taken, &own);
    unsigned kept = quota_is_privileged(writer->user.uid) ? 0 : table->limits.kept_percent;
    uint64_t room = limit ? quota_room(kept, limit, taken, own) : UINT64_MAX;
    if (needed <= room) {
        writer->coming.most_bytes = room;
        writer->coming.reserved_bytes = needed + (limit ? room_for_header(writer, room - needed) : 0);
        writer_count(writer);
        return 1;
    }
    if (clock_now_ns() < writer->wait.until_ns) {
        gone_hosts_look(writer->table);
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
