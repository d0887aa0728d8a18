/* The life of loads: sharing, leaving, failing, budgets, replicas. Sources are buffers in this process. */
#include "load.h"
#include "observe/log.h"
#include "source/source_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* last: it has a macro called fail */

enum { TENSOR_BYTES = 8 << 20, BUDGET_BYTES = 47 << 20 };

struct stage {
    struct loop *loop;
    struct load_services services;
    struct load_table *loads;
    int n_done, n_expected;
};

struct client {
    struct stage *stage;
    struct ticket *ticket;
    enum error_code code;
    char message[256];
    struct replica *replica;
    bool from_replica, joined, is_done;
};

/* An artifact "memory:NAME" with one U8 tensor "w" whose bytes are i * 7 + salt. */
static void put_artifact(const char *name, unsigned salt)
{
    char header[128];
    int length = snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", TENSOR_BYTES,
                          TENSOR_BYTES);
    unsigned char *file = calloc(1, 8 + (size_t)length + TENSOR_BYTES);
    assert_non_null(file);
    file[0] = (unsigned char)length;
    memcpy(file + 8, header, (size_t)length);
    for (size_t i = 0; i < TENSOR_BYTES; i++)
        file[8 + (size_t)length + i] = (unsigned char)(i * 7 + salt);
    source_memory_put(name, "model.safetensors", file, 8 + (uint64_t)length + TENSOR_BYTES);
    free(file);
}

static void open_stage(struct stage *stage, uint64_t idle_ttl_ms)
{
    struct error error;
    *stage = (struct stage){.loop = loop_create()};
    struct load_services *services = &stage->services;
    services->loop = stage->loop;
    services->config = config_defaults();
    assert_int_equal(header_cache_create(NULL, 1 << 20, &services->headers, &error), 0);
    services->calibration = calibration_create(NULL);
    services->device = device_host_create(0);
    services->replicas = replica_table_create(stage->loop, BUDGET_BYTES, idle_ttl_ms);
    struct engine_options options = {.loop = stage->loop, .staging_budget_bytes = 8 << 20};
    assert_int_equal(engine_create(&options, &services->engine, &error), 0);
    stage->loads = load_table_create(services);
    put_artifact("m", 1);
}

static void close_stage(struct stage *stage)
{
    load_table_destroy(stage->loads);
    replica_table_destroy(stage->services.replicas);
    engine_destroy(stage->services.engine);
    device_destroy(stage->services.device);
    calibration_destroy(stage->services.calibration);
    header_cache_destroy(stage->services.headers);
    loop_destroy(stage->loop);
    source_memory_clear();
}

static void stop_when_idle(void *data)
{
    struct stage *stage = data;
    if (stage->n_done == stage->n_expected && load_table_idle(stage->loads))
        loop_stop(stage->loop);
}

/* Runs the loop until every client is done and no load is left. */
static void run(struct stage *stage)
{
    struct loop_timer *timer = loop_timer_create(stage->loop, stop_when_idle, stage);
    loop_timer_start(timer, 0, 1);
    loop_run(stage->loop);
    loop_timer_destroy(timer);
}

static void on_planned(void *data, const struct ticket *ticket)
{
    struct client *client = data;
    assert_ptr_equal(ticket, client->ticket);
}

static void on_done(void *data, struct ticket *ticket, const struct error *error)
{
    struct client *client = data;
    assert_false(client->is_done);
    client->is_done = true;
    client->code = error ? error->code : ERROR_OK;
    snprintf(client->message, sizeof client->message, "%s", error ? error->message : "");
    client->replica = ticket->replica;
    client->from_replica = ticket->from_replica;
    client->joined = ticket->joined;
    if (error) {
        ticket_destroy(ticket);
        client->ticket = NULL;
    }
    client->stage->n_done++;
}

static const struct ticket_events events = {.planned = on_planned, .done = on_done};

static void submit(struct stage *stage, struct client *client, const char *artifact)
{
    *client = (struct client){.stage = stage, .ticket = ticket_create(stage->loads)};
    client->ticket->request = (struct load_request){.artifact = artifact, .view = {.whole = true}};
    stage->n_expected++;
    ticket_submit(client->ticket, GOAL_REPLICA, &events, client);
}

