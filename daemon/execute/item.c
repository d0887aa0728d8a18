/* See item.h. */
#include "execute/item.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/state.h"
#include "execute/clip.h"
#include "execute/collective_private.h"
#include "execute/sums.h"

static bool should_stop(void *data)
{
    return __atomic_load_n(&((const struct item *)data)->should_stop, __ATOMIC_RELAXED);
}

/* Its parts stay as they are while it reads. */
static void tell_runs(struct waiting *note, const char *text, uint64_t until_ns)
{
    const struct item *item = (const struct item *)((char *)note - offsetof(struct item, note));
    for (size_t i = 0; i < item->n_parts; i++) {
        struct waiting *of_run = &item->parts[i].run->waiting;
        if (text)
            waiting_begin(of_run, text, until_ns);
        else
            waiting_end(of_run);
    }
}

void item_init(struct item *item, struct engine *engine, bool is_remote)
{
    *item = (struct item){.engine = engine,
                          .is_remote = is_remote,
                          .cancel = {.is_set = should_stop, .data = item},
                          .note = {.tell = tell_runs}};
}

void item_fini(struct item *item)
{
    free(item->parts);
    item->parts = NULL;
    item->n_parts = item->parts_room = 0;
}

void item_set_kind(struct item *item, enum item_kind kind)
{
    static const struct state_row kinds[] = {
        [ITEM_NONE] = {"none", STATE_BIT(ITEM_SETUP) | STATE_BIT(ITEM_ENDING) | STATE_BIT(ITEM_BLOCK)},
        [ITEM_SETUP] = {"setup", STATE_BIT(ITEM_NONE)},
        [ITEM_ENDING] = {"ending", STATE_BIT(ITEM_NONE)},
        [ITEM_BLOCK] = {"block", STATE_BIT(ITEM_NONE)}};
    static const struct state_machine machine = {"item", kinds, 4};
    state_check(&machine, item->kind, kind);
    item->kind = kind;
}

struct part *item_add_part(struct item *item, struct run *run)
{
    ARRAY_RESERVE(item->parts, item->n_parts, item->parts_room);
    struct part *part = &item->parts[item->n_parts++];
    memset(part, 0, offsetof(struct part, error));
    part->run = run;
    part->source = run->options.mapping->artifact->source;
    run->n_taken++;
    return part;
}

int item_read(struct item *item, struct source_read *read, uint64_t bytes, struct error *error)
{
    const struct part *part = &item->parts[0];
    uint64_t started_ns = clock_now_ns();
    read->file = part->file;
    read->cancel = &item->cancel;
    read->uid = part->run->options.uid;
    read->checksum = sums_kind(item->scan);
    struct waiting *before = waiting_enter(&item->note);
    int result = source_read(part->source, read, error);
    waiting_enter(before);
    item->read_ns += clock_now_ns() - started_ns;
    if (result == 0)
        sums_add(item->engine, item->scan, read, bytes);
    return result;
}

int item_read_apart(struct item *item, struct source_read *read, struct error *error)
{
    const struct part *part = &item->parts[0];
    read->file = part->file;
    read->cancel = item->is_remote ? &item->cancel : NULL;
    read->uid = part->run->options.uid;
    struct waiting *before = waiting_enter(&item->note);
    int result = source_read(part->source, read, error);
    waiting_enter(before);
    return result;
}

void item_use_temporary(struct item *item, uint64_t bytes, bool begins)
{
    if (item->collective)
        collective_use_temporary(item->collective, bytes, begins);
    for (size_t i = 0; i < item->n_parts; i++) {
        struct part *part = &item->parts[i];
        uint64_t *in_use = &part->run->account.temporary_bytes;
        uint64_t now = __atomic_add_fetch(in_use, begins ? bytes : -bytes, __ATOMIC_RELAXED);
        if (begins && now > part->report.peak_temporary_bytes)
            part->report.peak_temporary_bytes = now;
    }
}

void item_fail_part(struct part *part, const struct error *error)
{
    if (!part->has_failed)
        part->error = *error;
    part->has_failed = true;
}

void item_fail_clips(struct item *item, const struct clips *clips, const struct error *error)
{
    for (size_t i = 0; i < clips->n; i++)
        item_fail_part(&item->parts[clips->list[i].part], error);
}

uint64_t item_sum_reports(const struct item *item, size_t member)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < item->n_parts; i++)
        sum += *(const uint64_t *)((const char *)&item->parts[i].report + member);
    return sum;
}

void item_share_time(struct item *item)
{
    double read_bytes = (double)item_sum_reports(item, offsetof(struct run_report, read_bytes)) + 1;
    double copied_bytes = (double)item_sum_reports(item, offsetof(struct run_report, copied_bytes)) + 1;
    for (size_t i = 0; i < item->n_parts; i++) {
        struct run_report *report = &item->parts[i].report;
        report->read_ns = (uint64_t)((double)item->read_ns * (double)report->read_bytes / read_bytes);
        report->copy_ns = (uint64_t)((double)item->copy_ns * (double)report->copied_bytes / copied_bytes);
    }
}
