/* Memory that a client lends to be filled, by descriptor and by CUDA IPC handle: nothing but the view is written, nothing
 * that the client says is believed, nothing is open longer than it has to be, and only then the client is told. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "tests/support/cuda_stage.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { FILLER = 0xA5, ALLOCATION = 4 << 20, OFFSET = (1 << 20) + 256, LENT = 2 << 20 };

/* --- a client --------------------------------------------------------------------------------------------------------- */

struct lender {
    enum device_region_kind kind;
    int device;
    unsigned char *memory; /* ALLOCATION bytes */
    CUmemGenericAllocationHandle handle;
    int fd;
    CUipcMemHandle ipc;
    int lease; /* our end of the last offer's */
};

static void make_mapped(struct lender *lender)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = lender->device}};
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    assert_int_equal(cuMemCreate(&lender->handle, ALLOCATION, &properties, 0), 0);
    assert_int_equal(cuMemAddressReserve(&address, ALLOCATION, 0, 0, 0), 0);
    assert_int_equal(cuMemMap(address, ALLOCATION, 0, lender->handle, 0), 0);
    assert_int_equal(cuMemSetAccess(address, ALLOCATION, &access, 1), 0);
    assert_int_equal(cuMemExportToShareableHandle(&lender->fd, lender->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     0);
    lender->memory = (void *)(uintptr_t)address;
}

static struct lender make_lender(enum device_region_kind kind, int device)
{
    struct lender lender = {.kind = kind, .device = device, .fd = -1, .lease = -1};
    fake_cuda_reset();
    assert_int_equal(cudaSetDevice(device), 0);
    if (kind == DEVICE_REGION_FD) {
        make_mapped(&lender);
    } else {
        assert_int_equal(cudaMalloc((void **)&lender.memory, ALLOCATION), 0);
        assert_int_equal(cuIpcGetMemHandle(&lender.ipc, (uintptr_t)lender.memory), 0);
    }
    memset(lender.memory, FILLER, ALLOCATION);
    return lender;
}

static void end_lender(struct lender *lender)
{
    fake_cuda_reset();
    if (lender->kind == DEVICE_REGION_FD) {
        assert_int_equal(cuMemUnmap((uintptr_t)lender->memory, ALLOCATION), 0);
        assert_int_equal(cuMemAddressFree((uintptr_t)lender->memory, ALLOCATION), 0);
        assert_int_equal(cuMemRelease(lender->handle), 0);
        close(lender->fd);
    } else {
        assert_int_equal(cudaFree(lender->memory), 0);
    }
    if (lender->lease >= 0)
        close(lender->lease);
}

static struct device_region *offer(struct lender *lender)
{
    int ends[2];
    struct device_region *region = memory_alloc(sizeof *region);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    if (lender->lease >= 0)
        close(lender->lease);
    lender->lease = ends[0];
    *region = (struct device_region){.kind = lender->kind,
                                     .allocation_bytes = ALLOCATION,
                                     .offset = OFFSET,
                                     .bytes = LENT,
                                     .memory_fd = lender->fd < 0 ? -1 : dup(lender->fd),
                                     .lease_fd = ends[1]};
    memcpy(region->ipc, &lender->ipc, sizeof region->ipc);
    return region;
}

/* The daemon has let go of what was offered last. */
static bool is_told(const struct lender *lender)
{
    char byte;
    ssize_t got = recv(lender->lease, &byte, 1, MSG_DONTWAIT);
    assert_true(got == 0 || (got < 0 && errno == EAGAIN));
    return got == 0;
}

static bool is_filler(const unsigned char *bytes, size_t count)
{
    return count == 0 || (bytes[0] == FILLER && memcmp(bytes, bytes + 1, count - 1) == 0); /* each is as the one before it */
}

/* --- loads into it ----------------------------------------------------------------------------------------------------- */

static struct load *adopt(struct cuda_stage *stage, struct device *device, struct device_region *region)
{
    struct load *load = cuda_stage_small_load(stage, device);
    segment_unref(load->segment);
    load->segment = NULL;
    if (device_adopt(device, load->mapping->replica_bytes, region, &load->segment, &load->error))
        load->has_failed = true;
    return load;
}

