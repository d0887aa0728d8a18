#include "load/pending.h"

#include <stdlib.h>

#include "base/clock.h"
#include "load/load.h"
#include "observe/log.h"

enum { PROGRESS_MS = 100, LOGGED_AFTER_MS = 2000 };

void pending_init(struct pending *pending, void (*tell)(struct pending *pending))
{
    *pending = (struct pending){.tell = tell};
    waiting_init(&pending->waiting);
}

void pending_fini(struct pending *pending)
{
    waiting_fini(&pending->waiting);
}

void pending_add(struct load_table *table, struct pending *pending)
{
    if (!table->pending)
        loop_timer_start(table->progress_timer, PROGRESS_MS, PROGRESS_MS);
    pending->next = table->pending;
    pending->link = &table->pending;
    if (pending->next)
        pending->next->link = &pending->next;
    table->pending = pending;
}

void pending_remove(struct load_table *table, struct pending *pending)
{
    if (!pending->link)
        return;
    *pending->link = pending->next;
    if (pending->next)
        pending->next->link = pending->link;
    pending->link = NULL;
    if (!table->pending)
        loop_timer_stop(table->progress_timer);
}

void pending_tell_all(void *data)
{
    struct load_table *table = data;
    for (struct pending *pending = table->pending, *next; pending; pending = next) {
        next = pending->next;
        pending->tell(pending);
    }
}

void pending_log(struct pending *pending, const struct load_info *info, const struct load_result *result)
{
    uint64_t now_ns = clock_now_ns();
    if (!info->waiting_for[0]) {
        pending->waits_since_ns = 0;
        return;
    }
    if (!pending->waits_since_ns)
        pending->waits_since_ns = now_ns;
    if (pending->is_logged || now_ns - pending->waits_since_ns < LOGGED_AFTER_MS * (uint64_t)NS_PER_MS)
        return;
    pending->is_logged = true;
    char *artifact = source_shown(info->artifact ? info->artifact : "");
    log_at_of(LOG_INFO, "load_waiting", result->uid, LOG_TEXT("load_id", result->load_id), LOG_TEXT("artifact", artifact),
              LOG_TEXT("stage", info->stage), LOG_TEXT("waiting_for", info->waiting_for),
              LOG_U64("done_bytes", info->done_bytes), LOG_U64("total_bytes", info->total_bytes));
    free(artifact);
}
