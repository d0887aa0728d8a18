#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "summary.h"

static const char WAITS[] = "waiting for ";

enum { BAR_CELLS = 16, REDRAW_MS = 100, PLAIN_MS = 10000, RANK_CHARS = 64 };

void progress_init(struct progress *progress, enum progress_kind kind, bool quiet)
{
    const char *terminal = getenv("TERM");
    bool is_terminal = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
    uint64_t now_ns = clock_now_ns();
    *progress = (struct progress){.kind = kind, .start_ns = now_ns, .shown_ns = now_ns};
    if (kind == PROGRESS_AUTO)
        progress->kind = is_terminal ? PROGRESS_BAR : PROGRESS_PLAIN;
    if (quiet)
        progress->kind = PROGRESS_NONE;
    if (progress->kind == PROGRESS_PLAIN)
        progress->next_ns = now_ns + PLAIN_MS * (uint64_t)NS_PER_MS;
}

void progress_set_rank(struct progress *progress, uint64_t rank, uint64_t world_size)
{
    progress->rank = rank;
    progress->world_size = world_size;
}

/* "rank 1 of 4: ", or nothing. */
static const char *rank_text(const struct progress *progress, char out[RANK_CHARS])
{
    out[0] = '\0';
    if (progress->world_size)
        snprintf(out, RANK_CHARS, "rank %llu of %llu: ", (unsigned long long)progress->rank,
                 (unsigned long long)progress->world_size);
    return out;
}

/* Whole seconds: the line is drawn ten times in one. */
static const char *duration(double seconds, char out[PACE_CHARS])
{
    if (seconds >= 59.5)
        return pace_text_duration(seconds, out);
    snprintf(out, PACE_CHARS, "%.0f s", seconds);
    return out;
}

static double bytes_per_second(uint64_t before_bytes, uint64_t done_bytes, double seconds)
{
    return seconds > 0 && done_bytes > before_bytes ? (double)(done_bytes - before_bytes) / seconds : 0;
}

const char *progress_line(const char *stage, uint64_t before_bytes, uint64_t done_bytes, uint64_t total_bytes,
                          uint64_t elapsed_ns, char out[PROGRESS_LINE_CHARS])
{
    char bar[BAR_CELLS + 1], left[PACE_CHARS + 8] = "";
    char elapsed[PACE_CHARS], rest[PACE_CHARS];
    double share = total_bytes ? (double)done_bytes / (double)total_bytes : 0;
    if (share > 1)
        share = 1;
    int filled = (int)(share * BAR_CELLS);
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    double elapsed_s = (double)elapsed_ns / 1e9, pace = bytes_per_second(before_bytes, done_bytes, elapsed_s);
    if (pace > 0 && share < 1 && elapsed_s >= 1)
        snprintf(left, sizeof left, ", %s left", duration((double)(total_bytes - done_bytes) / pace, rest));
    snprintf(out, PROGRESS_LINE_CHARS, "%-6s [%s] %3d%%  %s of %s  %s  %s%s", stage, bar, (int)(share * 100),
             text_show_amount(done_bytes), text_show_amount(total_bytes), text_show_rate(pace), duration(elapsed_s, elapsed),
             left);
    return out;
}

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

const char *progress_plain(const char *stage, uint64_t done_bytes, uint64_t total_bytes, double bytes_per_s,
                           char out[PROGRESS_LINE_CHARS])
{
    char rest[PACE_CHARS];
    if (!total_bytes) {
        snprintf(out, PROGRESS_LINE_CHARS, "%s", stage);
        return out;
    }
    int used = snprintf(out, PROGRESS_LINE_CHARS, "%s: %d%%, %s of %s, %s", stage,
                        (int)(100 * (double)done_bytes / (double)total_bytes), text_show_amount(done_bytes),
                        text_show_amount(total_bytes), text_show_rate(bytes_per_s));
    if (bytes_per_s > 0 && used > 0 && used < PROGRESS_LINE_CHARS)
        snprintf(out + used, PROGRESS_LINE_CHARS - (size_t)used, ", %s left",
                 duration((double)(total_bytes - done_bytes) / bytes_per_s, rest));
    return out;
}

static double seconds_since(uint64_t then_ns, uint64_t now_ns)
{
    return (double)(now_ns - then_ns) / 1e9;
}

static void print_plain(struct progress *progress, const char *stage, uint64_t now_ns)
{
    char line[PROGRESS_LINE_CHARS], rank[RANK_CHARS];
    uint64_t told_bytes = progress->shown_bytes > progress->before_bytes ? progress->shown_bytes : progress->before_bytes;
    double pace = bytes_per_second(told_bytes, progress->done_bytes, seconds_since(progress->shown_ns, now_ns));
    const char *shown = text_show(stage);
    fprintf(stderr, "tensorcast: %s%s\n", rank_text(progress, rank),
            progress_plain(shown, progress->done_bytes, progress->total_bytes, pace, line));
    progress->shown_bytes = progress->done_bytes;
    progress->shown_ns = now_ns;
}