static struct lender *current; /* whose memory load_into() fills */

static bool load_into(struct cuda_stage *stage, struct error *error)
{
    struct load *load = adopt(stage, stage->gpu, offer(current));
    bool is_good = !load->has_failed;
    *error = load->error;
    if (is_good) {
        scene_load_start(load);
        scene_wait(&stage->scene);
        *error = load->error;
        is_good = !load->has_failed && device_seal(load->segment, error) == 0;
    }
    if (is_good)
        assert_true(load_is_right_in(load, current->memory + OFFSET));
    load_destroy(load);
    assert_true(is_told(current));
    return is_good;
}

static void fills_only_the_view(enum device_region_kind kind)
{
    struct cuda_stage stage;
    struct error error;
    struct lender lender = make_lender(kind, 0);
    cuda_stage_init(&stage, 64 * MIB, 2);
    cuda_stage_add_few_tensors(&stage);
    struct load *load = adopt(&stage, stage.gpu, offer(&lender));
    uint64_t bytes = load->mapping->replica_bytes;
    scene_load_start(load);
    scene_wait(&stage.scene);
    assert_false(load->has_failed);
    assert_int_equal(device_seal(load->segment, &error), 0);
    assert_true(load_is_right_in(load, lender.memory + OFFSET));
    assert_true(is_filler(lender.memory, OFFSET));
    assert_true(is_filler(lender.memory + OFFSET + bytes, ALLOCATION - OFFSET - bytes));
    assert_false(is_told(&lender));
    load_destroy(load);
    assert_true(is_told(&lender));
    cuda_stage_fini(&stage, false);
    end_lender(&lender);
}

static void a_load_fills_memory_lent_by_descriptor_and_nothing_around_it(void **state)
{
    (void)state;
    fills_only_the_view(DEVICE_REGION_FD);
}

static void a_load_fills_memory_lent_by_ipc_handle_and_nothing_around_it(void **state)
{
    (void)state;
    fills_only_the_view(DEVICE_REGION_IPC);
}

static void *unref_main(void *segment)
{
    segment_unref(segment);
    return NULL;
}

static void the_client_is_told_only_when_no_copy_is_under_way(void **state)
{
    (void)state;
    for (enum device_region_kind kind = DEVICE_REGION_FD; kind <= DEVICE_REGION_IPC; kind++) {
        struct cuda_stage stage;
        pthread_t thread;
        struct lender lender = make_lender(kind, 0);
        cuda_stage_init(&stage, 64 * MIB, 1);
        cuda_stage_add_few_tensors(&stage);
        fake_cuda_pause(true);
        struct load *load = adopt(&stage, stage.gpu, offer(&lender));
        scene_load_start(load);
        scene_wait(&stage.scene); /* everything is queued, nothing has been copied */
        struct segment *segment = segment_ref(load->segment);
        load_destroy(load);
        pthread_create(&thread, NULL, unref_main, segment);
        usleep(20000); /* gives it the chance to be wrong */
        assert_false(is_told(&lender));
        fake_cuda_pause(false);
        pthread_join(thread, NULL);
        assert_true(is_told(&lender));
        cuda_stage_fini(&stage, false);
        end_lender(&lender);
    }
}

static void a_client_is_not_told_while_copies_may_still_come(void **state)
{
    (void)state;
    for (enum device_region_kind kind = DEVICE_REGION_FD; kind <= DEVICE_REGION_IPC; kind++) {
        struct cuda_stage stage;
        struct error error;
        struct lender lender = make_lender(kind, 0);
        cuda_stage_init(&stage, 64 * MIB, 1);
        cuda_stage_add_few_tensors(&stage);
        stage.gpu->patience_ns = 50000000;
        fake_cuda_pause(true);
        struct device_region *region = offer(&lender);
        int lease = region->lease_fd;
        struct load *load = adopt(&stage, stage.gpu, region);
        scene_load_start(load);
        scene_wait(&stage.scene);
        assert_int_equal(device_seal(load->segment, &error), -1);
        assert_string_equal(error.reason, "DEVICE_OUT_OF_SERVICE");
        load_destroy(load);
        assert_false(is_told(&lender));
        close(lease); /* what the end of the process does */
        assert_true(is_told(&lender));
        fake_cuda_reset(); /* lets the copies end before their sources go */
        cuda_stage_fini(&stage, true);
        end_lender(&lender);
    }
}

