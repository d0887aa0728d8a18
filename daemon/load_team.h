/* A team: the tickets of a group that is complete. They are planned jointly, run as one collective, and commit together.
 * Loop thread only. */
#ifndef LOAD_TEAM_H
#define LOAD_TEAM_H

#include "group.h"

struct load;
struct load_table;
struct team;

/* Every rank is here. What may not take part goes its own way; the others start together. */
void load_team_gather(struct load_table *table, struct group *group);
void load_team_run_done(struct load *load);      /* load->team is not NULL */
void load_team_load_finished(struct team *team); /* one of its loads; its transport is closed when the last one is */

#endif
