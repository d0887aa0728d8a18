/* Whether a view had better be handed out as the files' own pages than be copied: for who leaves that to the daemon. Pure. */
#ifndef PLAN_MAPPED_CHOICE_H
#define PLAN_MAPPED_CHOICE_H

#include <stdbool.h>

#include "base/arena.h"
#include "plan/cost.h"
#include "resolve/mapping.h"
#include "source/source.h"

struct mapped_facts {
    bool is_possible;
    enum immutability proof; /* when it is possible: the weakest of the files', by nothing when there are none */
    const char *reason;      /* else why not, naming a file or a tensor */
};

struct mapped_choice {
    bool is_known; /* there were facts; else nothing of the rest means anything */
    bool is_possible;
    enum immutability proof;
    const char *reason;  /* NULL when possible */
    double estimated_ms; /* when possible: until every page was touched, as nothing is read before */
    bool is_quicker;     /* than copying */
};

/* facts NULL = nobody asked. copied_ms: what the plan estimates for copying. The reason is copied to the arena. */
struct mapped_choice mapped_choose(const struct mapping *mapping, const struct mapped_facts *facts,
                                   const struct cost_constants *costs, double cached_share, double copied_ms,
                                   struct arena *arena);

#endif
