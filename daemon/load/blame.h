/* Why a request took as long as it did, out of its trace: the chain from request to answer, what it waited for, and what would
 * have made it quicker. Pure; borrows the trace. */
#ifndef LOAD_BLAME_H
#define LOAD_BLAME_H

#include "load/trace.h"

enum {
    BLAME_MAX_LINKS = TRACE_MAX_STAGES + 2 * CAUSES, /* a run takes as many links as it has causes */
    BLAME_MAX_ADVICE = 6,
    BLAME_TEXT_CHARS = 320
};

struct blame_link {
    enum cause cause;
    uint64_t start_ns, ns; /* start: since the request */
};

/* In order, without gaps or overlaps; neighbours of one cause are one link. A run's causes lie one behind the other, each with
 * its share, in the order of the enum: while it runs, they alternate. Returns the number of links. */
size_t blame_chain(const struct trace *trace, struct blame_link links[BLAME_MAX_LINKS]);
/* The same by cause: adds up to the trace's time. */
void blame_waited(const struct trace *trace, uint64_t waited_ns[CAUSES]);
enum cause blame_largest(const struct trace *trace);

/* What there was of it, for people; "" when there is nothing to say. */
void blame_detail(const struct trace *trace, const struct blame_link *link, char text[BLAME_TEXT_CHARS]);
/* The most helpful first. Nothing of a request that read nothing, or was quick. Returns the number of texts. */
size_t blame_advise(const struct trace *trace, char texts[BLAME_MAX_ADVICE][BLAME_TEXT_CHARS]);

#endif
