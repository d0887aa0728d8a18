#include "base/state.h"

#include <stdio.h>
#include <stdlib.h>

void (*state_observer)(const struct state_machine *machine, unsigned from, unsigned to);

void state_check(const struct state_machine *machine, unsigned from, unsigned to)
{
    const struct state_row *rows = machine->rows;
    if (!(rows[from].next & STATE_BIT(to))) {
        fprintf(stderr, "a %s cannot go from %s to %s\n", machine->name, rows[from].name, rows[to].name);
        abort();
    }
    if (state_observer)
        state_observer(machine, from, to);
}
