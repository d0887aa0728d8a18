/* A hand-off socket whose answers a test scripts, and that counts the leases it holds. One thread serves all. */
#ifndef TESTS_SUPPORT_FAKE_HANDOFF_H
#define TESTS_SUPPORT_FAKE_HANDOFF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "handoff_wire.h"

enum fake_mood { FAKE_ANSWERS, FAKE_CLOSES, FAKE_STAYS_SILENT, FAKE_CUTS_SHORT };

struct fake_handoff {
    char path[96];
    enum fake_mood mood;
    struct handoff_answer answer; /* as it goes out; fake_handoff_start() fills a sound one */
    size_t n_descriptors;         /* really sent */
    size_t n_messages;            /* with the same answer and as many descriptors each */
    int memory_fd;
    unsigned char token[HANDOFF_TOKEN_BYTES]; /* the last one received */
    atomic_int leases, n_offers;              /* each is taken; its token begins with its number */
    int listen_fd, stop_pipe[2];
    pthread_t thread;
};

/* Offers a memfd with `bytes` of content. */
void fake_handoff_start(struct fake_handoff *fake, const char *folder, const void *content, size_t bytes);
void fake_handoff_stop(struct fake_handoff *fake);

#endif
