/* The adaptive limit; see http_climb.h. */
#include "source/http/http_climb.h"

#include "base/clock.h"

enum { START = 16, FLOOR = 4 };
static const uint64_t least_turn_ns = 50 * (uint64_t)NS_PER_MS, hold_ns = 10000 * (uint64_t)NS_PER_MS;
static const double full = 0.85; /* of the slots used over a turn: less, and the callers were the limit */

void http_climb_init(struct http_climb *climb, uint32_t ceiling, uint64_t now_ns)
{
    *climb = (struct http_climb){.limit = ceiling < START ? ceiling : START,
                                 .floor = ceiling < FLOOR ? ceiling : FLOOR,
                                 .ceiling = ceiling,
                                 .turn_ns = now_ns,
                                 .counted_ns = now_ns};
}

void http_climb_count(struct http_climb *climb, uint32_t in_flight, uint64_t now_ns)
{
    climb->slot_ns += in_flight * (now_ns - climb->counted_ns);
    climb->counted_ns = now_ns;
}

static void begin_turn(struct http_climb *climb, uint64_t total_bytes, uint64_t now_ns)
{
    climb->turn_ns = climb->counted_ns = now_ns;
    climb->turn_bytes = total_bytes;
    climb->slot_ns = 0;
    climb->n_completed = 0;
}

/* A quarter up or a fifth down from where it was measured; false where there is no room. */
static bool step(struct http_climb *climb)
{
    uint32_t base = climb->base_limit, quarter = base / 4 ? base / 4 : 1, fifth = base / 5 ? base / 5 : 1;
    uint32_t to = climb->goes_down ? base - fifth : base + quarter;
    to = to > climb->ceiling ? climb->ceiling : to;
    to = to < climb->floor ? climb->floor : to;
    climb->limit = to;
    climb->stage = HTTP_CLIMB_SETTLE;
    return to != base;
}

static void hold(struct http_climb *climb, uint64_t now_ns)
{
    climb->hold_until_ns = now_ns + hold_ns;
    climb->base_bytes_per_s = 0;
    climb->goes_down = false;
    climb->stage = HTTP_CLIMB_MEASURE;
}

static void turn_round(struct http_climb *climb, uint64_t now_ns)
{
    bool was_down = climb->goes_down;
    climb->limit = climb->base_limit;
    climb->goes_down = true;
    if (was_down || !step(climb))
        hold(climb, now_ns);
}

static void weigh(struct http_climb *climb, double bytes_per_s, uint64_t now_ns)
{
    if (climb->base_bytes_per_s > 0) {
        double size = (double)climb->limit / climb->base_limit, gain = bytes_per_s / climb->base_bytes_per_s;
        if (gain < 1 + (size - 1) / 2) {
            turn_round(climb, now_ns);
            return;
        }
    }
    climb->base_bytes_per_s = bytes_per_s;
    climb->base_limit = climb->limit;
    if (!step(climb))
        turn_round(climb, now_ns);
}

static void recover(struct http_climb *climb)
{
    climb->limit++;
    climb->stage = HTTP_CLIMB_SETTLE;
    if (climb->limit >= climb->cut_from)
        climb->cut_from = 0;
}

static void forget(struct http_climb *climb)
{
    if (climb->base_bytes_per_s > 0)
        climb->limit = climb->base_limit;
    climb->base_bytes_per_s = 0;
    climb->goes_down = false;
    climb->stage = HTTP_CLIMB_SETTLE;
}

static void end_turn(struct http_climb *climb, uint64_t total_bytes, uint64_t now_ns)
{
    double elapsed_ns = (double)(now_ns - climb->turn_ns);
    if ((double)climb->slot_ns < full * elapsed_ns * climb->limit)
        forget(climb);
    else if (climb->cut_from > 0)
        recover(climb);
    else if (climb->stage == HTTP_CLIMB_SETTLE)
        climb->stage = HTTP_CLIMB_MEASURE;
    else if (now_ns >= climb->hold_until_ns)
        weigh(climb, (double)(total_bytes - climb->turn_bytes) * 1e9 / elapsed_ns, now_ns);
}

void http_climb_completed(struct http_climb *climb, uint64_t total_bytes, uint64_t now_ns)
{
    if (++climb->n_completed < climb->limit || now_ns - climb->turn_ns < least_turn_ns)
        return;
    end_turn(climb, total_bytes, now_ns);
    begin_turn(climb, total_bytes, now_ns);
}

bool http_climb_cut(struct http_climb *climb, uint64_t started_ns, uint64_t now_ns)
{
    if (started_ns < climb->cut_ns || climb->limit == 1)
        return false;
    climb->base_bytes_per_s = 0;
    climb->goes_down = false;
    climb->stage = HTTP_CLIMB_SETTLE;
    climb->cut_from = climb->limit;
    climb->limit /= 2;
    climb->cut_ns = now_ns;
    return true;
}
