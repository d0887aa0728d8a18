/* A user is listed only while it has runs. Both lists turn while they are looked through: what was asked is last. A list of
 * zeros is an empty one, since the first element comes by TAILQ_INSERT_HEAD(). */
#include "execute/turns.h"

#include <stdlib.h>

#include "base/memory.h"
#include "execute/engine_private.h"

struct turn { /* a user's */
    TAILQ_ENTRY(turn) in_engine;
    uint32_t uid;
    TAILQ_HEAD(run_list, run) runs; /* the next one to serve is first */
};

static struct turn *find_turn(const struct engine *engine, uint32_t uid)
{
    struct turn *turn = TAILQ_FIRST(&engine->turns);
    while (turn && turn->uid != uid)
        turn = TAILQ_NEXT(turn, in_engine);
    return turn;
}

void turns_add(struct run *run)
{
    struct turn *turn = find_turn(run->engine, run->options.uid);
    if (!turn) {
        turn = memory_alloc(sizeof *turn);
        turn->uid = run->options.uid;
        TAILQ_INSERT_HEAD(&run->engine->turns, turn, in_engine);
    }
    TAILQ_INSERT_HEAD(&turn->runs, run, in_turn);
}

void turns_remove(struct run *run)
{
    if (!run->in_turn.tqe_prev)
        return;
    struct turn *turn = find_turn(run->engine, run->options.uid);
    TAILQ_REMOVE(&turn->runs, run, in_turn);
    run->in_turn.tqe_prev = NULL;
    if (!TAILQ_EMPTY(&turn->runs))
        return;
    TAILQ_REMOVE(&run->engine->turns, turn, in_engine);
    free(turn);
}

bool turns_take(struct engine *engine, bool (*take)(struct run *run, struct worker *worker), struct worker *worker)
{
    if (TAILQ_EMPTY(&engine->turns))
        return false;
    struct turn *turn, *last_turn = TAILQ_LAST(&engine->turns, turn_list);
    do {
        turn = TAILQ_FIRST(&engine->turns);
        TAILQ_REMOVE(&engine->turns, turn, in_engine);
        TAILQ_INSERT_TAIL(&engine->turns, turn, in_engine);
        struct run *run, *last_run = TAILQ_LAST(&turn->runs, run_list);
        do {
            run = TAILQ_FIRST(&turn->runs);
            TAILQ_REMOVE(&turn->runs, run, in_turn);
            TAILQ_INSERT_TAIL(&turn->runs, run, in_turn);
            if (take(run, worker))
                return true;
        } while (run != last_run);
    } while (turn != last_turn);
    return false;
}
