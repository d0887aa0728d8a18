/* What the machine can do, before we are measured by it: the device (`copies probe`), its free memory (`copies free`), and
 * how fast host memory gets to it (`copies rates`): pinned and pageable, in pieces of several sizes over one to four
 * streams, and rows of an inner slice in two ways: 2-D copies straight out of pinned host memory, which the plugin does, and
 * whole rows to the device with a 2-D copy there. The best pinned rate is the 100 % of the others. */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define PIECE (2 * MIB)

enum { N_STREAMS = 4, N_ROUNDS = 3 };
static size_t total_bytes = 1024 * MIB; /* that each measurement copies */

static void must(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "copies: %s: %s\n", what, cudaGetErrorString(code));
    exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct bench {
    char *host, *device, *staged; /* staged: whole pieces on the device */
    size_t host_bytes;
    cudaStream_t streams[N_STREAMS];
    cudaEvent_t ends[N_STREAMS];
};

static void wait_all(struct bench *bench)
{
    for (int i = 0; i < N_STREAMS; i++) {
        must(cudaEventRecord(bench->ends[i], bench->streams[i]), "recording");
        cudaError_t code;
        while ((code = cudaEventQuery(bench->ends[i])) == cudaErrorNotReady)
            continue;
        must(code, "copying");
    }
}

/* GB/s of total_bytes in pieces, from a host buffer that is walked through again and again. Best of some rounds. */
static double measure_pieces(struct bench *bench, size_t piece, int n_streams)
{
    double best = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        double start = now_s();
        size_t i = 0;
        for (size_t done = 0; done < total_bytes; done += piece, i++)
            must(cudaMemcpyAsync(bench->device + done % bench->host_bytes, bench->host + done % bench->host_bytes, piece,
                                 cudaMemcpyHostToDevice, bench->streams[i % (size_t)n_streams]),
                 "copying");
        wait_all(bench);
        double rate = (double)total_bytes / (now_s() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Rows of piece number i: half of the PIECE bytes. */
static void copy_rows(struct bench *bench, size_t i, size_t row_bytes, bool by_device)
{
    cudaStream_t stream = bench->streams[i % N_STREAMS];
    char *to = bench->device + i * PIECE / 2 % (bench->host_bytes / 2), *from = bench->host + i * PIECE % bench->host_bytes;
    if (by_device) {
        char *staged = bench->staged + i % N_STREAMS * PIECE; /* a stream's own: it is overwritten in the stream's order */
        must(cudaMemcpyAsync(staged, from, PIECE, cudaMemcpyHostToDevice, stream), "copying whole rows");
        from = staged;
    }
    must(cudaMemcpy2DAsync(to, row_bytes, from, 2 * row_bytes, row_bytes, PIECE / (2 * row_bytes),
                           by_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice, stream),
         "copying rows");
}

/* GB/s of wanted bytes: every second row_bytes of pieces, as an inner slice of half a matrix takes them. */
static double measure_rows(struct bench *bench, size_t row_bytes, bool by_device)
{
    double best = 0;
    const size_t wanted = total_bytes / 4;
    for (int round = 0; round < N_ROUNDS; round++) {
        double start = now_s();
        size_t i = 0;
        for (size_t done = 0; done < wanted; done += PIECE / 2, i++)
            copy_rows(bench, i, row_bytes, by_device);
        wait_all(bench);
        double rate = (double)wanted / (now_s() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

static void set_up(struct bench *bench)
{
    bench->host_bytes = 256 * MIB;
    bench->host = mmap(NULL, bench->host_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bench->host == MAP_FAILED)
        exit(1);
    madvise(bench->host, bench->host_bytes, MADV_HUGEPAGE);
    memset(bench->host, 1, bench->host_bytes);
    must(cudaMalloc((void **)&bench->device, bench->host_bytes), "allocating");
    must(cudaMalloc((void **)&bench->staged, N_STREAMS * PIECE), "allocating");
    for (int i = 0; i < N_STREAMS; i++) {
        must(cudaStreamCreateWithFlags(&bench->streams[i], cudaStreamNonBlocking), "making a stream");
        must(cudaEventCreateWithFlags(&bench->ends[i], cudaEventDisableTiming), "making an event");
    }
}

static int rates(void)
{
    static const size_t pieces[] = {256 << 10, 2 << 20, 16 << 20, 64 << 20}, rows[] = {64, 256, 1024, 2048, 8192, 65536};
    struct bench bench = {0};
    double best = 0;
    set_up(&bench);
    double pageable = measure_pieces(&bench, 2 * MIB, N_STREAMS);
    must(cudaHostRegister(bench.host, bench.host_bytes, cudaHostRegisterPortable), "pinning");
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        for (int n_streams = 1; n_streams <= N_STREAMS; n_streams *= 2) {
            double rate = measure_pieces(&bench, pieces[i], n_streams);
            printf("pinned %6zu KiB, %d streams: %6.2f GB/s\n", pieces[i] >> 10, n_streams, rate);
            best = rate > best ? rate : best;
        }
    printf("best %.2f GB/s\n", best);
    printf("pageable 2048 KiB, %d streams: %6.2f GB/s, %.0f %%\n", N_STREAMS, pageable, 100 * pageable / best);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double direct = measure_rows(&bench, rows[i], false), by_device = measure_rows(&bench, rows[i], true);
        printf("rows of %5zu bytes: %6.2f GB/s, %.0f %%; whole rows and a 2-D copy on the device: %6.2f GB/s\n", rows[i],
               direct, 100 * direct / best, by_device);
    }
    return 0;
}

static int probe(void)
{
    int count = 0, runtime = 0;
    must(cudaGetDeviceCount(&count), "looking for devices");
    cudaRuntimeGetVersion(&runtime);
    printf("%d devices, CUDA runtime %d\n", count, runtime);
    return count == 0;
}

static int free_memory(void)
{
    size_t free_bytes, all_bytes;
    must(cudaSetDevice(0), "choosing a device");
    must(cudaMemGetInfo(&free_bytes, &all_bytes), "asking for free memory");
    printf("%zu\n", free_bytes);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc >= 2 ? argv[1] : "";
    if (argc == 3)
        total_bytes = strtoul(argv[2], NULL, 10) * MIB;
    if (strcmp(what, "probe") == 0)
        return probe();
    if (strcmp(what, "free") == 0)
        return free_memory();
    if (strcmp(what, "rates") == 0)
        return rates();
    fprintf(stderr, "usage: copies probe|free|rates [MIB]\n");
    return 2;
}