static void memory_is_not_closed_under_the_copies_of_a_load_that_is_broken_off(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct cuda_stage stage;
        struct lender lender = make_lender(i % 2 ? DEVICE_REGION_FD : DEVICE_REGION_IPC, 0);
        cuda_stage_init(&stage, 64 * MIB, 2);
        cuda_stage_add_few_tensors(&stage);
        fake_cuda_delay(2000); /* the fake aborts when memory goes away under a copy */
        struct load *load = adopt(&stage, stage.gpu, offer(&lender));
        scene_load_start(load);
        usleep((useconds_t)(i * 300));
        run_cancel(load->run);
        scene_wait(&stage.scene);
        load_destroy(load);
        assert_true(is_told(&lender));
        cuda_stage_fini(&stage, false);
        end_lender(&lender);
    }
}

/* --- what is said of it ------------------------------------------------------------------------------------------------ */

static void say_larger_allocation(struct device_region *region)
{
    region->allocation_bytes *= 2;
    region->offset = ALLOCATION;
}

static void say_odd_allocation(struct device_region *region)
{
    region->allocation_bytes--;
}

static void say_beyond_the_end(struct device_region *region)
{
    region->offset = ALLOCATION - region->bytes + 1;
}

static void say_beyond_all_numbers(struct device_region *region)
{
    region->offset = UINT64_MAX - region->bytes / 2;
    region->allocation_bytes = UINT64_MAX;
}

static void say_all_there_is(struct device_region *region)
{
    region->bytes = region->allocation_bytes = UINT64_MAX;
}

static void say_too_little(struct device_region *region)
{
    region->bytes = 1000;
}

static void send_a_file(struct device_region *region)
{
    close(region->memory_fd);
    region->memory_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void send_host_memory(struct device_region *region)
{
    close(region->memory_fd);
    region->memory_fd = memfd_create("host", MFD_CLOEXEC);
    assert_int_equal(ftruncate(region->memory_fd, ALLOCATION), 0);
}

static void send_noise(struct device_region *region)
{
    memset(region->ipc, 0x5A, sizeof region->ipc);
}

struct lie {
    enum device_region_kind kind;
    void (*tell)(struct device_region *region);
};

static const struct lie lies[] = {
    {DEVICE_REGION_FD, say_larger_allocation}, {DEVICE_REGION_FD, say_odd_allocation},
    {DEVICE_REGION_FD, say_beyond_the_end},    {DEVICE_REGION_FD, say_beyond_all_numbers},
    {DEVICE_REGION_FD, say_all_there_is},      {DEVICE_REGION_FD, say_too_little},
    {DEVICE_REGION_FD, send_a_file},           {DEVICE_REGION_FD, send_host_memory},
    {DEVICE_REGION_IPC, say_beyond_the_end},   {DEVICE_REGION_IPC, say_beyond_all_numbers},
    {DEVICE_REGION_IPC, say_all_there_is},     {DEVICE_REGION_IPC, say_too_little},
    {DEVICE_REGION_IPC, send_noise},
};

/* The load is refused as the client's fault, the client is told, and nothing was written. */
static void assert_refused(struct cuda_stage *stage, struct lender *lender, struct device_region *region, const char *reason)
{
    struct error error;
    struct load *load = adopt(stage, stage->gpu, region);
    if (!load->has_failed) {
        scene_load_start(load);
        scene_wait(&stage->scene);
    }
    assert_true(load->has_failed);
    assert_int_equal(load->error.code, ERROR_INVALID_ARGUMENT);
    assert_int_equal(strncmp(load->error.reason, reason, strlen(reason)), 0);
    load_destroy(load);
    assert_true(is_told(lender));
    assert_true(is_filler(lender->memory, ALLOCATION));
    assert_int_equal(device_check(stage->gpu, &error), 0);
}

static void what_a_client_says_of_its_memory_is_not_believed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct cuda_stage stage;
        struct lender lender = make_lender(lies[i].kind, 0);
        cuda_stage_init(&stage, 64 * MIB, 1);
        cuda_stage_add_few_tensors(&stage);
        struct device_region *region = offer(&lender);
        lies[i].tell(region);
        assert_refused(&stage, &lender, region, "REGION_");
        cuda_stage_fini(&stage, false);
        end_lender(&lender);
    }
}

