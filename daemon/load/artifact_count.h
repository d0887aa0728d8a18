/* How often each artifact was loaded: in bounded memory, exact for those that are loaded often. Loop thread. */
#ifndef LOAD_ARTIFACT_COUNT_H
#define LOAD_ARTIFACT_COUNT_H

#include <stddef.h>
#include <stdint.h>

enum {
    ARTIFACT_COUNT_ROWS = 1024,       /* artifacts that are told apart; a new one takes the place of the least loaded */
    ARTIFACT_COUNT_NAME_BYTES = 1024, /* a longer name is not told apart from others */
    ARTIFACT_COUNT_BUSIEST = 50,
};

struct artifact_counts {
    struct artifact_busy {
        const char *reference; /* borrowed */
        uint64_t loads;
    } busiest[ARTIFACT_COUNT_BUSIEST]; /* the most loaded first, then the oldest */
    size_t n;
    uint64_t other; /* loads of all other artifacts */
};

void artifact_count_add(const char *reference);
struct artifact_counts artifact_count_get(void); /* until the next add */
void artifact_count_reset(void);                 /* at the end of the process */

#endif
