/* What ticket.c and ticket_group.c share: the struct behind a ticket, and the steps of its way that lead from the one file to
 * the other. Loop thread only. */
#ifndef TICKET_PRIVATE_H
#define TICKET_PRIVATE_H

#include "load/helper_step.h"
#include "load/load.h"
#include "load/pending.h"
#include "load/prepare.h"
#include "load/ticket.h"

/* One request. `prep` is what it will load, `result` what it has got so far, `rank` its place among tickets of the same rank,
 * `waiter` its place among those who wait for one load. The loop thread's; a helper that runs `work` has `prep` meanwhile. */
struct ticket {
    struct loop_work work; /* first */
    struct load_table *table;
    _Atomic enum ticket_state state; /* helpers look whether it is LEAVING */
    const struct ticket_events *events;
    void *data;
    struct pending pending;
    struct ticket_input input;
    struct preparation prep;
    struct {                  /* of its group */
        uint64_t since_ns;    /* when it began to wait */
        struct ticket *first; /* while ECHO: whose result it gets */
        struct ticket *echoes, *next_echo;
    } rank;
    struct load_waiter waiter;
    struct helper_step step;
    struct load_result result;
    uint64_t submitted_ns;
};

void ticket_set_state(struct ticket *ticket, enum ticket_state state); /* aborts on a transition that is not in the table */

/* ticket.c */
void ticket_place_plan(struct ticket *ticket);                    /* on a helper; ticket_go_on() follows */
bool ticket_accept_plan(struct ticket *ticket, uint64_t plan_ns); /* false: there is none, or nobody wants it: it is done */
void ticket_go_on(struct ticket *ticket);
bool ticket_is_there(const struct ticket *ticket); /* a replica, files or a load in flight will do */
bool ticket_use_existing(struct ticket *ticket);   /* false: there is nothing of that kind */
void ticket_wait_for_load(struct ticket *ticket, struct load *load, enum load_origin origin);
void ticket_finish(struct ticket *ticket, const struct error *error); /* NULL: it has what it wanted */

/* ticket_group.c */
bool ticket_enter_group(struct ticket *ticket);                                    /* false: it goes on alone */
void ticket_go_without_group(struct ticket *ticket, const struct reason *problem); /* planned again, as one rank alone */
struct ticket *ticket_take_echo(struct ticket *first);                             /* NULL: it has none */
void ticket_remove_echo(struct ticket *echo);

#endif