static bool is_wait(const char *stage)
{
    return strncmp(stage, WAITS, strlen(WAITS)) == 0;
}

static void print_object(const struct progress *progress, const char *stage, uint64_t now_ns)
{
    struct json_writer json = {0};
    double speed = bytes_per_second(progress->before_bytes, progress->done_bytes, seconds_since(progress->start_ns, now_ns));
    json_write_open(&json, '{');
    json_put_text(&json, "stage", !is_wait(stage) ? stage : progress->stage[0] ? progress->stage : "waiting");
    if (is_wait(stage))
        json_put_text(&json, "waiting_for", stage + strlen(WAITS));
    if (progress->world_size) {
        json_put_u64(&json, "rank", progress->rank);
        json_put_u64(&json, "world_size", progress->world_size);
    }
    json_put_u64(&json, "done_bytes", progress->done_bytes);
    json_put_u64(&json, "total_bytes", progress->total_bytes);
    json_put_double(&json, "bytes_per_second", speed);
    json_put_double(&json, "eta_s", speed > 0 ? (double)(progress->total_bytes - progress->done_bytes) / speed : 0);
    json_write_close(&json, '}');
    fprintf(stderr, "%s\n", json.text);
    free(json.text);
}

static void draw(struct progress *progress, const char *stage, uint64_t now_ns)
{
    char line[PROGRESS_LINE_CHARS], rank[RANK_CHARS];
    const char *shown = text_show(stage);
    if (progress->total_bytes && is_wait(stage))
        snprintf(line, sizeof line, "%s  %.0f %%", shown,
                 100 * (double)progress->done_bytes / (double)progress->total_bytes);
    else if (progress->total_bytes)
        progress_line(shown, progress->before_bytes, progress->done_bytes, progress->total_bytes,
                      now_ns - progress->start_ns, line);
    else
        snprintf(line, sizeof line, "%s", shown);
    int left = terminal_columns() - 1 - (int)strlen(rank_text(progress, rank));
    fprintf(stderr, "\r\x1b[K%s%.*s", left > 0 ? rank : "", left > 0 ? left : 0, line);
    progress->drawn = true;
}

/* What it waits for meanwhile is no stage of its own. */
static bool is_new_stage(struct progress *progress, const char *stage)
{
    if (is_wait(stage) || strncmp(progress->stage, stage, sizeof progress->stage - 1) == 0)
        return false;
    snprintf(progress->stage, sizeof progress->stage, "%s", stage);
    return true;
}

void progress_show(struct progress *progress, const char *stage, uint64_t done_bytes, uint64_t total_bytes)
{
    uint64_t now_ns = clock_now_ns();
    if (is_wait(stage) && !total_bytes) { /* what was read so far stays read */
        total_bytes = progress->total_bytes;
        done_bytes = progress->done_bytes;
    }
    bool was_complete = total_bytes && progress->total_bytes == total_bytes && progress->done_bytes >= total_bytes;
    if (done_bytes > total_bytes)
        done_bytes = total_bytes;
    bool is_new = is_new_stage(progress, stage);
    if (is_new && was_complete) { /* all bytes once more: at a pace of their own */
        progress->start_ns = progress->shown_ns = now_ns;
        was_complete = false;
    }
    if (is_new || total_bytes != progress->total_bytes)
        progress->done_bytes = progress->shown_bytes = 0;
    progress->total_bytes = total_bytes;
    if (progress->done_bytes < done_bytes)
        progress->done_bytes = done_bytes;
    bool is_complete = total_bytes && progress->done_bytes == total_bytes && !was_complete;
    if (progress->kind == PROGRESS_NONE ||
        (now_ns < progress->next_ns && !(is_complete && progress->kind != PROGRESS_PLAIN)))
        return;
    progress->next_ns = now_ns + (progress->kind == PROGRESS_PLAIN ? PLAIN_MS : REDRAW_MS) * (uint64_t)NS_PER_MS;
    if (progress->kind == PROGRESS_JSON)
        print_object(progress, stage, now_ns);
    else if (progress->kind == PROGRESS_PLAIN)
        print_plain(progress, stage, now_ns);
    else
        draw(progress, stage, now_ns);
}

void progress_set_before(struct progress *progress, uint64_t before_bytes)
{
    progress->before_bytes = before_bytes;
}

void progress_finish(struct progress *progress, uint64_t total_bytes)
{
    bool was_told = progress->done_bytes == total_bytes && progress->total_bytes == total_bytes && total_bytes;
    progress->done_bytes = progress->total_bytes = total_bytes;
    if (progress->kind == PROGRESS_JSON && !was_told)
        print_object(progress, "done", clock_now_ns());
    progress_end(progress);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fputs("\r\x1b[K", stderr);
    progress->drawn = false;
}
