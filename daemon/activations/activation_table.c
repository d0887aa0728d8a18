/* The table of writers, what is known of folders from before, and whether a sample has room on the disk. */
#include <stdlib.h>
#include <string.h>

#include "activations/writer_private.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/text.h"

struct activations *activations_create(struct loop *loop, const char *state_dir)
{
    struct activations *table = memory_alloc(sizeof *table);
    table->loop = loop;
    table->state_dir = memory_copy_text(state_dir);
    return table;
}

void activations_configure(struct activations *table, const struct activation_limits *limits)
{
    table->limits = *limits;
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

static void on_listed(struct loop_work *work)
{
    struct activations *table = table_of(work);
    table->is_listing = false;
    for (size_t i = 0; i < table->n_listed; i++) {
        const struct known_host *known = &table->listed[i];
        if (!table->is_draining && !table->is_stopped && !table_find_writer(table, known->path, known->host, NULL))
            writer_recover(table, known);
        free(known->path);
    }
    free(table->listed);
    table->listed = NULL;
}

void activations_recover(struct activations *table)
{
    table->is_listing = true;
    table->list = (struct loop_work){.do_work = list_hosts, .done = on_listed, .pool = LOOP_LOCAL};
    loop_continue(table->loop, &table->list);
}

struct counted_host *table_count_host(struct activations *table, const char *path, uint32_t host, uid_t uid)
{
    struct counted_host *counted = table->hosts;
    while (counted && (counted->known.host != host || strcmp(counted->known.path, path) != 0))
        counted = counted->next;
    if (!counted) {
        counted = memory_alloc(sizeof *counted);
        counted->known = (struct known_host){memory_copy_text(path), host, uid};
        counted->next = table->hosts;
        table->hosts = counted;
    }
    counted->known.uid = uid;
    return counted;
}

/* --- the table ---------------------------------------------------------------------------------------------------------- */

struct activation_writer *table_find_writer(const struct activations *table, const char *path, uint32_t host,
                                            const struct activation_writer *but)
{
    for (struct activation_writer *writer = table->writers; writer; writer = writer->next)
        if (writer != but && writer->state != WRITER_WAITING && writer->options.host == host &&
            strcmp(writer->path, path) == 0)
            return writer;
    return NULL;
}

bool activations_has_writer(const struct activations *table, const char *path, uint32_t host)
{
    const struct activation_writer *writer = table_find_writer(table, path, host, NULL);
    return writer && !writer->is_recovery;
}

/* The number is no secret that guards anything: a writer answers its own user alone. */
struct activation_writer *activation_writer_find(const struct activations *table, const void *id, size_t id_bytes, uid_t uid)
{
    struct activation_writer *found = NULL;
    for (struct activation_writer *writer = table->writers; writer && id_bytes == WRITER_ID_BYTES; writer = writer->next)
        if (writer->uid == uid && !writer->is_recovery && memcmp(writer->id, id, WRITER_ID_BYTES) == 0)
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
    return !table->writers && !table->is_listing;
}

void activations_stop(struct activations *table)
{
    table->is_stopped = true;
    for (struct activation_writer *writer = table->writers; writer; writer = writer->next) {
        loop_watch_destroy(writer->watch);
        loop_timer_destroy(writer->timer);
        writer->watch = NULL;
        writer->timer = NULL;
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
    while (table->hosts) {
        struct counted_host *next = table->hosts->next;
        free(table->hosts->known.path);
        free(table->hosts);
        table->hosts = next;
    }
    free(table->state_dir);
    free(table);
}

/* --- the disk quota ----------------------------------------------------------------------------------------------------- */

/* Its own header and journal, and what the manifest will say of it, twice while it is replaced. */
static uint64_t room_for(const struct sample *sample)
{
    return segment_cost(sample) + 2 * (sample->info_bytes + 64);
}

static uint64_t bytes_of(const struct activations *table, const struct counted_host *host)
{
    const struct activation_writer *writer = table_find_writer(table, host->known.path, host->known.host, NULL);
    return writer && writer->folder ? host_folder_disk_bytes(writer->folder) + writer->coming.reserved_bytes : host->bytes;
}

int writer_find_room(struct activation_writer *writer, struct error *error)
{
    const struct activations *table = writer->table;
    uint64_t limit = table->limits.disk_quota_bytes, taken = 0, own = 0, needed = room_for(&writer->coming.sample);
    for (const struct counted_host *host = table->hosts; host; host = host->next) {
        uint64_t bytes = bytes_of(table, host);
        taken += bytes;
        own += host->known.uid == writer->uid ? bytes : 0;
    }
    unsigned kept = quota_is_privileged(writer->uid) ? 0 : table->limits.kept_percent;
    if (!limit || quota_allows(kept, limit, taken, own, needed)) {
        writer->coming.reserved_bytes = needed;
        return 1;
    }
    if (clock_now_ns() < writer->wait_until_ns)
        return 0;
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
