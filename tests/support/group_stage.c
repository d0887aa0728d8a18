/* See group_stage.h. */
#include "tests/support/group_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* last: it has a macro called fail */

struct group_script group_script;

static int open_scripted(struct transport *transport, struct error *error)
{
    (void)transport;
    if (group_script.while_planning)
        group_script.while_planning();
    return group_script.is_broken ? (fail)(error, ERROR_UNAVAILABLE, "NO_LINK", "there is no link") : 0;
}

static int deliver_scripted(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    if (__atomic_add_fetch(&group_script.n_deliveries, 1, __ATOMIC_ACQ_REL) == 1 && group_script.in_the_middle)
        group_script.in_the_middle();
    if (group_script.before_delivery)
        group_script.before_delivery(delivery);
    if (delivery->rank == group_script.lost_rank)
        return (fail)(error, ERROR_FAILED_PRECONDITION, "DEVICE_OUT_OF_SERVICE", "the device is gone");
    return transport_loopback.deliver(transport, delivery, error);
}

static int flush_scripted(struct transport *transport, struct error *error)
{
    (void)transport;
    return group_script.loses_bytes ? (fail)(error, ERROR_UNAVAILABLE, "LINK_LOST", "the link is gone") : 0;
}

static struct transport_ops scripted = {.name = "nccl",
                                        .caps = {.host_memory = true},
                                        .open = open_scripted,
                                        .deliver = deliver_scripted,
                                        .flush = flush_scripted};

int group_set_up(void **state)
{
    struct group_stage *group = test_calloc(1, sizeof *group);
    struct load_stage *stage = &group->stage;
    stage_open(stage, 0);
    stage->config.engine.collective_transport = COLLECTIVE_TRANSPORT_NCCL;
    struct materialization_strategy *strategy = &stage->config.engine.strategy;
    strategy->enable_owner_file_collective = true;
    strategy->owner_file_collective_min_dedup_saving_bytes = 1;
    strategy->owner_file_collective_batch_bytes = 2 * MIB;
    strategy->owner_file_collective_group_assemble_timeout_ms = 600000;
    for (uint32_t view = 0; view < MAX_RANKS; view++) {
        group->slices[view] = (struct slice){0, (int64_t)group_bytes_of(view)};
        group->items[view] =
            (struct view_item){.name = "w", .name_length = 1, .n_slices = 1, .slices = &group->slices[view]};
    }
    group_script = (struct group_script){.lost_rank = UINT32_MAX};
    scripted.caps.stages_batches = false;
    if (!transport_find(scripted.name))
        transport_register(&scripted);
    *state = group;
    return 0;
}

int group_tear_down(void **state)
{
    struct group_stage *group = *state;
    stage_close(&group->stage);
    test_free(group);
    return 0;
}

struct replica_table *group_stage_batches(struct group_stage *group, uint64_t budget_bytes)
{
    scripted.caps.stages_batches = true;
    group->stage.config.engine.strategy.owner_file_collective_peak_bytes_budget = (uint64_t)1 << 30;
    replica_table_configure(group->stage.host.replicas, &(struct replica_limits){budget_bytes, 0, 10});
    return group->stage.host.replicas;
}

uint64_t group_bytes_of(uint32_t rank)
{
    return STAGE_TENSOR_BYTES - rank * (uint64_t)MIB;
}

void group_prepare(struct group_stage *group, struct stage_client *client, uint32_t view, uint32_t rank, uint32_t world_size,
                   const char *attempt)
{
    stage_client_init(&group->stage, client, "memory:m");
    struct load_request *request = &client->input.request;
    request->view = (struct view_spec){.items = &group->items[view], .n_items = 1};
    request->has_group = true;
    request->group_id = "g";
    request->attempt = attempt;
    request->rank = rank;
    request->world_size = world_size;
    request->source_locality = LOCALITY_SHARED_SOURCE;
}

void group_send(struct group_stage *group, struct stage_client *client, uint32_t rank, uint32_t world_size,
                const char *attempt)
{
    group_prepare(group, client, rank, rank, world_size, attempt);
    stage_submit(client);
}

void group_send_required(struct group_stage *group, struct stage_client *client, uint32_t rank, uint32_t world_size,
                         const char *attempt)
{
    group_prepare(group, client, rank, rank, world_size, attempt);
    client->input.request.collective = COLLECTIVE_REQUIRED;
    stage_submit(client);
}

struct wanted {
    const struct stage_client *client;
    enum ticket_state state;
};

static bool is_in_state(const void *data)
{
    const struct wanted *wanted = data;
    return ticket_state(wanted->client->ticket) == wanted->state;
}

void group_await(struct group_stage *group, const struct stage_client *client, enum ticket_state state)
{
    struct wanted wanted = {client, state};
    stage_run_until(&group->stage, is_in_state, &wanted);
}

void group_assert_loaded(struct stage_client *client, uint32_t rank)
{
    assert_string_equal(client->message, "");
    assert_int_equal(client->code, ERROR_OK);
    assert_true(stage_is_right(client->replica, 1, group_bytes_of(rank)));
    stage_let_go(client);
}

void group_assert_nothing_is_left(const struct group_stage *group)
{
    assert_int_equal(replica_used_bytes(group->stage.host.replicas), 0);
}
