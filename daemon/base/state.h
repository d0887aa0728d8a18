/* State machines: an enum, and a table with a row for each state, its name and the states that may follow it. The code that
 * owns a state has one setter for it, which asks state_check() first; a transition that the table lacks is a bug and aborts. */
#ifndef BASE_STATE_H
#define BASE_STATE_H

#include <stddef.h>
#include <stdint.h>

struct state_row {
    const char *name;
    uint32_t next; /* STATE_BIT() of each that may follow; 0 = none, it is the last */
};

struct state_machine {
    const char *name; /* "ticket" */
    const struct state_row *rows;
    size_t n_rows;
};

#define STATE_BIT(state) ((uint32_t)1 << (state))

/* Aborts, naming both states, unless `to` may follow `from`. */
void state_check(const struct state_machine *machine, unsigned from, unsigned to);

/* For tests: is told of every transition that was allowed, before it happens. NULL = none is told. */
extern void (*state_observer)(const struct state_machine *machine, unsigned from, unsigned to);

#endif
