/* What the machine can do, before we are measured by it: the device (`copies probe`), its free memory (`copies free`), and
 * how fast host memory gets to it (`copies rates`): pinned and pageable, in pieces of several sizes over one to four
 * streams, and rows of an inner slice in two ways: 2-D copies straight out of pinned host memory, which the plugin does, and
 * whole rows to the device with a 2-D copy there. The best pinned rate is the 100 % of the others. `copies file PATH`: the
 * same with a file in the page cache, which threads read into two pinned buffers each and copy from there, and nothing else:
 * as fast as a program can be that does what the daemon does; and how long it takes to make memory of that size that can be
 * exported. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

static void *copy_memory(void *argument)
{
    const size_t bytes = 64 * MIB;
    bool *is_over = argument;
    char *from = malloc(bytes), *to = malloc(bytes);
    if (!from || !to)
        exit(1);
    memset(from, 1, bytes);
    while (!__atomic_load_n(is_over, __ATOMIC_RELAXED))
        memcpy(to, from, bytes);
    free(from);
    free(to);
    return NULL;
}

/* As the best of `pieces`, while every second core copies memory as the readers of a load do. */
static void measure_beside_copies(struct bench *bench)
{
    pthread_t threads[64];
    long n_threads = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    bool is_over = false;
    n_threads = n_threads < 64 ? n_threads : 64;
    for (long i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, copy_memory, &is_over))
            exit(1);
    usleep(200000);
    double rate = measure_pieces(bench, PIECE, N_STREAMS);
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    for (long i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    printf("pinned   2048 KiB, %d streams, while %ld threads copy memory: %6.2f GB/s\n", N_STREAMS, n_threads, rate);
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
    measure_beside_copies(&bench);
    printf("best %.2f GB/s\n", best);
    printf("pageable 2048 KiB, %d streams: %6.2f GB/s, %.0f %%\n", N_STREAMS, pageable, 100 * pageable / best);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double direct = measure_rows(&bench, rows[i], false), by_device = measure_rows(&bench, rows[i], true);
        printf("rows of %5zu bytes: %6.2f GB/s, %.0f %%; whole rows and a 2-D copy on the device: %6.2f GB/s\n", rows[i],
               direct, 100 * direct / best, by_device);
    }
    return 0;
}

/* --- a file in the page cache ----------------------------------------------------------------------------------------- */

struct reading {
    int fd;
    size_t bytes, next; /* next: atomic */
    char *device;
    pthread_barrier_t gate; /* all threads have their buffers; all have copied */
};

static void wait_for(cudaEvent_t event)
{
    cudaError_t code;
    while ((code = cudaEventQuery(event)) == cudaErrorNotReady)
        usleep(10);
    must(code, "copying");
}

static void *read_and_copy(void *argument)
{
    struct reading *reading = argument;
    cudaStream_t stream;
    cudaEvent_t landed[2];
    char *buffers = mmap(NULL, 2 * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffers == MAP_FAILED)
        exit(1);
    must(cudaSetDevice(0), "choosing a device");
    must(cudaHostRegister(buffers, 2 * PIECE, cudaHostRegisterPortable), "pinning");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    for (int i = 0; i < 2; i++)
        must(cudaEventCreateWithFlags(&landed[i], cudaEventDisableTiming), "making an event");
    pthread_barrier_wait(&reading->gate);
    for (int i = 0;; i = !i) {
        size_t at = __atomic_fetch_add(&reading->next, PIECE, __ATOMIC_RELAXED);
        if (at >= reading->bytes)
            break;
        size_t bytes = reading->bytes - at < PIECE ? reading->bytes - at : PIECE;
        char *buffer = buffers + (size_t)i * PIECE;
        wait_for(landed[i]);
        if (pread(reading->fd, buffer, bytes, (off_t)at) != (ssize_t)bytes)
            exit(1);
        must(cudaMemcpyAsync(reading->device + at, buffer, bytes, cudaMemcpyHostToDevice, stream), "copying");
        must(cudaEventRecord(landed[i], stream), "recording");
    }
    wait_for(landed[0]);
    wait_for(landed[1]);
    pthread_barrier_wait(&reading->gate);
    must(cudaHostUnregister(buffers), "unpinning");
    munmap(buffers, 2 * PIECE);
    cudaStreamDestroy(stream);
    return NULL;
}

/* GB/s of the file. */
static double measure_threads(struct reading *reading, int n_threads)
{
    pthread_t threads[64];
    reading->next = 0;
    pthread_barrier_init(&reading->gate, NULL, (unsigned)n_threads + 1);
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, read_and_copy, reading))
            exit(1);
    pthread_barrier_wait(&reading->gate);
    double start = now_s();
    pthread_barrier_wait(&reading->gate);
    double rate = (double)reading->bytes / (now_s() - start) / 1e9;
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&reading->gate);
    return rate;
}

static void *driver_symbol(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = driver ? dlsym(driver, name) : NULL;
    if (!found)
        exit(1);
    return found;
}

/* Milliseconds until memory that can be exported is there and mapped. */
static double measure_making(size_t bytes)
{
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long) =
        driver_symbol("cuMemCreate");
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) =
        driver_symbol("cuMemAddressReserve");
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) =
        driver_symbol("cuMemMap");
    CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) = driver_symbol("cuMemSetAccess");
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bytes = (bytes + PIECE - 1) / PIECE * PIECE;
    double start = now_s();
    bool is_made = create(&handle, bytes, &properties, 0) == CUDA_SUCCESS;
    double created = now_s();
    is_made = is_made && reserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS &&
              map(address, bytes, 0, handle, 0) == CUDA_SUCCESS && allow(address, bytes, &access, 1) == CUDA_SUCCESS;
    double end = now_s();
    if (!is_made)
        exit(1);
    printf("making %.1f GB: %.1f ms, mapping them %.1f ms\n", (double)bytes / 1e9, (created - start) * 1e3,
           (end - created) * 1e3);
    return (end - start) * 1e3;
}

static int read_file(const char *path)
{
    struct reading reading = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    struct stat facts;
    double best = 0;
    if (reading.fd < 0 || fstat(reading.fd, &facts))
        return 1;
    reading.bytes = (size_t)facts.st_size;
    must(cudaMalloc((void **)&reading.device, reading.bytes), "allocating");
    double making_ms = measure_making(reading.bytes);
    for (int n_threads = 4; n_threads <= 32; n_threads *= 2) {
        double most = 0;
        for (int round = 0; round < N_ROUNDS; round++) {
            double rate = measure_threads(&reading, n_threads);
            most = rate > most ? rate : most;
        }
        printf("%2d threads from the page cache: %6.2f GB/s\n", n_threads, most);
        best = most > best ? most : best;
    }
    printf("through %.2f GB/s, making the memory %.1f ms\n", best, making_ms);
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
    if (argc == 3 && strcmp(what, "file") == 0)
        return read_file(argv[2]);
    if (argc == 3)
        total_bytes = strtoul(argv[2], NULL, 10) * MIB;
    if (strcmp(what, "probe") == 0)
        return probe();
    if (strcmp(what, "free") == 0)
        return free_memory();
    if (strcmp(what, "rates") == 0)
        return rates();
    fprintf(stderr, "usage: copies probe|free|rates [MIB]|file PATH\n");
    return 2;
}
