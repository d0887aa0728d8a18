/* Blocks that their owner reads before a host asks for them: whole hosts in one process. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <unistd.h>

#include "tests/support/host_fleet.h"
#include "tests/support/source_shared.h"

enum { BLOCK = SHARED_BLOCK_BYTES, FILE_BYTES = 8 * BLOCK };

static unsigned char contents[FILE_BYTES];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILE_BYTES; i++)
        contents[i] = (unsigned char)(i * 2654435761 >> 24);
    source_shared = (struct source_shared){.bytes = contents, .n_bytes = FILE_BYTES, .version = 1};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fleet_stop();
    return 0;
}

static uint64_t get_read_bytes(void)
{
    return __atomic_load_n(&source_shared.read_bytes, __ATOMIC_SEQ_CST);
}

/* As a host wants it. Returns how much of it another host sent. */
static uint64_t get_block(size_t host, uint64_t block)
{
    static unsigned char memory[BLOCK];
    const struct iovec iov = {memory, BLOCK};
    struct fleet_count count;
    struct error error;
    struct block_want want = fleet_want(host, block * BLOCK, &iov, 1, &count);
    assert_int_equal(blocks_get(&want, &error), 0);
    assert_memory_equal(memory, contents + block * BLOCK, BLOCK);
    return count.bytes[BLOCK_FROM_HOST];
}

static bool read_ahead(size_t host, uint64_t block)
{
    struct block_holder *holder = peers_holder(fleet[host].peers);
    const struct block_want want = {.source = fleet[host].source, .read = {.offset = block * BLOCK, .uid = fleet[host].uid}};
    return holder->read_ahead(holder, &want, BLOCK);
}

TEST_IN(a_block_that_its_owner_has_read_ahead_is_not_read_again_when_it_is_asked_for, set_up, tear_down)
{
    fleet_start(2);
    uint64_t block = fleet_block_of(1, 0);
    assert_true(read_ahead(1, block));
    assert_true(read_ahead(1, block));
    assert_int_equal(get_read_bytes(), BLOCK);
    assert_int_equal(get_block(0, block), BLOCK);
    assert_int_equal(get_read_bytes(), BLOCK);
}

TEST_IN(reading_ahead_ends_where_there_is_no_room_or_the_source_fails, set_up, tear_down)
{
    fleet_start(2);
    __atomic_store_n(&fleet[1].room_bytes, BLOCK, __ATOMIC_SEQ_CST); /* half of it is less than a block */
    assert_false(read_ahead(1, 0));
    __atomic_store_n(&fleet[1].room_bytes, 4 * BLOCK, __ATOMIC_SEQ_CST);
    source_shared.read_reason = "NO_ANSWER";
    __atomic_store_n(&source_shared.read_code, ERROR_UNAVAILABLE, __ATOMIC_SEQ_CST);
    assert_false(read_ahead(1, 0));
    __atomic_store_n(&source_shared.read_code, ERROR_OK, __ATOMIC_SEQ_CST);
    assert_true(read_ahead(1, 0));
}

static void *read_ahead_of_first(void *data)
{
    *(bool *)data = read_ahead(0, fleet_block_of(0, 0));
    return NULL;
}

/* As hosts_leave() does it: a store that hangs would keep the daemon from ending. */
TEST_IN(reading_ahead_ends_when_the_host_leaves, set_up, tear_down)
{
    pthread_t thread;
    bool goes_on = true;
    fleet_start(1);
    __atomic_store_n(&source_shared.reads_wait, true, __ATOMIC_SEQ_CST);
    pthread_create(&thread, NULL, read_ahead_of_first, &goes_on);
    while (__atomic_load_n(&source_shared.n_reads, __ATOMIC_SEQ_CST) == 0)
        usleep(1000);
    peers_stop(fleet[0].peers);
    pthread_join(thread, NULL);
    __atomic_store_n(&source_shared.reads_wait, false, __ATOMIC_SEQ_CST);
    assert_false(goes_on || read_ahead(0, fleet_block_of(0, 1)));
    assert_int_equal(get_read_bytes(), 0);
    assert_int_equal(get_block(0, 0), 0); /* wants go on */
}