static void let_go(struct client *client)
{
    if (client->ticket)
        ticket_destroy(client->ticket);
    client->ticket = NULL;
}

static void assert_bytes(const struct replica *replica, unsigned salt)
{
    const unsigned char *bytes = replica->segment->host_address;
    for (size_t i = 0; i < TENSOR_BYTES; i += 997)
        assert_int_equal(bytes[i], (unsigned char)(i * 7 + salt));
}

static void a_load_becomes_a_replica_and_the_next_request_finds_it(void **state)
{
    struct stage stage;
    struct client first, second;
    (void)state;
    open_stage(&stage, 60000);
    submit(&stage, &first, "memory:m");
    run(&stage);
    assert_int_equal(first.code, ERROR_OK);
    assert_false(first.from_replica);
    assert_bytes(first.replica, 1);
    submit(&stage, &second, "memory:m");
    run(&stage);
    assert_true(second.from_replica);
    assert_ptr_equal(first.replica, second.replica);
    let_go(&first);
    let_go(&second);
    close_stage(&stage);
}

static void identical_requests_in_flight_share_one_load(void **state)
{
    struct stage stage;
    struct client clients[8];
    int n_joined = 0;
    (void)state;
    open_stage(&stage, 60000);
    for (int i = 0; i < 8; i++)
        submit(&stage, &clients[i], "memory:m");
    run(&stage);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(clients[i].code, ERROR_OK);
        assert_ptr_equal(clients[i].replica, clients[0].replica);
        n_joined += clients[i].joined || clients[i].from_replica;
        let_go(&clients[i]);
    }
    assert_int_equal(n_joined, 7);
    assert_true(replica_used_bytes(stage.services.replicas) < 2 * TENSOR_BYTES);
    close_stage(&stage);
}

static void a_client_that_leaves_does_not_hurt_the_others(void **state)
{
    struct stage stage;
    struct client stays, leaves;
    (void)state;
    open_stage(&stage, 60000);
    submit(&stage, &leaves, "memory:m");
    submit(&stage, &stays, "memory:m");
    ticket_cancel(leaves.ticket);
    run(&stage);
    assert_int_equal(leaves.code, ERROR_CANCELLED);
    assert_int_equal(stays.code, ERROR_OK);
    assert_bytes(stays.replica, 1);
    let_go(&stays);
    close_stage(&stage);
}

struct canceller {
    struct client *client;
    struct loop_timer *timer;
};

static void cancel_now(void *data)
{
    struct canceller *canceller = data;
    if (canceller->client->ticket && !canceller->client->is_done)
        ticket_cancel(canceller->client->ticket);
}

static void a_load_that_everybody_left_frees_everything_whenever_they_leave(void **state)
{
    (void)state;
    for (uint64_t delay_ms = 0; delay_ms < 8; delay_ms++) {
        struct stage stage;
        struct client client;
        open_stage(&stage, 0);
        submit(&stage, &client, "memory:m");
        struct canceller canceller = {.client = &client};
        canceller.timer = loop_timer_create(stage.loop, cancel_now, &canceller);
        loop_timer_start(canceller.timer, delay_ms, 0);
        run(&stage);
        assert_true(client.code == ERROR_CANCELLED || client.code == ERROR_OK);
        let_go(&client);
        assert_int_equal(replica_used_bytes(stage.services.replicas), 0);
        loop_timer_destroy(canceller.timer);
        close_stage(&stage);
    }
}

static void idle_time_zero_drops_a_replica_with_its_last_pin(void **state)
{
    struct stage stage;
    struct client client;
    (void)state;
    open_stage(&stage, 0);
    submit(&stage, &client, "memory:m");
    run(&stage);
    assert_true(replica_used_bytes(stage.services.replicas) >= TENSOR_BYTES);
    let_go(&client);
    assert_int_equal(replica_used_bytes(stage.services.replicas), 0);
    close_stage(&stage);
}

