#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "pace_text.h"

enum { BAR_CELLS = 16, REDRAW_MS = 100 };

void progress_init(struct progress *progress, bool quiet)
{
    const char *terminal = getenv("TERM");
    *progress = (struct progress){.start_ns = clock_now_ns()};
    progress->enabled = !quiet && isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

/* Whole seconds: the line is drawn ten times in one. */
static const char *duration(double seconds, char out[PACE_CHARS])
{
    if (seconds >= 59.5)
        return pace_text_duration(seconds, out);
    snprintf(out, PACE_CHARS, "%.0f s", seconds);
    return out;
}

const char *progress_line(const char *stage, uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_ns,
                          char out[PROGRESS_LINE_CHARS])
{
    char done[TEXT_SIZE_CHARS], total[TEXT_SIZE_CHARS], bar[BAR_CELLS + 1], left[PACE_CHARS + 8] = "";
    char speed[PACE_CHARS], elapsed[PACE_CHARS], rest[PACE_CHARS];
    double share = total_bytes ? (double)done_bytes / (double)total_bytes : 0;
    if (share > 1)
        share = 1;
    int filled = (int)(share * BAR_CELLS);
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    double elapsed_s = (double)elapsed_ns / 1e9;
    if (done_bytes && share < 1 && elapsed_s >= 1)
        snprintf(left, sizeof left, ", %s left", duration(elapsed_s * (1 - share) / share, rest));
    snprintf(out, PROGRESS_LINE_CHARS, "%-6s [%s] %3d%%  %s of %s  %s  %s%s", stage, bar, (int)(share * 100),
             text_people_bytes(done_bytes, done), text_people_bytes(total_bytes, total),
             pace_text_speed(elapsed_ns ? (double)done_bytes / elapsed_s : 0, speed), duration(elapsed_s, elapsed), left);
    return out;
}

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

static void print_object(const struct progress *progress, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    struct json_writer json = {0};
    double elapsed_s = (double)(clock_now_ns() - progress->start_ns) / 1e9;
    double speed = elapsed_s > 0 ? (double)done_bytes / elapsed_s : 0;
    json_write_open(&json, '{');
    json_put_text(&json, "stage", stage);
    json_put_u64(&json, "done_bytes", done_bytes);
    json_put_u64(&json, "total_bytes", total_bytes);
    json_put_double(&json, "bytes_per_second", speed);
    json_put_double(&json, "eta_s", speed > 0 ? (double)(total_bytes - done_bytes) / speed : 0);
    json_write_close(&json, '}');
    fprintf(stderr, "%s\n", json.text);
    free(json.text);
}

void progress_show(struct progress *progress, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    char line[PROGRESS_LINE_CHARS];
    uint64_t now_ns = clock_now_ns();
    if (done_bytes > total_bytes)
        done_bytes = total_bytes;
    if ((!progress->enabled && !progress->as_json) || (now_ns < progress->next_ns && done_bytes < total_bytes))
        return;
    progress->next_ns = now_ns + REDRAW_MS * (uint64_t)NS_PER_MS;
    if (progress->as_json) {
        print_object(progress, stage, done_bytes, total_bytes);
        return;
    }
    progress->drawn = true;
    fprintf(stderr, "\r\x1b[K%.*s", terminal_columns() - 1,
            progress_line(stage, done_bytes, total_bytes, now_ns - progress->start_ns, line));
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fputs("\r\x1b[K", stderr);
    progress->drawn = false;
}
