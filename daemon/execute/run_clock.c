#include "execute/run_clock.h"

#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "execute/engine_private.h"
#include "execute/item.h"
#include "execute/worker.h"

/* What a run waits for that has nothing in flight. */
static enum cause idle_cause(const struct run *run)
{
    bool waits_for_ranks = run->stage == RUN_GATHERED || (run->stage == RUN_ACTIVE && run->options.collective);
    return waits_for_ranks ? CAUSE_GROUP : CAUSE_QUEUE;
}

static void advance_clock(struct run *run, uint64_t now_ns)
{
    struct run_clock *clock = &run->account.clock;
    uint64_t since_ns = clock->at_ns ? clock->at_ns : run->account.started_ns;
    uint64_t passed_ns = now_ns > since_ns ? now_ns - since_ns : 0;
    if (run->n_taken > 0)
        clock->share_ns += passed_ns / run->n_taken;
    else
        clock->spent_ns[idle_cause(run)] += passed_ns;
    clock->at_ns = now_ns;
}

void run_clock_begin(struct part *part)
{
    uint64_t now_ns = clock_now_ns();
    advance_clock(part->run, now_ns);
    part->begun_ns = now_ns;
    part->begun_share_ns = part->run->account.clock.share_ns;
}

static enum cause source_cause(const struct run *run)
{
    return run->origin ? CAUSE_STORE : CAUSE_DISK;
}

static uint64_t memory_ns(const struct item *item)
{
    return item_sum_reports(item, offsetof(struct run_report, prepare_ns)) + item->memory_ns;
}

/* How much of its reads went to other hosts: by bytes, since most items are one block of one host. */
static uint64_t read_of_hosts(const struct item *item)
{
    double hosts = (double)item->ways.bytes[BLOCK_FROM_HOST], source = (double)item->ways.bytes[BLOCK_FROM_SOURCE];
    return hosts > 0 ? (uint64_t)((double)item->read_ns * (hosts / (hosts + source))) : 0;
}

/* What an item did in its time, by cause; what is not known to be anything else is the way from the buffer to its place. */
static void weigh_item(const struct item *item, const struct part *part, uint64_t item_ns, uint64_t weights[CAUSES])
{
    if (item->kind != ITEM_BLOCK) {
        weights[item->kind == ITEM_SETUP ? CAUSE_PLAN : CAUSE_COPY] = 1;
        return;
    }
    weights[CAUSE_PEERS] = read_of_hosts(item);
    weights[source_cause(part->run)] += item->read_ns - weights[CAUSE_PEERS];
    weights[CAUSE_MEMORY] = memory_ns(item);
    uint64_t known_ns = item->read_ns + weights[CAUSE_MEMORY];
    weights[CAUSE_COPY] = item_ns > known_ns ? item_ns - known_ns : 0;
    if (known_ns + weights[CAUSE_COPY] == 0)
        weights[source_cause(part->run)] = 1;
}

void run_clock_end(const struct worker *worker, const struct part *part)
{
    static const enum span_kind kinds[] = {
        [ITEM_SETUP] = SPAN_SETUP, [ITEM_ENDING] = SPAN_ENDING, [ITEM_BLOCK] = SPAN_BLOCKS};
    const struct item *item = &worker->item;
    struct run *run = part->run;
    struct run_clock *clock = &run->account.clock;
    uint64_t now_ns = clock_now_ns(), weights[CAUSES] = {0}, all = 0;
    advance_clock(run, now_ns);
    weigh_item(item, part, now_ns - part->begun_ns, weights);
    for (int i = 0; i < CAUSES; i++)
        all += weights[i];
    double share_ns = (double)(clock->share_ns - part->begun_share_ns);
    for (int i = 0; i < CAUSES; i++)
        clock->spent_ns[i] += (uint64_t)(share_ns * ((double)weights[i] / (double)all));
    if (!run->options.lanes)
        return;
    bool is_block = item->kind == ITEM_BLOCK;
    const struct lane_span span = {.begin_ns = part->begun_ns,
                                   .end_ns = now_ns,
                                   .bytes = part->placed_bytes,
                                   .read_us = is_block ? (uint32_t)(item->read_ns / 1000) : 0,
                                   .memory_us = is_block ? (uint32_t)(memory_ns(item) / 1000) : 0,
                                   .n_items = 1,
                                   .kind = (uint8_t)kinds[item->kind]};
    lanes_add(run->options.lanes, item->is_remote ? LANE_STORE : LANE_WORKER, (uint16_t)(worker - worker->crew->workers),
              &span);
}

void run_spent(struct run *run, struct run_spent *spent)
{
    const struct run_clock *clock = &run->account.clock;
    pthread_mutex_lock(&run->engine->lock);
    if (run->stage != RUN_FINISHED)
        advance_clock(run, clock_now_ns());
    memcpy(spent->ns, clock->spent_ns, sizeof spent->ns);
    spent->report = run->account.report;
    uint64_t all_ns = run->account.report.execute_ns, known_ns = 0;
    if (run->stage != RUN_FINISHED)
        all_ns = clock->at_ns - run->account.started_ns;
    pthread_mutex_unlock(&run->engine->lock);
    for (int i = 0; i < CAUSES; i++)
        known_ns += spent->ns[i];
    if (all_ns > known_ns) /* of items in flight */
        spent->ns[source_cause(run)] += all_ns - known_ns;
}