static void memory_of_another_device_is_refused(void **state)
{
    (void)state;
    for (enum device_region_kind kind = DEVICE_REGION_FD; kind <= DEVICE_REGION_IPC; kind++) {
        struct cuda_stage stage;
        struct lender lender = make_lender(kind, 1);
        cuda_stage_init(&stage, 64 * MIB, 1);
        cuda_stage_add_few_tensors(&stage);
        assert_refused(&stage, &lender, offer(&lender), "REGION_ELSEWHERE");
        cuda_stage_fini(&stage, false);
        end_lender(&lender);
    }
}

static void memory_of_a_gpu_is_not_filled_as_host_memory(void **state)
{
    struct cuda_stage stage;
    struct lender lender = make_lender(DEVICE_REGION_FD, 0);
    (void)state;
    cuda_stage_init(&stage, 64 * MIB, 1);
    cuda_stage_add_few_tensors(&stage);
    struct load *load = adopt(&stage, stage.scene.device, offer(&lender));
    assert_true(load->has_failed);
    assert_int_equal(load->error.code, ERROR_INVALID_ARGUMENT);
    assert_string_equal(load->error.reason, "REGION_ELSEWHERE");
    assert_true(is_told(&lender));
    load_destroy(load);
    cuda_stage_fini(&stage, false);
    end_lender(&lender);
}

/* --- failing calls ----------------------------------------------------------------------------------------------------- */

static void fail_each(enum device_region_kind kind, int code, bool is_sticky)
{
    struct lender lender = make_lender(kind, 0);
    current = &lender;
    fail_each_call(load_into, code, is_sticky);
    end_lender(&lender);
}

static void any_call_may_fail_for_memory_lent_by_descriptor(void **state)
{
    (void)state;
    fail_each(DEVICE_REGION_FD, OUT_OF_MEMORY, false);
    fail_each(DEVICE_REGION_FD, LAUNCH_FAILURE, true);
}

static void any_call_may_fail_for_memory_lent_by_ipc_handle(void **state)
{
    (void)state;
    fail_each(DEVICE_REGION_IPC, OUT_OF_MEMORY, false);
    fail_each(DEVICE_REGION_IPC, LAUNCH_FAILURE, true);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_fills_memory_lent_by_descriptor_and_nothing_around_it),
        cmocka_unit_test(a_load_fills_memory_lent_by_ipc_handle_and_nothing_around_it),
        cmocka_unit_test(the_client_is_told_only_when_no_copy_is_under_way),
        cmocka_unit_test(a_client_is_not_told_while_copies_may_still_come),
        cmocka_unit_test(memory_is_not_closed_under_the_copies_of_a_load_that_is_broken_off),
        cmocka_unit_test(what_a_client_says_of_its_memory_is_not_believed),
        cmocka_unit_test(memory_of_another_device_is_refused),
        cmocka_unit_test(memory_of_a_gpu_is_not_filled_as_host_memory),
        cmocka_unit_test(any_call_may_fail_for_memory_lent_by_descriptor),
        cmocka_unit_test(any_call_may_fail_for_memory_lent_by_ipc_handle),
    };
    (void)argc;
    return cuda_stage_prepare(argv[0]) ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
