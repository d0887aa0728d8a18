/* A hand-off socket with one replica, whose loop runs in a thread of its own; and the client, by hand. Test thread. */
#ifndef TESTS_SUPPORT_HANDOFF_STAGE_H
#define TESTS_SUPPORT_HANDOFF_STAGE_H

#include <pthread.h>

#include "replica/handoff.h"

enum { SILENT_CAP = 4, ANSWER_MS = 60000 };

struct handoff_stage {
    char folder[32], path[64];
    struct loop *loop;
    struct device *device;
    struct replica_table *replicas;
    struct replica *replica;
    struct handoff *handoff;
    struct quota *quota;
    pthread_t thread;
};

struct handoff_question { /* one question to the loop thread */
    struct loop_task task;
    struct handoff_stage *stage;
    void (*ask)(struct handoff_question *request);
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_answered;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    uint64_t connection, number, last_ns;
    bool is_sorted;
    uid_t uid;
    struct device_region *region; /* taken; NULL = there is none, for this reason */
    char reason[sizeof((struct error *)NULL)->reason];
    enum error_code code;
};

void handoff_stage_ask(struct handoff_stage *stage, struct handoff_question *request,
                       void (*question)(struct handoff_question *request));
void handoff_stage_grant(struct handoff_question *request);
uint64_t handoff_stage_leases(struct handoff_stage *stage);
/* Leases change when the loop sees the hang-up: waits for it, but not for ever. */
void handoff_stage_await_leases(struct handoff_stage *stage, uint64_t expected);
/* A replica without a load: one page that begins with "weights". */
void make_replica(struct handoff_stage *stage);
int handoff_stage_open(void **state);
int handoff_stage_close(void **state);
int handoff_stage_connect(const struct handoff_stage *stage);
/* Receives one answer; returns the descriptor, or -1 when the connection was closed instead. */
int handoff_stage_receive(int fd, struct handoff_answer *answer);
struct handoff_question handoff_stage_token(struct handoff_stage *stage, uint64_t connection, uid_t uid);
struct handoff_region handoff_stage_offer(uint32_t kind);
/* On a new connection, with that many copies of a descriptor. */
int handoff_stage_send(const struct handoff_stage *stage, const void *text, size_t bytes, const int *fds, size_t n_fds);
/* What comes next on the connection: 0 = it was closed. */
ssize_t handoff_stage_next_message(int fd, void *to, size_t bytes);
/* Descriptors of clients are closed on other threads, those of the test before this one, too. */
void handoff_stage_await_closing(void);
#define STAGED(test) cmocka_unit_test_setup_teardown(test, handoff_stage_open, handoff_stage_close)

#endif
