#include "blame_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "message/message_json.h"
#include "summary.h"

typedef Tensorcast__Daemon__V1__LoadTrace load_trace;

enum { SHOWN_CAUSES = 3, WAITED_CHARS = 160, MAX_SHOWN_LOADS = 20, TIME_CHARS = 32 };

static const double least_share = 0.005; /* less is shown as 0 % */

static double share_of(const load_trace *load, double ms)
{
    return load->total_ms > 0 ? ms / load->total_ms : 0;
}

/* --- JSON --- */

void blame_put_load(struct json_writer *json, const load_trace *load)
{
    json_put_text(json, "load_id", load->load_id);
    json_put_text(json, "artifact", load->artifact);
    json_put_u64(json, "uid", load->uid);
    json_put_u64(json, "pid", load->pid);
    json_put_text(json, "code", load->code);
    json_put_text(json, "origin", load->origin);
    json_put_text_or_null(json, "executor", load->executor);
    json_put_u64(json, "begun_unix_ms", (uint64_t)(load->begun_unix_s * 1e3));
    json_put_double(json, "total_ms", load->total_ms);
    json_put_open(json, "waited_for", '{');
    for (size_t i = 0; i < load->n_causes && i < load->n_cause_ms; i++)
        json_put_double(json, load->causes[i], load->cause_ms[i]);
    json_write_close(json, '}');
}

char *blame_list_json(const Tensorcast__Daemon__V1__BlameResponse *response)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_u64(&json, "kept", response->kept);
    json_put_open(&json, "loads", '[');
    for (size_t i = 0; i < response->n_loads; i++) {
        json_write_open(&json, '{');
        blame_put_load(&json, response->loads[i]);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    return json.text;
}

char *blame_load_json(const load_trace *load)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    blame_put_load(&json, load);
    json_put_open(&json, "chain", '[');
    for (size_t i = 0; i < load->n_chain; i++) {
        const Tensorcast__Daemon__V1__TraceLink *link = load->chain[i];
        json_write_open(&json, '{');
        message_json_put(&json, &link->base, 0);
        json_put_double(&json, "share", share_of(load, link->ms));
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_put_open(&json, "advice", '[');
    for (size_t i = 0; i < load->n_advice; i++)
        json_write_text(&json, load->advice[i]);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    return json.text;
}

/* --- text --- */

/* "store 96 %, headers 2 %": the largest ones. */
static const char *waited_text(const load_trace *load, char out[WAITED_CHARS])
{
    double below = load->total_ms + 1;
    size_t used = 0;
    out[0] = '\0';
    for (int shown = 0; shown < SHOWN_CAUSES; shown++) {
        size_t largest = load->n_cause_ms;
        for (size_t i = 0; i < load->n_cause_ms; i++)
            if (load->cause_ms[i] < below && (largest == load->n_cause_ms || load->cause_ms[i] > load->cause_ms[largest]))
                largest = i;
        if (largest == load->n_cause_ms || (shown && share_of(load, load->cause_ms[largest]) < 0.01))
            break;
        below = load->cause_ms[largest];
        used += (size_t)snprintf(out + used, WAITED_CHARS - used, "%s%s %.0f %%", used ? ", " : "", load->causes[largest],
                                 100 * share_of(load, load->cause_ms[largest]));
        used = used < WAITED_CHARS ? used : WAITED_CHARS - 1;
    }
    return out;
}

static bool has_failed(const load_trace *load)
{
    return strcmp(load->code, "OK") != 0;
}

/* In local time, as the journal has it. */
static const char *begun_text(const load_trace *load, char out[TIME_CHARS])
{
    time_t begun = (time_t)load->begun_unix_s;
    struct tm parts;
    if (!localtime_r(&begun, &parts) || !strftime(out, TIME_CHARS, "%m-%d %H:%M:%S", &parts))
        out[0] = '\0';
    return out;
}

static void put_row(FILE *out, const load_trace *load)
{
    char pace[PACE_CHARS], waited[WAITED_CHARS], begun[TIME_CHARS];
    fprintf(out, "%-16s  %-14s  %10s  %-40s  %8" PRIu64 "  %s%s%s\n", load->load_id, begun_text(load, begun),
            pace_text_duration(load->total_ms / 1e3, pace), waited_text(load, waited), load->pid, text_show(load->artifact),
            has_failed(load) ? "  " : "", has_failed(load) ? load->code : "");
}

char *blame_list_text(const Tensorcast__Daemon__V1__BlameResponse *response, bool is_on_terminal)
{
    char *text;
    size_t length, n = response->n_loads, most = is_on_terminal ? MAX_SHOWN_LOADS : n, n_slow = 0, n_failed = 0;
    FILE *out = memory_stream(&text, &length);
    if (n == 0)
        fputs("no load has ended since the daemon started\n", out);
    else
        fprintf(out, "%-16s  %-14s  %10s  %-40s  %8s  %s\n", "LOAD", "BEGUN", "TOTAL", "WAITED FOR", "PID", "ARTIFACT");
    for (; n_slow < n && n_slow < most; n_slow++)
        put_row(out, response->loads[n_slow]);
    for (size_t i = n_slow; i < n && n_failed < most; i++) { /* most fail at once, and would never be seen */
        if (has_failed(response->loads[i])) {
            put_row(out, response->loads[i]);
            n_failed++;
        }
    }
    if (n_slow + n_failed < n)
        fprintf(out, "... and %zu quicker ones: tensorcast blame | less\n", n - n_slow - n_failed);
    fclose(out);
    return text;
}

char *blame_load_text(const load_trace *load)
{
    char *text, pace[PACE_CHARS], begun[TIME_CHARS];
    size_t length, n_short = 0;
    double short_ms = 0;
    FILE *out = memory_stream(&text, &length);
    fprintf(out, "%s: %s, load %s of pid %" PRIu64 ", begun %s, %s%s%s\n", text_show(load->artifact),
            pace_text_duration(load->total_ms / 1e3, pace), load->load_id, load->pid, begun_text(load, begun),
            has_failed(load) ? load->code : load->origin, *load->executor ? ", " : "", load->executor);
    fprintf(out, "%12s  %10s  %6s  %-8s  %s\n", "START", "TIME", "SHARE", "FOR", "");
    for (size_t i = 0; i < load->n_chain; i++) {
        const Tensorcast__Daemon__V1__TraceLink *link = load->chain[i];
        if (share_of(load, link->ms) < least_share) {
            n_short++;
            short_ms += link->ms;
            continue;
        }
        fprintf(out, "%9.1f ms", link->start_ms);
        fprintf(out, "  %10s  %4.0f %%  %-8s  %s\n", pace_text_duration(link->ms / 1e3, pace),
                100 * share_of(load, link->ms), link->name, text_show(link->detail));
    }
    if (n_short)
        fprintf(out, "%12s  %10s  %4.0f %%  %zu short step%s, which --json lists\n", "",
                pace_text_duration(short_ms / 1e3, pace), 100 * share_of(load, short_ms), n_short, text_plural(n_short));
    if (has_failed(load))
        fprintf(out, "load_failed in the log has the reason: journalctl TENSORCAST_LOAD_ID=%s\n", load->load_id);
    for (size_t i = 0; i < load->n_advice; i++)
        fprintf(out, "%s  %s\n", i ? "" : "advice\n", load->advice[i]);
    fclose(out);
    return text;
}
