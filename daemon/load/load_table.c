#include "load/load_table.h"

#include <stdlib.h>

#include "base/memory.h"
#include "load/group.h"
#include "load/joint_plans.h"
#include "load/load.h"
#include "load/pending.h"
#include "load/ticket.h"
#include "observe/log.h"

struct load_table *load_table_create(const struct load_services *services)
{
    struct load_table *table = memory_alloc(sizeof *table);
    table->services = services;
    table->progress_timer = loop_timer_create(services->loop, pending_tell_all, table);
    table->groups = group_table_create(services->loop, services->quota, &ticket_group_events, table);
    table->joint_plans = joint_plans_create();
    return table;
}

void load_table_destroy(struct load_table *table)
{
    if (!table)
        return;
    loop_timer_destroy(table->progress_timer);
    group_table_destroy(table->groups);
    joint_plans_destroy(table->joint_plans);
    free(table);
}

void load_table_each(const struct load_table *table, void (*fn)(void *data, const struct load_info *info), void *data)
{
    for (const struct load *load = table->loads; load; load = load->next) {
        struct load_info info = load_describe(load);
        fn(data, &info);
    }
}

void load_table_count(struct load_table *table, const struct load_result *result, const struct error *error)
{
    struct load_totals *totals = &table->totals;
    if (error && error->kind == ERROR_KIND_NOT_RESIDENT)
        return; /* a question, and its answer */
    if (error) {
        totals->failed++;
        if (error->code == ERROR_CANCELLED)
            totals->cancelled++;
        else
            totals->refused += error->code == ERROR_RESOURCE_EXHAUSTED || log_level_of_error(error) == LOG_INFO;
        return;
    }
    totals->loads++;
    totals->resident += result->origin == LOAD_FROM_REPLICA;
    totals->delivered_bytes += result->mapping->view_bytes;
}

struct load_totals load_table_totals(const struct load_table *table)
{
    struct load_totals totals = table->totals;
    for (const struct load *load = table->loads; load; load = load->next)
        totals.read_bytes += load->read_bytes_counted ? 0 : run_read_bytes(load->parts.run);
    return totals;
}

bool load_table_forget_plan(struct load_table *table)
{
    return joint_plans_shrink(table->joint_plans);
}

bool load_table_idle(const struct load_table *table)
{
    return table->loads == NULL;
}
