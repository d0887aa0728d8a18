/* Groups on a load_stage: ranks whose views overlap, and a transport "nccl" that copies and does what a test has written
 * into its script. It lets a test act when the first bytes are on their way between ranks: then the group is in the middle
 * of its run, whatever the clock says. */
#ifndef SUPPORT_GROUP_STAGE_H
#define SUPPORT_GROUP_STAGE_H

#include "tests/support/load_stage.h"
#include "device/transport.h"

enum { MIB = 1 << 20, MAX_RANKS = 8 };

struct group_script {
    void (*while_planning)(void); /* on the helper that opens the transport; the loop waits */
    void (*in_the_middle)(void);  /* once, on a worker, before the first delivery */
    void (*before_delivery)(const struct transport_delivery *delivery); /* on workers */
    uint64_t n_deliveries;                                              /* atomic */
    bool is_broken;                                                     /* cannot be opened */
    bool loses_bytes;                                                   /* every flush fails */
    uint32_t lost_rank; /* whose device is out of service; UINT32_MAX = none */
};
extern struct group_script group_script;

struct group_stage {
    struct load_stage stage;
    struct slice slices[MAX_RANKS]; /* of each rank's view; helpers read them */
    struct view_item items[MAX_RANKS];
};

/* The script is empty, collective loads are wanted, the transport is "nccl", and ranks wait for ever. For
 * cmocka: *state is a group_stage. */
int group_set_up(void **state);
int group_tear_down(void **state);
/* The transport stages, in host memory in place of two devices, which has this budget. */
struct replica_table *group_stage_batches(struct group_stage *group, uint64_t budget_bytes);

/* Of "memory:m": every rank wants 1 MiB less than the one before, so all have memory of their own and share nearly
 * everything. */
uint64_t group_bytes_of(uint32_t rank);
/* A rank's request, with the view of another one; may be changed before stage_submit(). */
void group_prepare(struct group_stage *group, struct stage_client *client, uint32_t view, uint32_t rank, uint32_t world_size,
                   const char *attempt);
void group_send(struct group_stage *group, struct stage_client *client, uint32_t rank, uint32_t world_size,
                const char *attempt);
/* It insists on its group. */
void group_send_required(struct group_stage *group, struct stage_client *client, uint32_t rank, uint32_t world_size,
                         const char *attempt);
/* Runs the loop until the client's ticket is in that state. */
void group_await(struct group_stage *group, const struct stage_client *client, enum ticket_state state);
/* It has what the rank wants; then it is let go. */
void group_assert_loaded(struct stage_client *client, uint32_t rank);
void group_assert_nothing_is_left(const struct group_stage *group);

#endif