static void the_least_recently_used_replica_makes_room(void **state)
{
    struct stage stage;
    struct client client;
    char name[8], reference[16];
    (void)state;
    open_stage(&stage, 60000);
    for (unsigned i = 0; i < 7; i++) { /* 5 of them fit */
        snprintf(name, sizeof name, "a%u", i);
        snprintf(reference, sizeof reference, "memory:a%u", i);
        put_artifact(name, i);
        submit(&stage, &client, reference);
        run(&stage);
        assert_int_equal(client.code, ERROR_OK);
        assert_bytes(client.replica, i);
        let_go(&client);
        assert_true(replica_used_bytes(stage.services.replicas) <= BUDGET_BYTES);
    }
    submit(&stage, &client, "memory:a6");
    run(&stage);
    assert_true(client.from_replica);
    let_go(&client);
    submit(&stage, &client, "memory:a0");
    run(&stage);
    assert_false(client.from_replica);
    let_go(&client);
    close_stage(&stage);
}

static void what_is_held_is_never_evicted_and_the_error_tells_the_numbers(void **state)
{
    struct stage stage;
    struct client held[5], client;
    char name[8];
    static char references[5][16];
    (void)state;
    open_stage(&stage, 60000);
    for (unsigned i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "a%u", i);
        snprintf(references[i], sizeof references[i], "memory:a%u", i);
        put_artifact(name, i);
        submit(&stage, &held[i], references[i]);
        run(&stage);
        assert_int_equal(held[i].code, ERROR_OK);
    }
    submit(&stage, &client, "memory:m");
    run(&stage);
    assert_int_equal(client.code, ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(client.message, "8388608"));
    for (unsigned i = 0; i < 5; i++) {
        assert_bytes(held[i].replica, i);
        let_go(&held[i]);
    }
    submit(&stage, &client, "memory:m");
    run(&stage);
    assert_int_equal(client.code, ERROR_OK);
    let_go(&client);
    close_stage(&stage);
}

static void a_changed_artifact_is_loaded_anew_and_the_old_replica_goes(void **state)
{
    struct stage stage;
    struct client client;
    (void)state;
    open_stage(&stage, 60000);
    submit(&stage, &client, "memory:m");
    run(&stage);
    let_go(&client);
    put_artifact("m", 77);
    submit(&stage, &client, "memory:m");
    run(&stage);
    assert_int_equal(client.code, ERROR_OK);
    assert_false(client.from_replica);
    assert_bytes(client.replica, 77);
    let_go(&client);
    assert_true(replica_used_bytes(stage.services.replicas) < 2 * TENSOR_BYTES);
    close_stage(&stage);
}

static void an_unknown_tensor_fails_before_memory_is_taken(void **state)
{
    struct stage stage;
    struct client client;
    struct view_item item = {.name = "nobody", .name_length = 6};
    (void)state;
    open_stage(&stage, 60000);
    client = (struct client){.stage = &stage, .ticket = ticket_create(stage.loads)};
    client.ticket->request = (struct load_request){.artifact = "memory:m", .view = {.items = &item, .n_items = 1}};
    stage.n_expected++;
    ticket_submit(client.ticket, GOAL_REPLICA, &events, &client);
    run(&stage);
    assert_int_equal(client.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(client.message, "nobody"));
    assert_int_equal(replica_used_bytes(stage.services.replicas), 0);
    close_stage(&stage);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_becomes_a_replica_and_the_next_request_finds_it),
        cmocka_unit_test(identical_requests_in_flight_share_one_load),
        cmocka_unit_test(a_client_that_leaves_does_not_hurt_the_others),
        cmocka_unit_test(a_load_that_everybody_left_frees_everything_whenever_they_leave),
        cmocka_unit_test(idle_time_zero_drops_a_replica_with_its_last_pin),
        cmocka_unit_test(the_least_recently_used_replica_makes_room),
        cmocka_unit_test(what_is_held_is_never_evicted_and_the_error_tells_the_numbers),
        cmocka_unit_test(a_changed_artifact_is_loaded_anew_and_the_old_replica_goes),
        cmocka_unit_test(an_unknown_tensor_fails_before_memory_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
