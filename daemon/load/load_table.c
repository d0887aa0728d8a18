/* All loads in flight, for who starts and ends them, for their clients' progress bars, and for status. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "load/load_group.h"
#include "load/load_private.h"

static struct load_info info_of(const struct load *load)
{
    struct load_info info = {.id = load->id,
                             .artifact = load->parts.mapping->artifact->reference,
                             .stage = load->state == LOAD_RUNNING ? "read" : "commit",
                             .done_bytes = run_done_bytes(load->parts.run),
                             .total_bytes = load->parts.mapping->view_bytes,
                             .age_ns = clock_now_ns() - load->started_ns};
    for (const struct ticket_internal *internal = load->tickets; internal; internal = internal->next)
        info.n_tickets++;
    return info;
}

static void report_progress(void *data)
{
    struct load_table *table = data;
    for (struct load *load = table->loads; load; load = load->next) {
        struct load_info info = info_of(load);
        double eta_ms = info.done_bytes
                            ? clock_ms(info.age_ns) * (double)(info.total_bytes - info.done_bytes) / (double)info.done_bytes
                            : 0;
        for (struct ticket_internal *internal = load->tickets; internal; internal = internal->next) {
            if (internal->events->progress)
                internal->events->progress(internal->data, info.stage, info.done_bytes, info.total_bytes, eta_ms);
        }
    }
}

struct load_table *load_table_create(const struct load_services *services)
{
    struct load_table *table = memory_alloc(sizeof *table);
    table->services = services;
    table->progress_timer = loop_timer_create(services->loop, report_progress, table);
    load_group_create_table(table);
    return table;
}

void load_table_destroy(struct load_table *table)
{
    if (!table)
        return;
    loop_timer_destroy(table->progress_timer);
    load_group_destroy_table(table);
    free(table);
}

void load_table_each(const struct load_table *table, void (*fn)(void *data, const struct load_info *info), void *data)
{
    for (const struct load *load = table->loads; load; load = load->next) {
        struct load_info info = info_of(load);
        fn(data, &info);
    }
}

bool load_table_idle(const struct load_table *table)
{
    return table->loads == NULL;
}
