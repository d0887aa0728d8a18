/* Times the engine alone: no gRPC, no client. For tuning; the figures of docs/performance.md come from run.sh.
 *
 *     engine_bench [-t THREADS] [-s STAGING_MIB] [-p POOL_MIB] [-n ROUNDS] FOLDER CASE...
 *
 * Cases: cold, hot = the whole checkpoint; cold4, hot4 = four tensor-parallel ranks at once; columns = the first quarter of
 * the columns of every matrix by each executor, hot and cold; moves = what variants do to whole matrices of 4-byte elements,
 * hot, beside a plain load: rows that alternate there or here, four copies, a turned matrix, F32 to BF16, and FP8 with a
 * scale for each 128 x 128 to BF16. Without a pool every run gets fresh memory.
 * Before each run memory is made warm for the host (machine.py tells why). Prints medians, GB/s of distinct source bytes,
 * CPU seconds per GB, and two ceilings measured in the same rounds: memcpy by two threads, direct reads by four. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/memory.h"
#include "execute/engine.h"
#include "plan/plan.h"
#include "resolve/artifact.h"

enum { MAX_RANKS = 4, MAX_ROUNDS = 64, HUGE = 2 << 20, PIECE = 4 << 20, MAX_ITEMS = 200000 };

struct bench {
    struct loop *loop;
    struct engine *engine;
    struct device *device;
    struct artifact *artifact;
    const char *folder;
    int n_running;
};

struct shot { /* one load */
    struct bench *bench;
    struct mapping *mapping;
    struct plan *plan;
    struct segment *segment;
    struct run *run;
};

