/* An epoch is as many requests as the limit allows at once, counted from when all earlier ones are back. Requests are blocks
 * of one size except for the ends of extents, so counting them is as good as counting bytes. Epochs in which there was not
 * enough to do say nothing and are begun again. */
#include "execute/remote_pace.h"

#include "base/state.h"

enum { LEAST_LIMIT = 4, FIRST_EPOCHS = 2, FEWER_EPOCHS = 2 /* a disturbance slows one */, HOLD_EPOCHS = 64 };
static const double CARRIES_ALL_SHARE = 0.875; /* three quarters that do not wait for each other would carry as much less */
static const double WORTH_MORE_FACTOR = 1.1;
static const double HEADROOM_FACTOR = 1.05; /* so that a slow request does not leave a hole */

void remote_pace_init(struct remote_pace *pace, uint32_t most)
{
    *pace = (struct remote_pace){.limit = most, .most = most, .settled = most};
}

static void begin_epoch(struct remote_pace *pace, uint64_t now_ns)
{
    pace->epoch_ns = now_ns;
    pace->n_done = pace->busy_ns = 0;
}

static void enter_phase(struct remote_pace *pace, enum remote_pace_phase phase, uint32_t limit, uint32_t in_flight)
{
    static const struct state_row phases[] = {
        [PACE_FIRST] = {"first", STATE_BIT(PACE_FEWER) | STATE_BIT(PACE_HOLD)},
        [PACE_FEWER] = {"fewer", STATE_BIT(PACE_FEWER) | STATE_BIT(PACE_HOLD)},
        [PACE_HOLD] = {"hold", STATE_BIT(PACE_FEWER) | STATE_BIT(PACE_HOLD) | STATE_BIT(PACE_MORE)},
        [PACE_MORE] = {"more", STATE_BIT(PACE_FIRST) | STATE_BIT(PACE_HOLD)}};
    static const struct state_machine machine = {"pace of requests", phases, 4};
    state_check(&machine, pace->phase, phase);
    pace->phase = phase;
    pace->n_epochs = 0;
    pace->n_stale = limit == pace->limit ? 0 : in_flight;
    pace->limit = limit;
}

static uint32_t clamp(double limit, uint32_t least, uint32_t most)
{
    return limit <= least ? least : limit >= most ? most : (uint32_t)limit;
}

static void settle_limit(struct remote_pace *pace, double limit, uint32_t in_flight)
{
    uint32_t least = LEAST_LIMIT < pace->most ? LEAST_LIMIT : pace->most;
    pace->settled = clamp(limit, least, pace->most);
    enter_phase(pace, PACE_HOLD, pace->settled, in_flight);
}

/* The first trial is a careful one: where nothing is full it costs a quarter. Then something is, and halves are tried. */
static void try_fewer(struct remote_pace *pace, uint32_t in_flight)
{
    uint32_t fewer = pace->limit == pace->most ? pace->limit * 3 / 4 : pace->limit / 2;
    if (fewer < LEAST_LIMIT)
        settle_limit(pace, pace->limit, in_flight);
    else
        enter_phase(pace, PACE_FEWER, fewer, in_flight);
}

static void decide_limit(struct remote_pace *pace, double per_s, double seconds_each, uint32_t in_flight)
{
    double best = pace->best_per_s;
    pace->best_per_s = per_s > best ? per_s : best;
    switch (pace->phase) {
    case PACE_FIRST:
        if (++pace->n_epochs == FIRST_EPOCHS)
            try_fewer(pace, in_flight);
        break;
    case PACE_FEWER:
        if (per_s >= best * CARRIES_ALL_SHARE)
            try_fewer(pace, in_flight);
        else if (++pace->n_epochs == FEWER_EPOCHS)
            settle_limit(pace, best * seconds_each * HEADROOM_FACTOR, in_flight);
        break;
    case PACE_HOLD:
        if (++pace->n_epochs < HOLD_EPOCHS)
            break;
        pace->best_per_s = per_s;
        if (pace->limit == pace->most)
            try_fewer(pace, in_flight);
        else
            enter_phase(pace, PACE_MORE, clamp(pace->limit * 1.25 + 1, 1, pace->most), in_flight);
        break;
    case PACE_MORE:
        if (per_s > best * WORTH_MORE_FACTOR)
            enter_phase(pace, PACE_FIRST, pace->most, in_flight);
        else
            enter_phase(pace, PACE_HOLD, pace->settled, in_flight);
        break;
    }
}

void remote_pace_add(struct remote_pace *pace, uint64_t now_ns, uint64_t took_ns, uint32_t in_flight)
{
    if (pace->n_stale > 0) {
        pace->n_stale--;
        begin_epoch(pace, now_ns);
        return;
    }
    if (pace->epoch_ns == 0 || in_flight < pace->limit) {
        pace->n_done = pace->busy_ns = 0;
        pace->epoch_ns = pace->epoch_ns ? now_ns : now_ns - took_ns;
        if (in_flight < pace->limit)
            return;
    }
    pace->n_done++;
    pace->busy_ns += took_ns;
    if (pace->n_done < pace->limit || now_ns <= pace->epoch_ns)
        return;
    double per_s = (double)pace->n_done * 1e9 / (double)(now_ns - pace->epoch_ns);
    decide_limit(pace, per_s, (double)pace->busy_ns / (double)pace->n_done / 1e9, in_flight - 1);
    begin_epoch(pace, now_ns);
}
