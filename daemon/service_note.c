#include "service_note.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "load/ticket.h"
#include "replica/replica.h"
#include "supervisor.h"

enum { EVERY_MS = 1000, NOTE_CHARS = 160 };

struct service_note {
    const struct api *api;
    struct loop_timer *timer;
    char told[NOTE_CHARS];
};

static void count_load(void *data, const struct load_info *info)
{
    (void)info;
    ++*(uint64_t *)data;
}

static void tell_status(void *data)
{
    struct service_note *note = data;
    const struct replica_table *replicas = note->api->services.targets->list[LOAD_TARGET_HOST].replicas;
    char text[NOTE_CHARS], used[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS];
    uint64_t n = 0;
    load_table_each(note->api->loads, count_load, &n);
    snprintf(text, sizeof text, "STATUS=%s%" PRIu64 " load%s, %s of %s in use", note->api->is_draining ? "draining: " : "",
             n, text_plural(n), text_people_bytes(replica_used_bytes(replicas), used),
             text_people_bytes(replica_budget_bytes(replicas), budget));
    if (strcmp(text, note->told) == 0)
        return;
    strcpy(note->told, text);
    supervisor_notify(text);
}

struct service_note *service_note_create(const struct api *api)
{
    if (!getenv("NOTIFY_SOCKET"))
        return NULL;
    struct service_note *note = memory_alloc(sizeof *note);
    note->api = api;
    note->timer = loop_timer_create(api->services.loop, tell_status, note);
    loop_timer_start(note->timer, 0, EVERY_MS);
    return note;
}

void service_note_destroy(struct service_note *note)
{
    if (!note)
        return;
    loop_timer_destroy(note->timer);
    free(note);
}
