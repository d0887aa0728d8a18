#include "trace_svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "summary.h"

typedef Tensorcast__Daemon__V1__LoadTrace load_trace;
typedef Tensorcast__Daemon__V1__TraceLink trace_link;
typedef Tensorcast__Daemon__V1__TraceLane trace_lane;

enum {
    WIDTH = 1200,
    LEFT = 110, /* of the time axis */
    RIGHT = 1180,
    TOP = 96,
    LANE_HEIGHT = 22,
    BAR_HEIGHT = 16,
    TICKS = 5
};

static const struct {
    const char *name, *color; /* of a cause, a stage or a kind of span */
} colors[] = {
    {"queue", "#9e9e9e"},  {"group", "#e8a33d"},   {"headers", "#8e6bbf"},  {"resolve", "#8e6bbf"},
    {"plan", "#3aa6a0"},   {"memory", "#c9b400"},  {"allocate", "#c9b400"}, {"store", "#d1495b"},
    {"disk", "#3b76af"},   {"peers", "#5bb3d6"},   {"copy", "#4f9d4f"},     {"verify", "#7a5c3e"},
    {"commit", "#7a5c3e"}, {"handoff", "#d27ab5"}, {"set up", "#3aa6a0"},   {"end", "#4f9d4f"},
};

static const char *color_of(const char *name)
{
    for (size_t i = 0; i < sizeof colors / sizeof colors[0]; i++)
        if (strcmp(colors[i].name, name) == 0)
            return colors[i].color;
    return "#606060";
}

struct drawing {
    FILE *out;
    double total_ms, y; /* y: of the next lane */
};

static double place_of_time(const struct drawing *drawing, double ms)
{
    double share = drawing->total_ms > 0 ? ms / drawing->total_ms : 0;
    return LEFT + (RIGHT - LEFT) * (share < 0 ? 0 : share > 1 ? 1 : share);
}

/* A name from outside: no character that XML does not take, or gives a meaning. */
static void put_escaped(FILE *out, const char *text)
{
    char shown[TEXT_NAME_CHARS];
    for (const char *at = text_escape(text, strlen(text), shown); *at; at++) {
        if (at[0] == '\xef' && at[1] == '\xbf' && (at[2] & ~1) == '\xbe') { /* U+FFFE, U+FFFF */
            at += 2;
            continue;
        }
        switch (*at) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*at, out);
        }
    }
}

/* What is beyond the picture, since the load was given up before it ended, is cut off. */
static void put_bar(const struct drawing *drawing, const char *name, double start_ms, double ms, const char *detail)
{
    char pace[PACE_CHARS];
    double from = place_of_time(drawing, start_ms), to = place_of_time(drawing, start_ms + ms);
    if (start_ms > drawing->total_ms || start_ms + ms < 0)
        return;
    fprintf(drawing->out, "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s %s%s", from,
            drawing->y, fmax(to - from, 0.4), BAR_HEIGHT, color_of(name), name, pace_text_duration(ms / 1e3, pace),
            *detail ? ": " : "");
    put_escaped(drawing->out, detail);
    fputs("</title></rect>\n", drawing->out);
}

static void begin_lane(const struct drawing *drawing, const char *name)
{
    fputs("<g data-lane=\"", drawing->out);
    put_escaped(drawing->out, name);
    fprintf(drawing->out, "\"><text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">", LEFT - 8, drawing->y + BAR_HEIGHT - 4);
    put_escaped(drawing->out, name);
    fputs("</text>\n", drawing->out);
}

static void end_lane(struct drawing *drawing)
{
    fputs("</g>\n", drawing->out);
    drawing->y += LANE_HEIGHT;
}

static void put_links(struct drawing *drawing, const char *name, trace_link *const *links, size_t n)
{
    begin_lane(drawing, name);
    for (size_t i = 0; i < n; i++)
        put_bar(drawing, links[i]->name, links[i]->start_ms, links[i]->ms, links[i]->detail);
    end_lane(drawing);
}

/* A span of blocks in its parts, one behind the other: what they waited for alternates within it. */
static void put_blocks(const struct drawing *drawing, const trace_lane *lane, size_t i)
{
    const char *source = strncmp(lane->name, "store", strlen("store")) == 0 ? "store" : "disk";
    double copy_ms = lane->ms[i] - lane->memory_ms[i] - lane->read_ms[i], at_ms = lane->start_ms[i];
    const struct {
        const char *name;
        double ms;
    } parts[] = {{"memory", lane->memory_ms[i]}, {source, lane->read_ms[i]}, {"copy", copy_ms}};
    char detail[TEXT_NAME_CHARS];
    snprintf(detail, sizeof detail, "%s in %" PRIu32 " block%s", text_show_amount(lane->bytes[i]), lane->items[i],
             text_plural(lane->items[i]));
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
        if (parts[k].ms > 0)
            put_bar(drawing, parts[k].name, at_ms, parts[k].ms, detail);
        at_ms += fmax(parts[k].ms, 0);
    }
}

