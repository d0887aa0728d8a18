/* Both rings are circular and doubly linked; a user is there only while it has runs. */
#include "execute/turns.h"

#include <stdlib.h>

#include "base/memory.h"
#include "execute/engine_private.h"

struct turn { /* a user's */
    struct turn *next, *previous;
    uint32_t uid;
    struct run *runs; /* circular; the next one to serve */
};

static struct turn *find_turn(const struct engine *engine, uint32_t uid)
{
    struct turn *turn = engine->turns;
    for (; turn && turn->uid != uid; turn = turn->next == engine->turns ? NULL : turn->next)
        ;
    return turn;
}

static struct turn *add_turn(struct engine *engine, uint32_t uid)
{
    struct turn *turn = memory_alloc(sizeof *turn), *first = engine->turns ? engine->turns : turn;
    turn->uid = uid;
    turn->next = first;
    turn->previous = first == turn ? turn : first->previous;
    turn->previous->next = turn;
    first->previous = turn;
    engine->turns = turn;
    return turn;
}

static void remove_turn(struct engine *engine, struct turn *turn)
{
    turn->next->previous = turn->previous;
    turn->previous->next = turn->next;
    if (engine->turns == turn)
        engine->turns = turn->next == turn ? NULL : turn->next;
    free(turn);
}

void turns_add(struct run *run)
{
    struct turn *turn = find_turn(run->engine, run->options.uid);
    turn = turn ? turn : add_turn(run->engine, run->options.uid);
    struct run *first = turn->runs ? turn->runs : run;
    run->turn.next = first;
    run->turn.previous = first == run ? run : first->turn.previous;
    run->turn.previous->turn.next = run;
    first->turn.previous = run;
    turn->runs = run;
}

void turns_remove(struct run *run)
{
    if (!run->turn.next)
        return;
    struct turn *turn = find_turn(run->engine, run->options.uid);
    run->turn.next->turn.previous = run->turn.previous;
    run->turn.previous->turn.next = run->turn.next;
    if (turn->runs == run)
        turn->runs = run->turn.next == run ? NULL : run->turn.next;
    run->turn = (struct run_turn){0};
    if (!turn->runs)
        remove_turn(run->engine, turn);
}

static bool take_of(struct turn *turn, bool (*take)(struct run *run, struct worker *worker), struct worker *worker)
{
    struct run *run = turn->runs, *first = run;
    while (run) {
        if (take(run, worker)) {
            turn->runs = run->turn.next;
            return true;
        }
        run = run->turn.next == first ? NULL : run->turn.next;
    }
    return false;
}

bool turns_take(struct engine *engine, bool (*take)(struct run *run, struct worker *worker), struct worker *worker)
{
    struct turn *turn = engine->turns, *first = turn;
    while (turn) {
        if (take_of(turn, take, worker)) {
            engine->turns = turn->next;
            return true;
        }
        turn = turn->next == first ? NULL : turn->next;
    }
    return false;
}