struct result {
    double ms[MAX_ROUNDS], cpu_s[MAX_ROUNDS];
    int n;
    struct run_report report; /* of the last round, summed over ranks */
};

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void *huge_memory(uint64_t bytes)
{
    char *start = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        abort();
    char *aligned = (char *)(((uintptr_t)start + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    madvise(aligned, bytes, MADV_HUGEPAGE);
    return aligned;
}

static void pretouch(uint64_t bytes)
{
    char *memory = huge_memory(bytes);
    for (uint64_t i = 0; i < bytes; i += HUGE)
        memory[i] = 1;
    munmap(memory, bytes);
}

static void set_cache(const struct bench *bench, bool hot)
{
    const struct source *source = bench->artifact->source;
    static char buffer[PIECE];
    for (size_t i = 0; i < source->n_files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", bench->folder, source->files[i].name);
        int fd = open(path, O_RDONLY);
        if (!hot)
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        while (hot && read(fd, buffer, sizeof buffer) > 0)
            ;
        close(fd);
    }
}

static const char *const row_split[] = {"o_proj", "down_proj"};
static const char *const column_split[] = {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head"};

static bool names_any(const char *name, const char *const *parts, size_t n_parts)
{
    for (size_t i = 0; i < n_parts; i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

static struct mapping *map_rank(struct bench *bench, uint64_t rank, uint64_t n_ranks, bool all_columns)
{
    static struct view_item items[MAX_ITEMS];
    static struct slice slices[MAX_ITEMS][2];
    struct error error;
    size_t n_items = 0;
    for (size_t i = 0; i < bench->artifact->n_tensors; i++) {
        const struct tensor_record *record = &bench->artifact->tensors[i];
        int dim = names_any(record->name, column_split, 7) ? 0 : names_any(record->name, row_split, 2) ? 1 : -1;
        dim = all_columns ? (record->rank == 2 ? 1 : -2) : dim;
        if (dim == -2)
            continue;
        slices[n_items][0] = slices[n_items][1] = (struct slice){0, INT64_MAX};
        if (dim >= 0 && n_ranks > 1)
            slices[n_items][dim] = (struct slice){(int64_t)(record->shape[dim] * rank / n_ranks),
                                                  (int64_t)(record->shape[dim] * (rank + 1) / n_ranks)};
        items[n_items] =
            (struct view_item){record->name, record->name_length, dim >= 0 && n_ranks > 1 ? 2 : 0, slices[n_items]};
        n_items++;
    }
    struct mapping *mapping =
        mapping_build(&(struct view_spec){.items = items, .n_items = n_items, .align_bytes = 64}, bench->artifact, &error);
    if (!mapping) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return mapping;
}

/* --- what variants do ------------------------------------------------------------------------------------------------ */

enum move { MOVE_ROWS_THERE, MOVE_ROWS_HERE, MOVE_COPIES, MOVE_TURN, MOVE_CAST, MOVE_DEQUANTIZE, N_MOVES };
static const char *const move_names[] = {"rows alternate there", "rows alternate here", "four copies", "turned",
                                         "F32 to BF16",          "FP8 blocks to BF16"};
enum { HEAD_ROWS = 128, N_COPIES = 4, BLOCK = 128 };

static void add_transfer(struct mapping *mapping, struct transfer transfer)
{
    mapping->transfers[mapping->n_transfers++] = transfer;
}

/* Half the rows of a head, and the other half. */
static void alternate(struct mapping *mapping, const struct transfer *whole, uint64_t n_rows, uint64_t row, bool there)
{
    const uint64_t half = HEAD_ROWS / 2;
    for (uint64_t i = 0; i < n_rows / half; i++) {
        uint64_t head = i / 2 * HEAD_ROWS * row, packed = head + i % 2 * half * row, apart = head + i % 2 * row;
        add_transfer(mapping, (struct transfer){.src_offset = whole->src_offset + (there ? packed : apart),
                                                .dst_offset = whole->dst_offset + (there ? apart : packed),
                                                .row_bytes = row,
                                                .n_rows = half,
                                                .src_stride = there ? row : 2 * row,
                                                .dst_stride = there ? 2 * row : row,
                                                .file = whole->file,
                                                .tensor = whole->tensor});
    }
}

static void turn(struct mapping *mapping, const struct transfer *whole, uint64_t n_rows, uint64_t row)
{
    for (uint64_t i = 0; i < n_rows; i++)
        add_transfer(mapping, (struct transfer){.src_offset = whole->src_offset + i * row,
                                                .dst_offset = whole->dst_offset + i * 4,
                                                .row_bytes = 4,
                                                .n_rows = row / 4,
                                                .src_stride = 4,
                                                .dst_stride = n_rows * 4,
                                                .file = whole->file,
                                                .tensor = whole->tensor});
}

static void copy_again(struct mapping *mapping, const struct transfer *whole)
{
    for (uint64_t i = 0; i < N_COPIES; i++) {
        struct transfer copy = *whole;
        copy.dst_offset += i * mapping->view_bytes;
        add_transfer(mapping, copy);
    }
}

static void convert(struct mapping *mapping, const struct transfer *whole, uint64_t row, bool has_scales)
{
    uint64_t n_scales = whole->row_bytes / BLOCK + row + 1; /* enough for any shape */
    struct operation *operation = &mapping->operations[mapping->n_operations];
    struct transfer converted = *whole;
    *operation = (struct operation){
        .from = DTYPE_F32, .to = DTYPE_BF16, .from_bytes = 4, .to_bytes = 2, .n_steps = 1, .steps = {{.to = DTYPE_BF16}}};
    if (has_scales) {
        struct scale_grid *grid = arena_alloc(&mapping->arena, sizeof *grid);
        *grid = (struct scale_grid){.origin = whole->src_offset,
                                    .n_columns = row,
                                    .block_rows = BLOCK,
                                    .block_columns = BLOCK,
                                    .grid_columns = (row + BLOCK - 1) / BLOCK,
                                    .values = arena_array(&mapping->arena, n_scales, sizeof(float))};
        operation->from = DTYPE_F8_E4M3;
        operation->from_bytes = 1;
        operation->steps[0].grid = grid;
    }
    converted.operation = mapping->n_operations++ & (OPERATION_MAX_PER_MAPPING - 1);
    converted.dst_offset = has_scales ? 2 * converted.dst_offset : converted.dst_offset / 2;
    converted.dst_stride = operation_dst_bytes(operation, converted.row_bytes);
    add_transfer(mapping, converted);
}

static void move(struct mapping *mapping, enum move kind)
{
    struct transfer *plain = mapping->transfers;
    struct error error;
    size_t n = mapping->n_transfers, room = n * N_COPIES + 1;
    for (size_t i = 0; i < n; i++)
        room += mapping->tensors[plain[i].tensor].record->shape[0];
    mapping->transfers = arena_array(&mapping->arena, room, sizeof *plain);
    mapping->operations = arena_array(&mapping->arena, n + 1, sizeof *mapping->operations);
    mapping->n_operations = 1;
    mapping->n_transfers = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t n_rows = mapping->tensors[plain[i].tensor].record->shape[0], row = plain[i].row_bytes / n_rows;
        if (kind == MOVE_ROWS_THERE || kind == MOVE_ROWS_HERE)
            alternate(mapping, &plain[i], n_rows, row, kind == MOVE_ROWS_THERE);
        else if (kind == MOVE_TURN)
            turn(mapping, &plain[i], n_rows, row);
        else if (kind == MOVE_COPIES)
            copy_again(mapping, &plain[i]);
        else
            convert(mapping, &plain[i], row, kind == MOVE_DEQUANTIZE);
    }
    uint64_t times = kind == MOVE_COPIES ? N_COPIES : kind == MOVE_DEQUANTIZE ? 2 : 1, parts = kind == MOVE_CAST ? 2 : 1;
    mapping->view_bytes = mapping->view_bytes * times / parts;
    mapping->replica_bytes = mapping->view_bytes;
    if (mapping_order(mapping, &error)) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
}

static struct plan *plan_shot(struct bench *bench, const struct mapping *mapping, int executor, bool hot)
{
    struct error error;
    struct materialization_strategy strategy = {.enable_local_batched_disk_load = true, .allow_mixed_execution = true};
    struct load_spec spec = {.artifact = "bench", .policy = {.executor = executor}};
    struct plan_facts facts = {.strategy = &strategy,
                               .costs = &cost_defaults,
                               .source = bench->artifact->source->caps,
                               .device = bench->device->caps,
                               .staging_budget_bytes = 64 << 20,
                               .cached_share = hot};
    return plan_build(mapping, &spec, &facts, &error);
}

static void on_done(struct run *run, void *data, const struct error *error)
{
    struct shot *shot = data;
    (void)run;
    if (error) {
        fprintf(stderr, "%s\n", error->message);
        exit(1);
    }
    if (--shot->bench->n_running == 0)
        loop_stop(shot->bench->loop);
}

static void start(struct shot *shot)
{
    struct error error;
    if (device_allocate(shot->bench->device, shot->mapping->replica_bytes, &shot->segment, &error)) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    shot->run = run_start(
        shot->bench->engine,
        &(struct run_options){
            .mapping = shot->mapping, .plan = shot->plan, .segment = shot->segment, .done = on_done, .data = shot});
}

static void add_report(struct run_report *sum, const struct run_report *one)
{
    sum->read_bytes += one->read_bytes, sum->requests += one->requests, sum->shared_bytes += one->shared_bytes;
    sum->direct_bytes += one->direct_bytes, sum->copied_bytes += one->copied_bytes;
    sum->read_ns += one->read_ns, sum->copy_ns += one->copy_ns, sum->prepare_ns += one->prepare_ns;
}

/* Memory is prepared while nothing is loaded: until as much is there as there will be. */
static void wait_for_pool(const struct device *device)
{
    uint64_t before = UINT64_MAX;
    for (int same = 0, polls = 0; device->pool_budget_bytes && same < 20 && polls < 1000; polls++) {
        uint64_t now = __atomic_load_n(&device->pool_bytes, __ATOMIC_RELAXED);
        same = now == before ? same + 1 : 0;
        before = now;
        usleep(20000);
    }
}

static void fire(struct bench *bench, struct shot *shots, int n_shots, bool hot, struct result *result)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n_shots; i++)
        bytes += shots[i].mapping->replica_bytes + HUGE;
    set_cache(bench, hot);
    pretouch(bytes + bytes / 8);
    wait_for_pool(bench->device);
    double cpu = cpu_seconds();
    uint64_t started_ns = clock_now_ns();
    bench->n_running = n_shots;
    for (int i = 0; i < n_shots; i++)
        start(&shots[i]);
    loop_run(bench->loop);
    result->ms[result->n] = clock_ms(clock_now_ns() - started_ns);
    result->cpu_s[result->n++] = cpu_seconds() - cpu;
    result->report = (struct run_report){0};
    for (int i = 0; i < n_shots; i++) {
        struct error error;
        add_report(&result->report, run_report(shots[i].run));
        run_destroy(shots[i].run);
        device_seal(shots[i].segment, &error);
        segment_unref(shots[i].segment);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void print_result(const char *name, struct result *result, uint64_t bytes)
{
    const struct run_report *report = &result->report;
    qsort(result->ms, (size_t)result->n, sizeof(double), compare_doubles);
    qsort(result->cpu_s, (size_t)result->n, sizeof(double), compare_doubles);
    double ms = result->ms[result->n / 2], gb = (double)bytes / 1e9;
    printf("%-22s %8.1f ms [%.1f..%.1f] %6.2f GB/s  cpu %.3f s/GB  read %.2f GB in %" PRIu64 ", shared %.2f, direct %.2f, "
           "copied %.2f; read %.0f copy %.0f prepare %.0f ms\n",
           name, ms, result->ms[0], result->ms[result->n - 1], gb / ms * 1e3, result->cpu_s[result->n / 2] / gb,
           (double)report->read_bytes / 1e9, report->requests, (double)report->shared_bytes / 1e9,
           (double)report->direct_bytes / 1e9, (double)report->copied_bytes / 1e9, clock_ms(report->read_ns),
           clock_ms(report->copy_ns), clock_ms(report->prepare_ns));
}

struct ceiling {
    const struct bench *bench;
    char *from, *to;
    uint64_t bytes, next; /* atomic */
    bool is_disk;
    int *fds;
};

static void read_piece(struct ceiling *ceiling, uint64_t at, char *buffer)
{
    const struct source *source = ceiling->bench->artifact->source;
    for (size_t i = 0; i < source->n_files; i++) {
        uint64_t whole = (source->files[i].size_bytes + PIECE - 1) / PIECE * PIECE;
        if (at < whole) {
            if (pread(ceiling->fds[i], buffer, PIECE, (off_t)at) < 0)
                perror("pread");
            return;
        }
        at -= whole;
    }
}

static void *ceiling_thread(void *argument)
{
    struct ceiling *ceiling = argument;
    uint64_t window = 256 * (uint64_t)PIECE;
    for (;;) {
        uint64_t at = __atomic_fetch_add(&ceiling->next, PIECE, __ATOMIC_RELAXED);
        if (at >= ceiling->bytes)
            return NULL;
        if (ceiling->is_disk)
            read_piece(ceiling, at, ceiling->to + at % window);
        else
            memcpy(ceiling->to + at % window, ceiling->from + at % window, PIECE);
    }
}

static void measure_ceiling(const struct bench *bench, bool is_disk, struct result *result)
{
    static char *from, *to;
    int fds[256];
    pthread_t threads[4];
    struct ceiling ceiling = {.bench = bench, .is_disk = is_disk, .fds = fds};
    uint64_t window = 256 * (uint64_t)PIECE;
    if (!from) {
        from = huge_memory(window), to = huge_memory(window);
        memset(from, 1, window), memset(to, 1, window);
    }
    ceiling.from = from, ceiling.to = to;
    for (size_t i = 0; i < bench->artifact->source->n_files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", bench->folder, bench->artifact->source->files[i].name);
        fds[i] = open(path, O_RDONLY | O_DIRECT);
        ceiling.bytes += (bench->artifact->source->files[i].size_bytes + PIECE - 1) / PIECE * PIECE;
    }
    if (is_disk)
        set_cache(bench, false);
    int n_threads = is_disk ? 4 : 2;
    uint64_t started_ns = clock_now_ns();
    for (int i = 0; i < n_threads; i++)
        pthread_create(&threads[i], NULL, ceiling_thread, &ceiling);
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    result->ms[result->n] = clock_ms(clock_now_ns() - started_ns);
    result->cpu_s[result->n++] = 0;
    for (size_t i = 0; i < bench->artifact->source->n_files; i++)
        close(fds[i]);
}

struct bench_case {
    char name[64];
    bool hot;
    int n_shots;
    struct shot shots[MAX_RANKS];
    struct result result;
    uint64_t unique_bytes;
};

static struct bench_case cases[32];
static int n_cases;

static void add_case(struct bench *bench, const char *name, bool hot, int n_shots, bool all_columns, int executor,
                     bool one_rank)
{
    struct bench_case *added = &cases[n_cases++];
    snprintf(added->name, sizeof added->name, "%s", name);
    added->hot = hot;
    added->n_shots = n_shots;
    for (int r = 0; r < n_shots; r++) {
        struct shot *shot = &added->shots[r];
        shot->bench = bench;
        shot->mapping = map_rank(bench, (uint64_t)r, one_rank ? MAX_RANKS : (uint64_t)n_shots, all_columns);
        shot->plan = plan_shot(bench, shot->mapping, executor, hot);
    }
    added->unique_bytes = one_rank ? added->shots[0].mapping->view_bytes : bench->artifact->total_bytes;
}

static void add_moves(struct bench *bench)
{
    for (int kind = 0; kind < N_MOVES; kind++) {
        add_case(bench, move_names[kind], true, 1, false, EXECUTOR_PREFERENCE_AUTO, false);
        struct shot *shot = &cases[n_cases - 1].shots[0];
        move(shot->mapping, (enum move)kind);
        plan_destroy(shot->plan);
        shot->plan = plan_shot(bench, shot->mapping, EXECUTOR_PREFERENCE_AUTO, true);
    }
}

static void add_cases(struct bench *bench, const char *name)
{
    if (strcmp(name, "moves") == 0) {
        add_case(bench, "plain", true, 1, false, EXECUTOR_PREFERENCE_AUTO, false);
        add_moves(bench);
        return;
    }
    bool hot = strncmp(name, "hot", 3) == 0;
    if (strcmp(name, "columns") == 0) {
        add_case(bench, "columns hot generic", true, 1, true, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, true);
        add_case(bench, "columns hot local", true, 1, true, EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, true);
        add_case(bench, "columns hot auto", true, 1, true, EXECUTOR_PREFERENCE_AUTO, true);
        add_case(bench, "columns cold generic", false, 1, true, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, true);
        add_case(bench, "columns cold local", false, 1, true, EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, true);
        add_case(bench, "columns cold auto", false, 1, true, EXECUTOR_PREFERENCE_AUTO, true);
        return;
    }
    add_case(bench, name, hot, strchr(name, '4') ? 4 : 1, false, EXECUTOR_PREFERENCE_AUTO, false);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct error error;
    struct engine_options options = {.staging_budget_bytes = 64 << 20};
    int n_rounds = 5, option;
    uint64_t pool_bytes = 0;
    while ((option = getopt(argc, argv, "t:s:n:p:")) != -1) {
        uint64_t value = strtoull(optarg, NULL, 10);
        if (option == 't')
            options.io_threads = value;
        else if (option == 's')
            options.staging_budget_bytes = value << 20;
        else if (option == 'n')
            n_rounds = value < MAX_ROUNDS ? (int)value : MAX_ROUNDS;
        else if (option == 'p')
            pool_bytes = value << 20;
    }
    if (argc - optind < 2)
        return 2;
    bench.folder = argv[optind];
    bench.loop = options.loop = loop_create();
    bench.device = device_host_create(pool_bytes);
    char reference[4200];
    snprintf(reference, sizeof reference, "disk:%s", bench.folder);
    if (engine_create(&options, &bench.engine, &error) ||
        artifact_resolve(reference, &(struct source_options){.allow_relative = true}, NULL, false, &bench.artifact,
                         &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (int i = optind + 1; i < argc; i++)
        add_cases(&bench, argv[i]);
    static struct result copying, disk;
    for (int round = 0; round < n_rounds; round++) {
        for (int i = 0; i < n_cases; i++)
            fire(&bench, cases[i].shots, cases[i].n_shots, cases[i].hot, &cases[i].result);
        measure_ceiling(&bench, false, &copying);
        if (!getenv("NO_DISK"))
            measure_ceiling(&bench, true, &disk);
    }
    print_result("ceiling memcpy", &copying, bench.artifact->total_bytes);
    if (disk.n)
        print_result("ceiling direct", &disk, bench.artifact->total_bytes);
    for (int i = 0; i < n_cases; i++)
        print_result(cases[i].name, &cases[i].result, cases[i].unique_bytes);
    return 0;
}
