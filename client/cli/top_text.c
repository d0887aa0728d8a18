#include "top_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "client/status_text.h"

typedef Tensorcast__Daemon__V1__LoadStatus load_status;

enum { BAR_CELLS = 24, FIXED_COLUMNS = 60, PID_COLUMNS = 9, WIDE_COLUMNS = 100, LEAST_NAME_COLUMNS = 20, LEAST_ROWS = 3 };

static void put_bar(FILE *out, const char *name, uint64_t used_bytes, uint64_t budget_bytes)
{
    double share = budget_bytes ? (double)used_bytes / (double)budget_bytes : 0;
    int n_full = share >= 1 ? BAR_CELLS : (int)(share * BAR_CELLS + 0.5);
    fprintf(out, "%-8s [", name);
    for (int i = 0; i < BAR_CELLS; i++)
        fputc(i < n_full ? '#' : ' ', out);
    fprintf(out, "] %3.0f %%  %s of %s\n", 100 * share, text_show_amount(used_bytes), text_show_amount(budget_bytes));
}

/* Returns the lines. */
static size_t put_head(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char age[TEXT_SIZE_CHARS];
    fprintf(out, "tensorcastd %s  %s for %s  %zu load%s  %" PRIu64 " lease%s\n", status->version, status->state,
            status_age_text(status->uptime_s, age), status->n_loads, text_plural(status->n_loads), status->leases,
            text_plural(status->leases));
    put_bar(out, "host", status->used_bytes, status->host_budget_bytes);
    for (size_t i = 0; i < status->n_devices; i++) {
        snprintf(age, sizeof age, "cuda:%zu", i);
        put_bar(out, age, status->devices[i]->used_bytes, status->devices[i]->budget_bytes);
    }
    fprintf(out, "beside   %s staging  %s extents  %s pooled\n", text_show_amount(status->staging_bytes),
            text_show_amount(status->extent_bytes), text_show_amount(status->pool_bytes));
    return 3 + status->n_devices;
}

static bool has_pids(size_t columns)
{
    return !columns || columns >= WIDE_COLUMNS;
}

static uint64_t left_bytes(const load_status *load)
{
    return load->total_bytes > load->done_bytes ? load->total_bytes - load->done_bytes : 0;
}

static int compare_loads(const void *a, const void *b)
{
    uint64_t one = left_bytes(*(load_status *const *)a), other = left_bytes(*(load_status *const *)b);
    return one < other ? 1 : one > other ? -1 : 0;
}

/* Rates since the load began: bytes arrive by whole requests, so that a shorter time would tell of those. */
static void put_load(FILE *out, const load_status *load, size_t columns)
{
    char age[TEXT_SIZE_CHARS], rate[TEXT_SIZE_CHARS] = "-", remaining[TEXT_SIZE_CHARS] = "-", name[TEXT_NAME_CHARS];
    double per_s = load->age_s > 0 ? (double)load->done_bytes / load->age_s : 0;
    size_t fixed = FIXED_COLUMNS + (has_pids(columns) ? PID_COLUMNS : 0);
    size_t room = columns > fixed + LEAST_NAME_COLUMNS ? columns - fixed : LEAST_NAME_COLUMNS;
    if (per_s > 0) {
        text_people_rate(per_s, rate);
        status_age_text((double)left_bytes(load) / per_s, remaining);
    }
    fprintf(out, "%10s %4.0f %% %11s %9s %9s  %-8s ", text_show_amount(left_bytes(load)),
            load->total_bytes ? 100.0 * (double)load->done_bytes / (double)load->total_bytes : 0.0, rate, remaining,
            status_age_text(load->age_s, age), *load->waited_for ? load->waited_for : load->stage);
    if (has_pids(columns))
        fprintf(out, "%-8" PRIu64 " ", load->pid);
    fprintf(out, "%s\n", text_fit(load->artifact, columns ? room : 0, name));
    if (*load->waiting_for)
        fprintf(out, "%10s waiting for %s\n", "", text_fit(load->waiting_for, columns > 40 ? columns - 23 : 0, name));
}

/* They read nothing yet. Returns the lines. */
static size_t put_requests(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    char name[TEXT_NAME_CHARS], age[TEXT_SIZE_CHARS];
    size_t n = 0;
    for (size_t i = 0; i < status->n_requests; i++) {
        const Tensorcast__Daemon__V1__RequestStatus *row = status->requests[i];
        if (!*row->waiting_for)
            continue;
        fprintf(out, "%s%-13s %8s  pid %" PRIu64 ", waiting for %s\n", n++ ? "" : "\n", row->method,
                status_age_text(row->age_s, age), row->pid,
                text_fit(row->waiting_for, columns > 60 ? columns - 50 : 0, name));
    }
    return n ? n + 1 : 0;
}

char *top_text(const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns, size_t rows)
{
    char *text = NULL, *waiting = NULL;
    size_t length, n = status->n_loads;
    const load_status **loads = memory_alloc_array(n + 1, sizeof *loads);
    FILE *out = memory_stream(&waiting, &length);
    size_t used = put_requests(out, status, columns);
    fclose(out);
    out = memory_stream(&text, &length);
    used += put_head(out, status) + 3; /* a blank line, the head of the table, the line of those left out */
    size_t room = rows > used + LEAST_ROWS ? rows - used : LEAST_ROWS, n_shown = 0;
    for (size_t i = 0; i < n; i++)
        loads[i] = status->loads[i];
    qsort(loads, n, sizeof *loads, compare_loads);
    if (n)
        fprintf(out, "\n      left   done        rate remaining       age  waits    %sartifact\n",
                has_pids(columns) ? "pid      " : "");
    else
        fputs("\nno load is running\n", out);
    for (size_t lines = 0; n_shown < n; n_shown++) {
        lines += *loads[n_shown]->waiting_for ? 2 : 1;
        if (rows && lines > room)
            break;
        put_load(out, loads[n_shown], columns);
    }
    if (n_shown < n)
        fprintf(out, "  ... and %zu more\n", n - n_shown);
    fputs(waiting, out);
    fclose(out);
    free(waiting);
    free(loads);
    return text;
}
