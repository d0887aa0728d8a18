/* What a request waits for: a server's answer or the next try, its turn, other ranks. For the client that asked for it, who
 * else sees nothing move and cannot tell why.
 *
 * Whose waits they are is a property of the thread, as with memory (base/metadata.h): a thread that works for a request enters its
 * note, and code below that blocks says why, without naming the request. Without a note nothing is said. The text is of bounded length
 * and nothing is allocated; it is shown to the user, so that no secret may be in it. */
#ifndef BASE_WAITING_H
#define BASE_WAITING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WAITING_CHARS = 160,
    WAITING_TEXT_CHARS = WAITING_CHARS + 40,
    WAITING_SHOWN_MS = 500 /* shorter waits are not shown */
};

struct waiting {
    pthread_mutex_t lock;
    unsigned n_waits;            /* that go on; the text is of the last one that began */
    uint64_t since_ns, until_ns; /* since there was none; until: of the next try, 0 = unknown */
    char text[WAITING_CHARS];
    void (*tell)(struct waiting *waiting, const char *text, uint64_t until_ns); /* instead; text NULL: one ended */
    struct waiting *follows;                                                    /* that of a helper which works for it */
};

void waiting_init(struct waiting *waiting);
void waiting_fini(struct waiting *waiting);

/* Of this thread. Returns the one before, to be entered again when the work is done. NULL = nothing is told. */
struct waiting *waiting_enter(struct waiting *waiting);
struct waiting *waiting_current(void);

/* Around a wait. text: "https://host to answer"; until_ns: of the try that it ends with, as clock_now_ns(), or 0. Any thread;
 * accept NULL. */
void waiting_begin(struct waiting *waiting, const char *text, uint64_t until_ns);
void waiting_end(struct waiting *waiting);

/* What another one waits for is what this one waits for, until it follows NULL. Not in a ring. */
void waiting_follow(struct waiting *waiting, struct waiting *other); /* accepts NULL */

/* "https://host: the server answered 503, try 4 of 8 in 4 s". False: it waits for nothing, or not for long. Any thread. */
bool waiting_read(struct waiting *waiting, char text[WAITING_TEXT_CHARS]);

#endif
