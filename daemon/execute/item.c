/* See item.h. */
#include "execute/item.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/state.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "execute/run_clock.h"
#include "execute/scan.h"

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

static void count_way(struct block_count *count, enum block_way way, const char *host, uint64_t bytes)
{
    struct ways *ways = (struct ways *)count;
    ways->bytes[way] += bytes;
    if (way == BLOCK_FROM_HOST)
        from_hosts_add(&ways->from, host, bytes);
}

void item_init(struct item *item, struct engine *engine, bool is_remote)
{
    *item = (struct item){.engine = engine,
                          .is_remote = is_remote,
                          .ways.count.add = count_way,
                          .cancel = {.is_set = should_stop, .data = item},
                          .note = {.tell = tell_runs}};
}

void item_fini(struct item *item)
{
    free(item->parts);
    item->parts = NULL;
    item->n_parts = item->parts_room = 0;
    free(item->ways.from.list);
    item->ways.from = (struct from_hosts){0};
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
    run_clock_begin(part);
    run->n_taken++;
    return part;
}

void item_begin(struct item *item)
{
    item->n_parts = 0;
    item->read_ns = item->copy_ns = item->memory_ns = 0;
    memset(item->ways.bytes, 0, sizeof item->ways.bytes);
    item->ways.from.n = 0;
}

/* The runs of the item's parts are told of waits. */
static int get_bytes(struct item *item, struct source_read *read, struct error *error)
{
    const struct part *part = &item->parts[0];
    read->file = part->file;
    read->uid = part->run->options.uid;
    struct block_want want = {
        .source = part->source, .read = *read, .holders = part->run->options.holders, .count = &item->ways.count};
    struct waiting *before = waiting_enter(&item->note);
    int result = blocks_get(&want, error);
    waiting_enter(before);
    read->checksum_value = want.read.checksum_value;
    return result;
}

bool item_has_holders(const struct item *item)
{
    const struct part *part = &item->parts[0];
    const struct block_holder *holder = part->run->options.holders;
    while (holder && holder->serves && !holder->serves(part->source, part->file))
        holder = holder->next;
    return holder;
}

int item_read(struct item *item, struct source_read *read, uint64_t bytes, struct error *error)
{
    uint64_t started_ns = clock_now_ns();
    read->cancel = &item->cancel;
    read->checksum = scan_sum_kind(item->scan);
    int result = get_bytes(item, read, error);
    item->read_ns += clock_now_ns() - started_ns;
    if (result == 0)
        scan_add_sum(item->engine, item->scan, read, bytes);
    return result;
}

int item_read_apart(struct item *item, struct source_read *read, struct error *error)
{
    uint64_t asked_bytes = item->ways.bytes[BLOCK_ASKED];
    read->cancel = item->is_remote ? &item->cancel : NULL;
    int result = get_bytes(item, read, error);
    item->ways.bytes[BLOCK_ASKED] = asked_bytes; /* for these no part was charged */
    return result;
}

void item_use_temporary(struct item *item, uint64_t bytes, bool begins)
{
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

/* As with arrivals below, the shares of all parts telescope. */
static uint64_t share_of_way(const struct item *item, const struct part *part, uint64_t bytes)
{
    uint64_t all = item->parts[item->n_parts - 1].charged_to, from = part > item->parts ? part[-1].charged_to : 0;
    return bytes * part->charged_to / all - bytes * from / all;
}

void item_share_ways(struct item *item)
{
    const uint64_t *bytes = item->ways.bytes;
    uint64_t charged = item_sum_reports(item, offsetof(struct run_report, read_bytes)), to = 0;
    uint64_t left = charged > bytes[BLOCK_ASKED] ? charged - bytes[BLOCK_ASKED] : 0; /* reads may be widened */
    for (size_t i = 0; i < item->n_parts; i++) {
        to += item->parts[i].report.read_bytes + (charged == 0 && i == 0);
        item->parts[i].charged_to = to;
    }
    for (size_t i = 0; i < item->n_parts; i++) {
        const struct part *part = &item->parts[i];
        struct run_report *report = &item->parts[i].report;
        report->read_bytes = share_of_way(item, part, left + bytes[BLOCK_FROM_SOURCE]);
        report->hedged_bytes = share_of_way(item, part, bytes[BLOCK_HEDGED]);
        report->shared_bytes += share_of_way(item, part, bytes[BLOCK_KEPT]);
        for (size_t h = 0; h < item->ways.from.n; h++)
            report->peer_bytes += share_of_way(item, part, item->ways.from.list[h].bytes);
        report->cached_bytes = report->cached_bytes < report->read_bytes ? report->cached_bytes : report->read_bytes;
    }
}

void item_add_from_hosts(const struct item *item, const struct part *part)
{
    for (size_t h = 0; h < item->ways.from.n; h++) {
        const struct from_host *host = &item->ways.from.list[h];
        uint64_t bytes = share_of_way(item, part, host->bytes);
        if (bytes > 0)
            from_hosts_add(&part->run->account.from, host->name, bytes);
    }
}

/* --- arrivals: the shares of a run telescope: share(to) - share(from) over all pieces is the share of the last one, whatever
 * the order in which threads tell theirs --- */

static uint64_t share(const struct part *part, uint64_t bytes, uint64_t expected_bytes)
{
    return (uint64_t)((double)part->expected_bytes * ((double)bytes / (double)expected_bytes));
}

static void count_arrived(struct arrival *arrival, uint64_t bytes)
{
    struct arrivals *arrivals = (struct arrivals *)arrival;
    const struct item *item = arrivals->item;
    uint64_t all = arrivals->expected_bytes;
    uint64_t from = __atomic_fetch_add(&arrivals->told_bytes, bytes, __ATOMIC_RELAXED), to = from + bytes;
    from = from < all ? from : all;
    to = to < all ? to : all;
    for (size_t i = 0; from < to && i < item->n_parts; i++) {
        struct part *part = &item->parts[i];
        uint64_t more = share(part, to, all) - share(part, from, all);
        __atomic_add_fetch(&part->arrived_bytes, more, __ATOMIC_RELAXED);
        __atomic_add_fetch(&part->run->account.done_bytes, more, __ATOMIC_RELAXED);
    }
}

struct arrival *item_begin_arrivals(struct item *item, const struct clips *clips, const struct extents *requests)
{
    if (!item->is_remote)
        return NULL;
    item->arrivals =
        (struct arrivals){.arrival.tell = count_arrived, .item = item, .expected_bytes = extent_sum_bytes(requests)};
    for (size_t i = 0; i < item->n_parts; i++)
        item->parts[i].expected_bytes = 0;
    for (size_t i = 0; i < clips->n; i++)
        item->parts[clips->list[i].part].expected_bytes += clips->list[i].src.count * clip_row_bytes(&clips->list[i], item);
    return &item->arrivals.arrival;
}

void item_end_arrivals(const struct item *item, const struct part *part)
{
    bool has_told = item->is_remote && item->kind == ITEM_BLOCK;
    __atomic_add_fetch(&part->run->account.done_bytes, part->placed_bytes - (has_told ? part->arrived_bytes : 0),
                       __ATOMIC_RELAXED);
}
