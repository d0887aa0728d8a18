/* See load_stage.h. */
#include "tests/support/load_stage.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "execute/calibration.h"
#include "execute/engine.h"
#include "resolve/header_cache.h"
#include "tests/support/source_memory.h"

void stage_put_artifact(const char *name, unsigned salt)
{
    char header[128];
    int length = snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                          STAGE_TENSOR_BYTES, STAGE_TENSOR_BYTES);
    unsigned char *file = memory_alloc(8 + (size_t)length + STAGE_TENSOR_BYTES);
    file[0] = (unsigned char)length;
    memcpy(file + 8, header, (size_t)length);
    unsigned char *bytes = file + 8 + length;
    for (size_t i = 0; i < 256; i++) /* the values begin again here */
        bytes[i] = (unsigned char)(i * 7 + salt);
    for (size_t n = 256; n < STAGE_TENSOR_BYTES; n *= 2)
        memcpy(bytes + n, bytes, n);
    source_memory_put(name, "model.safetensors", file, 8 + (uint64_t)length + STAGE_TENSOR_BYTES);
    free(file);
}

void stage_open(struct load_stage *stage, uint64_t idle_ttl_ms)
{
    struct error error;
    *stage = (struct load_stage){.loop = loop_create(), .config = *config_defaults()};
    struct load_services *services = &stage->services;
    services->loop = stage->loop;
    services->config = &stage->config;
    int failed = header_cache_create(NULL, 1 << 20, &services->headers, &error);
    stage->config.memory.replica_idle_ttl_ms = idle_ttl_ms;
    stage->config.memory.staging_budget_bytes = 8 << 20;
    failed |= load_services_open(services, &(struct load_room){.host_budget_bytes = STAGE_BUDGET_BYTES}, &error);
    assert(!failed);
    stage->host = services->targets->list[LOAD_TARGET_HOST];
    (void)failed;
    stage->loads = load_table_create(services);
    stage_put_artifact("m", 1);
}

void stage_close(struct load_stage *stage)
{
    load_table_destroy(stage->loads);
    load_services_close(&stage->services);
    header_cache_destroy(stage->services.headers);
    loop_destroy(stage->loop);
    source_memory_clear();
}

struct wish {
    struct loop *loop;
    bool (*is_so)(const void *data);
    const void *data;
};

static void stop_when_so(void *data)
{
    const struct wish *wish = data;
    if (wish->is_so(wish->data))
        loop_stop(wish->loop);
}

void stage_run_until(struct load_stage *stage, bool (*is_so)(const void *data), const void *data)
{
    struct wish wish = {stage->loop, is_so, data};
    struct loop_timer *timer = loop_timer_create(stage->loop, stop_when_so, &wish);
    loop_timer_start(timer, 0, 1);
    loop_run(stage->loop);
    loop_timer_destroy(timer);
}

static bool is_idle(const void *data)
{
    const struct load_stage *stage = data;
    return stage->n_done == stage->n_expected && load_table_idle(stage->loads);
}

void stage_run(struct load_stage *stage)
{
    stage_run_until(stage, is_idle, stage);
}

static void on_planned(void *data, const struct load_result *result)
{
    struct stage_client *client = data;
    assert(result == ticket_result(client->ticket));
    (void)client;
    (void)result;
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct stage_client *client = data;
    assert(!client->is_done);
    client->is_done = true;
    client->code = error ? error->code : ERROR_OK;
    snprintf(client->message, sizeof client->message, "%s", error ? error->message : "");
    client->replica = result->replica;
    client->from_replica = result->origin == LOAD_FROM_REPLICA;
    client->joined = result->origin == LOAD_JOINED;
    if (error) {
        ticket_destroy(client->ticket);
        client->ticket = NULL;
    }
    client->stage->n_done++;
}

void stage_client_init(struct load_stage *stage, struct stage_client *client, const char *artifact)
{
    *client = (struct stage_client){.stage = stage,
                                    .input = {.uid = getuid(), .request = {.artifact = artifact, .view = {.whole = true}}}};
}

void stage_submit(struct stage_client *client)
{
    static const struct ticket_events events = {.planned = on_planned, .done = on_done};
    client->stage->n_expected++;
    client->ticket = ticket_create(client->stage->loads, &client->input);
    ticket_submit(client->ticket, GOAL_REPLICA, &events, client);
}

void stage_let_go(struct stage_client *client)
{
    if (client->ticket)
        ticket_destroy(client->ticket);
    client->ticket = NULL;
}

bool stage_is_right(const struct replica *replica, unsigned salt, uint64_t n_bytes)
{
    const unsigned char *bytes = replica->segment->host_address;
    for (size_t i = 0; i < n_bytes; i += 997)
        if (bytes[i] != (unsigned char)(i * 7 + salt))
            return false;
    return true;
}
