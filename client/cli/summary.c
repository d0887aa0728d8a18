#include "summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { MAX_SHOWN_HOSTS = 8 };

static const char *escaped(const char *text, char out[TEXT_NAME_CHARS])
{
    return text_escape(text, strlen(text), out);
}

/* Where nothing vouches for the bytes there is nothing to say. */
static void print_verified(const Tensorcast__Daemon__V1__Verification *verified, FILE *out)
{
    char status[TEXT_NAME_CHARS], by[TEXT_NAME_CHARS], reason[TEXT_NAME_CHARS];
    if (!verified || !verified->by[0])
        return;
    bool is_whole = strcmp(verified->status, "verified") == 0;
    fprintf(out, "  verified  %s%sby %s%s%s\n", is_whole ? "" : escaped(verified->status, status), is_whole ? "" : " ",
            escaped(verified->by, by), verified->reason[0] ? ": " : "", escaped(verified->reason, reason));
}

/* Nothing where no byte came from another host, or should have. */
static void print_hosts(const Tensorcast__Daemon__V1__HostsReport *hosts, FILE *out)
{
    char name[TEXT_NAME_CHARS];
    size_t n = hosts ? hosts->n_from_hosts : 0, n_shown = n < MAX_SHOWN_HOSTS ? n : MAX_SHOWN_HOSTS;
    if (n == 0 && (!hosts || hosts->hedged_bytes == 0))
        return;
    fprintf(out, n > 0 ? "  from hosts:" : "  from hosts: nothing");
    for (size_t i = 0; i < n_shown; i++)
        fprintf(out, "%s %s %s", i ? "," : "", escaped(hosts->from_hosts[i]->host, name),
                text_show_amount(hosts->from_hosts[i]->bytes));
    if (n_shown < n)
        fprintf(out, ", %zu more", n - n_shown);
    if (hosts->hedged_bytes > 0)
        fprintf(out, "; %s read instead, since a host was late", text_show_amount(hosts->hedged_bytes));
    fputc('\n', out);
}

void summary_print(const Tensorcast__Daemon__V1__LoadReport *report, size_t n_tensors, FILE *out)
{
    char size[TEXT_SIZE_CHARS], pace[PACE_CHARS];
    char name[TEXT_NAME_CHARS], reason[TEXT_NAME_CHARS];
    text_people_bytes(report->view_bytes, size);
    fprintf(out, "%s: ", escaped(report->artifact, name));
    if (n_tensors)
        fprintf(out, "%zu tensor%s, ", n_tensors, text_plural(n_tensors));
    fprintf(out, "%s in %s", size, pace_text_duration(report->total_ms / 1e3, pace));
    if (report->from_replica)
        fprintf(out, ", resident already\n");
    else if (report->total_ms > 0)
        fprintf(out, ", %s\n", text_show_rate((double)report->view_bytes / report->total_ms * 1e3));
    else
        fputc('\n', out);
    fprintf(out, "  executor  %s (%s)\n", escaped(report->executor, name), escaped(report->selection_reason, reason));
    fprintf(out, "  bytes     %s needed, %s read, %s copied", size, text_show_amount(report->read_bytes),
            text_show_amount(report->copied_bytes));
    if (report->shared_bytes)
        fprintf(out, ", %s shared with other loads", text_show_amount(report->shared_bytes));
    fputc('\n', out);
    print_hosts(report->hosts, out);
    fprintf(out, "  memory    %s\n", escaped(report->memory, name));
    print_verified(report->verified, out);
}

/* --- pace text --- */

/* Rounded before it is cut into units, so that nothing is 60 s of a minute. */
const char *pace_text_duration(double seconds, char out[PACE_CHARS])
{
    double whole = seconds < 1e15 ? seconds + 0.5 : 1e15;
    uint64_t s = seconds > 0 ? (uint64_t)whole : 0, minutes = (s + 30) / 60;
    if (seconds < 0.0999)
        snprintf(out, PACE_CHARS, "%.2f ms", seconds * 1e3);
    else if (seconds < 0.9995)
        snprintf(out, PACE_CHARS, "%.0f ms", seconds * 1e3);
    else if (seconds < 59.95)
        snprintf(out, PACE_CHARS, "%.1f s", seconds);
    else if (s < 3600)
        snprintf(out, PACE_CHARS, "%d min %d s", (int)(s / 60), (int)(s % 60));
    else
        snprintf(out, PACE_CHARS, "%llu h %d min", (unsigned long long)(minutes / 60), (int)(minutes % 60));
    return out;
}

size_t text_columns(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}
