/* T6 and T7: the NCCL transport of the plugin by itself: `nccl PLUGIN_FOLDER N_GPUS`. An owner without a GPU and one on each
 * GPU have a piece for every rank that is not the owner's own; each has to arrive byte by byte. One GPU is a communicator of
 * one rank that sends to itself; with several, every link is used both ways, and by broadcasts. Three rounds, since the
 * first one pays for contexts; GPU memory has to be given back. In between communicators are aborted while they are made.
 * Prints one line; exit 0 when all of it is so, 77 when there are not so many GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "plugins/cuda/cuda_private.h"
#include "device/transport.h"

#define MIB ((uint64_t)1 << 20)
#define PIECE_BYTES (64 * MIB + 4097)
#define STAGING_LIMIT (8 * (uint64_t)TRANSPORT_STAGING_UNIT)

enum { MAX_GPUS = 16, N_ROUNDS = 3, UNFIT = 77 };

static struct device_plugins plugins;
static struct device *devices[MAX_GPUS + 1]; /* by rank; rank 0 has none */
static struct segment *segments[MAX_GPUS + 1];
static unsigned char *pieces[MAX_GPUS + 1], *got;
static uint32_t world;

static void must(int is_right, const struct error *error, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "nccl: %s: %s\n", what, error ? error->message : "it is not so");
    exit(1);
}

static size_t free_bytes(void)
{
    size_t now = 0, all;
    must(cudaSetDevice(0) == cudaSuccess && cudaMemGetInfo(&now, &all) == cudaSuccess, NULL, "asking for free memory");
    return now;
}

static void set_up(void)
{
    struct error error;
    got = malloc(PIECE_BYTES);
    for (uint32_t rank = 0; rank < world; rank++) {
        pieces[rank] = malloc(PIECE_BYTES);
        for (uint64_t i = 0; i < PIECE_BYTES; i++)
            pieces[rank][i] = (unsigned char)(i * 2654435761u >> 13 ^ rank * 97);
        devices[rank] = rank ? plugins.devices[rank - 1] : NULL;
        if (rank)
            must(device_allocate(devices[rank], PIECE_BYTES * world, &segments[rank], &error) == 0, &error, "allocating");
    }
}

static int open_transport(uint64_t deadline_ms, struct transport **transport, struct error *error)
{
    const struct transport_options options = {world, devices, deadline_ms * NS_PER_MS, STAGING_LIMIT};
    return transport_open(plugins.transport, &options, transport, error);
}

static void deliver_all(struct transport *transport)
{
    struct error error;
    for (uint32_t owner = 0; owner < world; owner++)
        for (uint32_t rank = 1; rank < world; rank++) {
            const struct transport_delivery delivery = {.owner = owner,
                                                        .rank = rank,
                                                        .segment = segments[rank],
                                                        .offset = owner * PIECE_BYTES,
                                                        .src = pieces[owner],
                                                        .rows = {PIECE_BYTES, 1, PIECE_BYTES, PIECE_BYTES},
                                                        .source_offset = owner};
            if (rank != owner)
                must(transport_deliver(transport, &delivery, &error) == 0, &error, "delivering");
        }
}

/* And wiped for the next round. */
static void check_all(void)
{
    for (uint32_t rank = 1; rank < world; rank++)
        for (uint32_t owner = 0; owner < world; owner++) {
            char *at = (char *)(uintptr_t)((struct cuda_segment *)segments[rank])->address + owner * PIECE_BYTES;
            must(cudaSetDevice((int)rank - 1) == cudaSuccess &&
                     cudaMemcpy(got, at, PIECE_BYTES, cudaMemcpyDeviceToHost) == cudaSuccess,
                 NULL, "reading back");
            must(rank == owner || memcmp(got, pieces[owner], PIECE_BYTES) == 0, NULL, "a piece arrived");
            memset(got, 0, PIECE_BYTES);
            must(cudaMemcpy(at, got, PIECE_BYTES, cudaMemcpyHostToDevice) == cudaSuccess, NULL, "wiping");
        }
}

static void run_round(int round, size_t *held_bytes)
{
    struct transport *transport;
    struct error error;
    size_t before = free_bytes();
    uint64_t start_ns = clock_now_ns();
    must(open_transport(60000, &transport, &error) == 0, &error, "making communicators");
    uint64_t made_ns = clock_now_ns();
    deliver_all(transport);
    must(transport_flush(transport, &error) == 0, &error, "a transfer");
    uint64_t flushed_ns = clock_now_ns();
    size_t within = free_bytes();
    *held_bytes = before > within ? before - within : 0;
    transport_close(transport);
    uint64_t closed_ns = clock_now_ns();
    check_all();
    must(round == 0 || free_bytes() + 4 * MIB >= before, NULL, "GPU memory is given back");
    if (round == N_ROUNDS - 1)
        printf("%u GPUs: communicators made in %.0f ms and ended in %.0f ms, %.0f MiB held, %.1f GB/s to all ranks\n",
               world - 1, clock_ms(made_ns - start_ns), clock_ms(closed_ns - flushed_ns), (double)*held_bytes / (double)MIB,
               (double)((world - 1) * (world - 1) * PIECE_BYTES) / (double)(flushed_ns - made_ns));
}

int main(int argc, char **argv)
{
    must(argc == 3, NULL, "usage: nccl PLUGIN_FOLDER N_GPUS");
    device_plugins_load(&plugins, argv[1]);
    size_t n_gpus = strcmp(argv[2], "all") == 0 ? plugins.n_devices : strtoul(argv[2], NULL, 10), held_bytes;
    if (!plugins.transport || n_gpus > plugins.n_devices || n_gpus < 1 || (argv[2][0] == 'a' && n_gpus < 2)) {
        printf("%zu GPUs, %s\n", plugins.n_devices, plugins.transport ? "more are needed" : "built without NCCL");
        return UNFIT;
    }
    world = (uint32_t)(n_gpus < MAX_GPUS ? n_gpus : MAX_GPUS) + 1;
    set_up();
    for (int round = 0; round < N_ROUNDS; round++) {
        struct transport *transport;
        struct error error;
        run_round(round, &held_bytes);
        must(open_transport(0, &transport, &error) != 0 && strcmp(error.reason, "NCCL_TIMEOUT") == 0, &error,
             "communicators that are not ready at once are given up");
        must(device_check(devices[1], &error) == 0, &error, "a device stays in service");
    }
    return 0;
}
