/* What threads did for one load: spans on lanes, one lane for each thread that took part. A picture of bounded size: when it
 * is full, spans of a lane that lie near each other become one, so that it gets coarser and covers the whole load all the
 * same. A span counts the pieces of work in it.
 *
 * Any thread. Counted references: threads of the engine add spans while an answer is made of those there are. */
#ifndef OBSERVE_LANES_H
#define OBSERVE_LANES_H

#include <stddef.h>
#include <stdint.h>

enum { LANES_MAX = 160, LANES_MAX_SPANS = 512 };

enum span_kind { SPAN_SETUP, SPAN_BLOCKS, SPAN_ENDING, SPAN_KINDS };
extern const char *const span_names[SPAN_KINDS]; /* "set up", "blocks", "end" */

enum lane_crew { LANE_WORKER, LANE_STORE };

struct lane_span {
    uint64_t begin_ns, end_ns;   /* clock_now_ns() */
    uint64_t bytes;              /* that came into place */
    uint32_t read_us, memory_us; /* of the time between: in reads, and until there was memory; the rest are copies */
    uint32_t n_items;            /* blocks in it */
    uint16_t lane;               /* index; lanes_add() fills it in */
    uint8_t kind;
};

struct lane {
    uint16_t crew, number; /* "worker 3", "store 12" */
    uint16_t last;         /* index of its newest span */
};

struct lanes;

struct lanes *lanes_create(void);
struct lanes *lanes_ref(struct lanes *lanes);
void lanes_unref(struct lanes *lanes); /* accepts NULL */

/* In the order in which a lane's spans end. Of a thread for which there is no lane left the span is only counted. */
void lanes_add(struct lanes *lanes, enum lane_crew crew, uint16_t number, const struct lane_span *span);

struct lanes_copy { /* lanes_copy_free() */
    struct lane *lanes;
    struct lane_span *spans; /* of each lane in order */
    size_t n_lanes, n_spans;
    uint64_t n_left_out; /* spans without a lane */
};
struct lanes_copy lanes_copy(struct lanes *lanes); /* of NULL: empty */
void lanes_copy_free(struct lanes_copy *copy);

#endif
