#include "summary.h"

#include <string.h>

#include "base/text.h"
#include "pace_text.h"

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

void summary_print(const Tensorcast__Daemon__V1__LoadReport *report, size_t n_tensors, FILE *out)
{
    char size[TEXT_SIZE_CHARS], bytes[TEXT_SIZE_CHARS], copied[TEXT_SIZE_CHARS], pace[PACE_CHARS];
    char name[TEXT_NAME_CHARS], reason[TEXT_NAME_CHARS];
    text_people_bytes(report->view_bytes, size);
    fprintf(out, "%s: ", escaped(report->artifact, name));
    if (n_tensors)
        fprintf(out, "%zu tensor%s, ", n_tensors, n_tensors == 1 ? "" : "s");
    fprintf(out, "%s in %s", size, pace_text_duration(report->total_ms / 1e3, pace));
    if (report->from_replica)
        fprintf(out, ", resident already\n");
    else if (report->total_ms > 0)
        fprintf(out, ", %s\n", text_people_rate((double)report->view_bytes / report->total_ms * 1e3, pace));
    else
        fputc('\n', out);
    fprintf(out, "  executor  %s (%s)\n", escaped(report->executor, name), escaped(report->selection_reason, reason));
    fprintf(out, "  bytes     %s needed, %s read, %s copied", size, text_people_bytes(report->read_bytes, bytes),
            text_people_bytes(report->copied_bytes, copied));
    if (report->shared_bytes)
        fprintf(out, ", %s shared with other loads", text_people_bytes(report->shared_bytes, bytes));
    fprintf(out, "\n  memory    %s\n", escaped(report->memory, name));
    print_verified(report->verified, out);
}
