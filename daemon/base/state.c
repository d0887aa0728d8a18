#include "base/state.h"

#include <stdio.h>
#include <stdlib.h>

void (*state_observer)(const struct state_machine *machine, unsigned from, unsigned to);

void state_check(const struct state_machine *machine, unsigned from, unsigned to)
{
    if (!(machine->next[from] & STATE_BIT(to))) {
        fprintf(stderr, "a %s cannot go from %s to %s\n", machine->name, machine->states[from], machine->states[to]);
        abort();
    }
    if (state_observer)
        state_observer(machine, from, to);
}
