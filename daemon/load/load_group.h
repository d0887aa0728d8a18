/* What the ranks of a group do differently from a load alone.
 *
 *   planned, wants the collective
 *        |
 *     ASSEMBLING ---- timeout, too late, a rank declines ----> planned again, without the group
 *        |  every rank is here
 *     joint plan (helper): what all ranks' views need, read once
 *        |
 *        +-- refused by a threshold ----> each rank as its own plan says
 *        +-- no memory for one rank ----> that one fails, the others are planned again, without the group
 *        +-- all runs start together; when the last one is done, every load commits
 *                +-- bytes are lost between them ----> who is not done is planned again, without the group
 *
 * Ranks with the same view share one load. A request that is in a group and comes again, because its client has retried, is
 * an echo: it waits for what becomes of the first one. Loop thread only. */
#ifndef LOAD_GROUP_H
#define LOAD_GROUP_H

#include <stdbool.h>

struct load;
struct load_table;
struct reason;
struct ticket_internal;

void load_group_create_table(struct load_table *table);
void load_group_destroy_table(struct load_table *table);

/* The request names a group and nothing in policy or strategy speaks against it. */
bool load_group_is_wanted(const struct ticket_internal *internal);
/* After a plan was made: true when the ticket is taken care of, false when it goes on alone. */
bool load_group_enter(struct ticket_internal *internal);
void load_group_release(struct ticket_internal *internal);                      /* the ticket ends */
struct ticket_internal *load_group_take_echo(struct ticket_internal *internal); /* NULL when there is none left */
void load_group_drop_echo(struct ticket_internal *internal);                    /* if it is one */
/* It is planned again, as one rank alone; so are its echoes. */
void load_group_go_without(struct ticket_internal *internal, const struct reason *problem);

#endif
