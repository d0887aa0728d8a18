/* Loads whose bytes a holder has from other hosts: right, and counted to the last byte, whichever loads share a read. */
#include "tests/support/unit.h"

#include "blocks/blocks.h"
#include "tests/support/load_scene.h"

#define AUTO EXECUTOR_PREFERENCE_AUTO
#define MIB ((uint64_t)1 << 20)

enum { FAR_BLOCK_BYTES = 8 << 10, LOADS = 6, HOSTS = 3 };

/* Serves each block in its own way. All bytes come from the source, and it counts them as another host's. */
struct far_holder {
    struct block_holder base;
    uint64_t bytes[BLOCK_N_WAYS], of_host[HOSTS], left_bytes; /* atomic: told, and left to the source */
};

static const char *const host_names[HOSTS] = {"alpha", "beta", "gamma"};

static bool is_near(const struct block_holder *holder, size_t file, uint64_t offset)
{
    return (offset / holder->block_bytes + file) % 3 == 0;
}

/* Far ones from the last to the first. */
static void arrange(struct block_holder *holder, const struct source *source, struct block_place *places, size_t n)
{
    (void)source;
    for (size_t i = 0; i < n; i++)
        places[i].turn = is_near(holder, places[i].file, places[i].offset) ? 0 : n - i;
}

static void tell(struct far_holder *holder, const struct block_want *want, enum block_way way, const char *host,
                 uint64_t bytes)
{
    want->count->add(want->count, way, host, bytes);
    __atomic_add_fetch(&holder->bytes[way], bytes, __ATOMIC_RELAXED);
}

static int get_far(struct block_holder *base, struct block_want *want, struct error *error)
{
    struct far_holder *holder = (struct far_holder *)base;
    struct block_want rest = {.source = want->source, .read = want->read};
    uint64_t block = want->read.offset / base->block_bytes, bytes = 0;
    for (int i = 0; i < want->read.n_iov; i++)
        bytes += want->read.iov[i].iov_len;
    if (block % 7 == 6) {
        __atomic_add_fetch(&holder->left_bytes, bytes, __ATOMIC_RELAXED);
        return 1;
    }
    if (blocks_get(&rest, error))
        return -1;
    want->read.checksum_value = rest.read.checksum_value;
    tell(holder, want, BLOCK_ASKED, NULL, bytes);
    if (is_near(base, want->read.file, want->read.offset)) {
        tell(holder, want, BLOCK_FROM_SOURCE, NULL, bytes + 5); /* whole pieces */
    } else if (block % 7 == 5) {
        tell(holder, want, BLOCK_FROM_SOURCE, NULL, bytes);
        tell(holder, want, BLOCK_HEDGED, NULL, bytes);
    } else if (block % 7 == 4) {
        tell(holder, want, BLOCK_KEPT, NULL, bytes);
    } else {
        tell(holder, want, BLOCK_FROM_HOST, host_names[block % HOSTS], bytes / 3);
        tell(holder, want, BLOCK_FROM_HOST, host_names[(block + 1) % HOSTS], bytes - bytes / 3);
        __atomic_add_fetch(&holder->of_host[block % HOSTS], bytes / 3, __ATOMIC_RELAXED);
        __atomic_add_fetch(&holder->of_host[(block + 1) % HOSTS], bytes - bytes / 3, __ATOMIC_RELAXED);
    }
    return 0;
}

static void assert_counted(struct load *const *loads, size_t n, const struct far_holder *holder)
{
    uint64_t read = 0, peer = 0, hedged = 0, of_host[HOSTS] = {0};
    for (size_t i = 0; i < n; i++) {
        const struct from_hosts *from = run_from_hosts(loads[i]->run);
        uint64_t sum = 0;
        for (size_t h = 0; h < from->n; h++) {
            size_t host = from->list[h].name[0] == 'a' ? 0 : from->list[h].name[0] == 'b' ? 1 : 2;
            assert_string_equal(from->list[h].name, host_names[host]);
            of_host[host] += from->list[h].bytes;
            sum += from->list[h].bytes;
        }
        assert_int_equal(sum, loads[i]->report.peer_bytes);
        read += loads[i]->report.read_bytes;
        peer += loads[i]->report.peer_bytes;
        hedged += loads[i]->report.hedged_bytes;
    }
    assert_int_equal(read, holder->bytes[BLOCK_FROM_SOURCE] + holder->left_bytes);
    assert_int_equal(peer, holder->bytes[BLOCK_FROM_HOST]);
    assert_int_equal(hedged, holder->bytes[BLOCK_HEDGED]);
    for (size_t h = 0; h < HOSTS; h++)
        assert_int_equal(of_host[h], holder->of_host[h]);
}

static void run_random_loads(uint64_t seed, bool hides_address)
{
    struct load_scene scene;
    struct load *loads[LOADS];
    struct far_holder holder = {.base = {.get = get_far, .arrange = arrange, .block_bytes = FAR_BLOCK_BYTES}};
    scene_init(&scene, seed, 64 * MIB, 0, 64 * MIB);
    scene_use_extent_cache(&scene, 64 * MIB, 64 * MIB);
    scene_add_mixed_tensors(&scene, 30, 300);
    scene_write(&scene, 3, false);
    scene_move_away(&scene)->base.caps.request_bytes = MIB;
    scene.holders = &holder.base;
    struct device_fault *device = device_fault_create(scene.device);
    device->hides_address = hides_address;
    for (size_t i = 0; i < LOADS; i++) {
        loads[i] = scene_load_create_random(&scene, AUTO, &device->base);
        scene_load_start(loads[i]);
    }
    scene_wait(&scene);
    for (size_t i = 0; i < LOADS; i++)
        assert_true(load_has_succeeded(loads[i]));
    assert_counted(loads, LOADS, &holder);
    for (size_t way = 0; way < BLOCK_N_WAYS; way++)
        assert_true(holder.bytes[way] > 0);
    for (size_t i = 0; i < LOADS; i++)
        load_destroy(loads[i]);
    device_destroy(&device->base);
    scene_fini(&scene);
}

TEST(loads_that_share_reads_have_every_byte_right_and_counted_once)
{
    for (uint64_t seed = 1; seed < 7; seed++)
        run_random_loads(seed, seed % 3 == 0);
}

TEST(a_load_alone_is_told_from_whom_its_bytes_came)
{
    struct load_scene scene;
    struct far_holder holder = {.base = {.get = get_far, .arrange = arrange, .block_bytes = FAR_BLOCK_BYTES}};
    scene_init(&scene, 3, 64 * MIB, 0, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){3 * MIB});
    scene_write(&scene, 1, false);
    scene.holders = &holder.base;
    struct load *load = scene_load_create_item(&scene, "t.0", 0, NULL, AUTO);
    scene_load_start(load);
    scene_wait(&scene);
    assert_true(load_has_succeeded(load));
    assert_counted(&load, 1, &holder);
    assert_int_equal(load->report.shared_bytes, holder.bytes[BLOCK_KEPT]);
    load_destroy(load);
    scene_fini(&scene);
}
