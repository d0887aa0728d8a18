/* See transitions.h. */
#include "tests/support/transitions.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

enum { MAX_MACHINES = 32, MAX_STATES = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* states of the engine change on its workers */
static struct {
    const struct state_machine *machine;
    uint32_t taken[MAX_STATES]; /* by state: the bits of those that followed */
} notes[MAX_MACHINES];

static struct {
    const struct state_machine *machine;
    unsigned to;
    struct loop *loop;
    struct loop_task *task; /* NULL = none is to be posted */
} wish;

static uint32_t *notes_of(const struct state_machine *machine)
{
    for (size_t i = 0; i < MAX_MACHINES; i++) {
        if (!notes[i].machine)
            notes[i].machine = machine;
        if (notes[i].machine == machine)
            return notes[i].taken;
    }
    assert(!"more machines than expected");
    return NULL;
}

static void note_transition(const struct state_machine *machine, unsigned from, unsigned to)
{
    pthread_mutex_lock(&lock);
    bool is_wished = wish.task && wish.machine == machine && wish.to == to;
    struct loop_task *task = is_wished ? wish.task : NULL;
    notes_of(machine)[from] |= STATE_BIT(to);
    if (is_wished)
        wish.task = NULL;
    pthread_mutex_unlock(&lock);
    if (is_wished)
        loop_post(wish.loop, task);
}

void transitions_watch(void)
{
    state_observer = note_transition;
}

bool transitions_all_taken(const struct state_machine *machine)
{
    const uint32_t *taken = notes_of(machine);
    bool all = true;
    for (unsigned from = 0; from < machine->n_rows; from++) {
        for (unsigned to = 0; to < machine->n_rows; to++) {
            if (!(machine->rows[from].next & STATE_BIT(to)) || taken[from] & STATE_BIT(to))
                continue;
            fprintf(stderr, "no %s went from %s to %s\n", machine->name, machine->rows[from].name, machine->rows[to].name);
            all = false;
        }
    }
    return all;
}

bool transitions_was_taken(const struct state_machine *machine, unsigned from, unsigned to)
{
    return notes_of(machine)[from] & STATE_BIT(to);
}

void transitions_post_at(const struct state_machine *machine, unsigned to, struct loop *loop, struct loop_task *task)
{
    pthread_mutex_lock(&lock);
    wish.machine = machine;
    wish.to = to;
    wish.loop = loop;
    wish.task = task;
    pthread_mutex_unlock(&lock);
}
