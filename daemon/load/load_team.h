/* A team: the tickets of a group that is complete. They are planned jointly, run as one collective, and commit together.
 * Loop thread only. */
#ifndef LOAD_TEAM_H
#define LOAD_TEAM_H

#include <stdbool.h>

#include "load/group.h"

struct load;
struct load_table;
struct team;
struct ticket_internal;

/* Every rank is here. What may not take part goes its own way; the others start together. */
void load_team_gather(struct load_table *table, struct group *group);
void load_team_run_done(struct load *load); /* load->team is not NULL */
/* A failed load may have lost nothing but what was on its way between the ranks: then the ticket, unless it insists on the
 * group, is planned again without. False: the load's error is the ticket's. */
bool load_team_go_without(struct load *load, struct ticket_internal *internal);
void load_team_load_finished(struct team *team); /* one of its loads; its transport is closed when the last one is */

#endif