static void put_thread(struct drawing *drawing, const trace_lane *lane)
{
    begin_lane(drawing, lane->name);
    for (size_t i = 0; i < lane->n_kinds; i++) {
        if (strcmp(lane->kinds[i], "blocks") == 0)
            put_blocks(drawing, lane, i);
        else
            put_bar(drawing, lane->kinds[i], lane->start_ms[i], lane->ms[i], "");
    }
    end_lane(drawing);
}

/* The columns of a lane are as long as each other. */
static bool is_whole(const trace_lane *lane)
{
    size_t n = lane->n_kinds;
    return lane->n_start_ms == n && lane->n_ms == n && lane->n_bytes == n && lane->n_items == n && lane->n_read_ms == n &&
           lane->n_memory_ms == n;
}

static void put_ranks(struct drawing *drawing, const Tensorcast__Daemon__V1__BlameResponse *response)
{
    const load_trace *last = NULL, *next;
    char name[TEXT_NAME_CHARS];
    do {
        next = NULL;
        for (size_t i = 0; i < response->n_loads; i++) {
            const load_trace *load = response->loads[i];
            if ((!last || load->rank > last->rank) && (!next || load->rank < next->rank))
                next = load;
        }
        if (next) {
            snprintf(name, sizeof name, "rank %" PRIu32, next->rank);
            put_links(drawing, name, next->stages, next->n_stages);
        }
        last = next;
    } while (next);
}

static void put_legend(const struct drawing *drawing, const load_trace *load)
{
    int x = LEFT, y = 54;
    for (size_t i = 0; i < load->n_causes && i < load->n_cause_ms; i++) {
        char pace[PACE_CHARS];
        fprintf(drawing->out, "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>", x, y,
                color_of(load->causes[i]));
        fprintf(drawing->out, "<text x=\"%d\" y=\"%d\">%s %s</text>\n", x + 14, y + 9, load->causes[i],
                pace_text_duration(load->cause_ms[i] / 1e3, pace));
        x = x + 2 * 125 > RIGHT ? LEFT : x + 125;
        y += x == LEFT ? 14 : 0;
    }
}

static void put_axis(const struct drawing *drawing)
{
    for (int i = 0; i <= TICKS; i++) {
        char pace[PACE_CHARS];
        double ms = drawing->total_ms * i / TICKS, x = place_of_time(drawing, ms);
        fprintf(drawing->out, "<path d=\"M%.1f %d V%.0f\" stroke=\"#d0d0d0\"/>", x, TOP - 6, drawing->y);
        fprintf(drawing->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", x, TOP - 10,
                i == TICKS ? "end" : "middle", i ? pace_text_duration(ms / 1e3, pace) : "0");
    }
}

/* Of all that is drawn: other ranks may have gone on for longer. */
static double find_end(const Tensorcast__Daemon__V1__BlameResponse *response)
{
    double end_ms = response->loads[0]->total_ms;
    for (size_t i = 1; i < response->n_loads; i++)
        for (size_t k = 0; k < response->loads[i]->n_stages; k++)
            end_ms = fmax(end_ms, response->loads[i]->stages[k]->start_ms + response->loads[i]->stages[k]->ms);
    return end_ms;
}

char *trace_svg(const Tensorcast__Daemon__V1__BlameResponse *response)
{
    const load_trace *load = response->loads[0];
    char *lanes, *text, pace[PACE_CHARS];
    size_t length;
    struct drawing drawing = {.out = memory_stream(&lanes, &length), .total_ms = find_end(response), .y = TOP};
    put_links(&drawing, "waited for", load->chain, load->n_chain);
    if (load->world_size)
        put_ranks(&drawing, response);
    else
        put_links(&drawing, "load", load->stages, load->n_stages);
    for (size_t i = 0; i < load->n_lanes; i++)
        if (is_whole(load->lanes[i]))
            put_thread(&drawing, load->lanes[i]);
    fclose(drawing.out);

    drawing.out = memory_stream(&text, &length);
    fprintf(drawing.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"11\" "
            "fill=\"#202020\">\n<rect width=\"%d\" height=\"%.0f\" fill=\"#ffffff\"/>\n<text x=\"12\" y=\"20\" "
            "font-size=\"14\">",
            WIDTH, drawing.y + 12, WIDTH, drawing.y + 12);
    put_escaped(drawing.out, load->artifact);
    fprintf(drawing.out, "</text>\n<text x=\"12\" y=\"40\">load %s, pid %" PRIu64 ", %s, %s", load->load_id, load->pid,
            pace_text_duration(load->total_ms / 1e3, pace), load->code);
    if (load->left_out)
        fprintf(drawing.out, ", %" PRIu64 " spans of further threads left out", load->left_out);
    fputs("</text>\n", drawing.out);
    put_legend(&drawing, load);
    put_axis(&drawing);
    fwrite(lanes, 1, strlen(lanes), drawing.out);
    fputs("</svg>\n", drawing.out);
    fclose(drawing.out);
    free(lanes);
    return text;
}
