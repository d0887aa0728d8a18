/* Gives large memory back to the kernel on a thread of its own: 5 ms per GiB, during which who drops a replica, the loop,
 * would do nothing else. Memory that is to take its place is not backed before that is done (host_freer_wait()), so the host
 * never has both. Reserved huge pages go back at once, since the next load has to find them when it is set up. Any thread.
 */
#ifndef DEVICE_HOST_FREER_H
#define DEVICE_HOST_FREER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct host_memory;

struct host_freer {
    pthread_mutex_t lock; /* for all of it */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping;
    struct host_memory *first, **last;
    uint64_t n_given, n_freed; /* atomic to read */
};

void host_freer_init(struct host_freer *freer);
void host_freer_fini(struct host_freer *freer);                             /* when everything is freed */
void host_freer_give(struct host_freer *freer, struct host_memory *memory); /* takes it */
uint64_t host_freer_now(const struct host_freer *freer);                    /* to wait for what was given so far */
void host_freer_wait(struct host_freer *freer, uint64_t until);

#endif
