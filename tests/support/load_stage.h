/* A daemon's loads without its sockets: tickets, replicas and groups on a loop, with buffers of this process as sources.
 * One thread (the loop's) calls everything. */
#ifndef SUPPORT_LOAD_STAGE_H
#define SUPPORT_LOAD_STAGE_H

#include "load/load_services.h"
#include "load/ticket.h"

enum { STAGE_TENSOR_BYTES = 8 << 20, STAGE_BUDGET_BYTES = 47 << 20 };

struct load_stage {
    struct loop *loop;
    struct config config; /* the defaults; change it before the ticket that is to follow it */
    struct load_services services;
    struct load_target host;
    struct load_table *loads;
    int n_done, n_expected;
};

struct stage_client {
    struct load_stage *stage;
    struct ticket_input input; /* the request; may be changed before stage_submit() */
    struct ticket *ticket;     /* NULL before it was submitted, and once it failed or let go */
    enum error_code code;
    char message[512];
    struct replica *replica;
    bool from_replica, joined, is_done;
};

/* With the artifact "memory:m", whose salt is 1. */
void stage_open(struct load_stage *stage, uint64_t idle_ttl_ms);
void stage_close(struct load_stage *stage);

/* An artifact "memory:NAME" with one U8 tensor "w" whose bytes are i * 7 + salt. Any thread. */
void stage_put_artifact(const char *name, unsigned salt);

/* A client with the defaults; the request may be changed before stage_submit(). */
void stage_client_init(struct load_stage *stage, struct stage_client *client, const char *artifact);
void stage_submit(struct stage_client *client);
void stage_run(struct load_stage *stage); /* until every client is done and no load is left */
void stage_run_until(struct load_stage *stage, bool (*is_so)(const void *data), const void *data);
void stage_let_go(struct stage_client *client);

/* The first n_bytes of "w" are in the replica. */
bool stage_is_right(const struct replica *replica, unsigned salt, uint64_t n_bytes);

#endif
