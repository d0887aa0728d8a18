/* Memory that clients offer over the hand-off socket, spoken to by hand: tokens for it, and offers that are not taken. */
#include "tests/support/unit.h"

#include "observe/log.h"
#include "replica/handoff.h"
#include "tests/support/handoff_stage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void take_region(struct handoff_question *request)
{
    struct error error;
    if (handoff_take_region(request->stage->handoff, request->token, sizeof request->token, request->uid, &request->region,
                            &error) == 0)
        return;
    memcpy(request->reason, error.reason, sizeof request->reason);
    request->code = error.code;
}

/* --- memory that a client offers --------------------------------------------------------------------------------------- */

static int offer_memory(const struct handoff_stage *stage, const void *offer, size_t bytes, int memory_fd, size_t n_fds)
{
    const int fds[4] = {memory_fd, memory_fd, memory_fd, memory_fd};
    return handoff_stage_send(stage, offer, bytes, fds, n_fds);
}

static struct device_region *take(struct handoff_stage *stage, const unsigned char *token, uid_t uid)
{
    struct handoff_question request = {.uid = uid};
    memcpy(request.token, token, sizeof request.token);
    handoff_stage_ask(stage, &request, take_region);
    if (!request.region) { /* as after a restart of the daemon: a program that retries offers it anew */
        assert_string_equal(request.reason, "REGION_UNKNOWN");
        assert_int_equal(request.code, ERROR_ABORTED);
    }
    return request.region;
}

TEST_IN(an_offer_buys_a_token_and_ends_with_the_regions_end, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES + 1];
    for (uint32_t kind = HANDOFF_REGION_FD; kind <= HANDOFF_REGION_IPC; kind++) {
        struct handoff_region offer = handoff_stage_offer(kind);
        int fd = offer_memory(stage, &offer, sizeof offer, fileno(stderr), kind == HANDOFF_REGION_FD);
        assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
        struct device_region *region = take(stage, token, getuid());
        assert_non_null(region);
        assert_int_equal(region->kind, kind == HANDOFF_REGION_FD ? DEVICE_REGION_FD : DEVICE_REGION_IPC);
        assert_int_equal(region->memory_fd >= 0, kind == HANDOFF_REGION_FD);
        assert_int_equal(region->allocation_bytes, 4096);
        assert_int_equal(region->offset, 64);
        assert_int_equal(region->bytes, 1000);
        assert_memory_equal(region->ipc, offer.ipc, sizeof offer.ipc);
        assert_null(take(stage, token, getuid())); /* once */
        assert_int_equal(recv(fd, token, sizeof token, MSG_DONTWAIT), -1);
        device_region_close(region);
        assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), 0);
        close(fd);
    }
}

static int sealed_memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

TEST_IN(the_size_of_an_offered_memfd_is_its_own_and_its_identity_is_kept, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = handoff_stage_offer(HANDOFF_REGION_HOST);
    struct device_region *regions[2];
    int memory = sealed_memfd(12345, F_SEAL_SHRINK), fds[2];
    for (size_t i = 0; i < 2; i++) {
        fds[i] = offer_memory(stage, &offer, sizeof offer, memory, 1);
        assert_int_equal(handoff_stage_next_message(fds[i], token, sizeof token), HANDOFF_TOKEN_BYTES);
        regions[i] = take(stage, token, getuid());
        assert_non_null(regions[i]);
        assert_int_equal(regions[i]->kind, DEVICE_REGION_HOST);
        assert_int_equal(regions[i]->bytes, 12345);
        assert_int_equal(regions[i]->offset, 0);
    }
    assert_int_not_equal(regions[0]->memory_inode, 0);
    assert_int_equal(regions[0]->memory_inode, regions[1]->memory_inode);
    assert_int_equal(regions[0]->memory_device, regions[1]->memory_device);
    regions[0]->next = regions[1];
    device_region_close(regions[0]); /* and what is behind it */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(handoff_stage_next_message(fds[i], token, sizeof token), 0);
        close(fds[i]);
    }
    close(memory);
}

TEST_IN(an_offered_descriptor_that_cannot_be_filled_is_refused_and_its_connection_closed, handoff_stage_open,
        handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = handoff_stage_offer(HANDOFF_REGION_HOST);
    int bad[] = {sealed_memfd(4096, 0), sealed_memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE), sealed_memfd(0, F_SEAL_SHRINK),
                 open("/dev/null", O_RDWR | O_CLOEXEC)};
    static const char *const reasons[] = {"REGION_CAN_SHRINK", "REGION_IS_SEALED", "REGION_EMPTY", "REGION_NOT_MEMFD"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = offer_memory(stage, &offer, sizeof offer, bad[i], 1);
        assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
        struct handoff_question request = {.uid = getuid()};
        memcpy(request.token, token, sizeof request.token);
        handoff_stage_ask(stage, &request, take_region);
        assert_null(request.region);
        assert_string_equal(request.reason, reasons[i]);
        assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), 0);
        close(fd);
        close(bad[i]);
    }
}

TEST_IN(somebody_elses_region_is_not_given, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = handoff_stage_offer(HANDOFF_REGION_IPC);
    int fd = offer_memory(stage, &offer, sizeof offer, -1, 0);
    assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
    assert_null(take(stage, token, getuid() + 1));
    token[0] ^= 1;
    assert_null(take(stage, token, getuid()));
    token[0] ^= 1;
    struct device_region *region = take(stage, token, getuid());
    assert_non_null(region);
    device_region_close(region);
    close(fd);
}

TEST_IN(an_offer_dies_with_its_connection_or_by_talking_on, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = handoff_stage_offer(HANDOFF_REGION_IPC);
    for (int i = 0; i < 2; i++) {
        int fd = offer_memory(stage, &offer, sizeof offer, -1, 0);
        assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
        if (i == 0)
            shutdown(fd, SHUT_WR);
        else
            assert_int_equal(send(fd, "more", 4, MSG_NOSIGNAL), 4);
        assert_true(handoff_stage_next_message(fd, token, sizeof token) <= 0); /* unread words make it a reset */
        assert_null(take(stage, token, getuid()));
        close(fd);
    }
}

static void count_replica(void *count, const struct replica *replica)
{
    (void)replica;
    ++*(uint64_t *)count;
}

static void add_lent_replica(struct handoff_question *request)
{
    struct handoff_stage *stage = request->stage;
    struct replica parts = {.key = stage->replica->key};
    struct error error;
    parts.key.view_digest[0] = 'x';
    parts.mapping = mapping_build(&(struct view_spec){.whole = true, .align_bytes = 64},
                                  (struct artifact *)stage->replica->mapping->artifact, &error);
    assert_int_equal(device_allocate(stage->device, 8, &parts.segment, &error), 0);
    parts.segment->region = calloc(1, sizeof *parts.segment->region);
    parts.segment->region->memory_fd = parts.segment->region->lease_fd = -1;
    struct replica *replica = replica_add(stage->replicas, &parts);
    assert_null(replica_find(stage->replicas, &parts.key));
    replica_unpin(replica, replica->uid);
    replica_each(stage->replicas, count_replica, &request->number);
}

TEST_IN(a_replica_in_a_clients_memory_is_not_found_and_goes_with_its_last_pin, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question request = {0};
    handoff_stage_ask(stage, &request, add_lent_replica);
    assert_int_equal(request.number, 1); /* the stage's own */
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

TEST_IN(malformed_offers_are_closed_on_and_leave_no_descriptor, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_region offers[6];
    unsigned char longer[sizeof offers[0] + 1] = {0}, token[HANDOFF_TOKEN_BYTES];
    for (size_t i = 0; i < 6; i++)
        offers[i] = handoff_stage_offer(i == 4 ? HANDOFF_REGION_IPC : HANDOFF_REGION_FD);
    offers[0].magic[0] = 'X';
    offers[1].version++;
    offers[2].kind = 4;
    offers[3].reserved = 1; /* 4: a handle, and a descriptor all the same; 5: good, with none or too many of them */
    handoff_stage_await_closing();
    size_t before = count_descriptors();
    for (size_t i = 0; i < 5; i++) {
        int fd = offer_memory(stage, &offers[i], sizeof offers[i], fileno(stderr), 1);
        assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), 0);
        close(fd);
    }
    int without = offer_memory(stage, &offers[5], sizeof offers[5], -1, 0);
    assert_int_equal(handoff_stage_next_message(without, token, sizeof token), 0);
    close(without);
    int with_many = offer_memory(stage, &offers[5], sizeof offers[5], fileno(stderr), 4);
    assert_true(handoff_stage_next_message(with_many, token, sizeof token) <= 0); /* a reset, since it was not read */
    close(with_many);
    memcpy(longer, &offers[5], sizeof offers[5]);
    for (size_t bytes = sizeof longer; bytes > sizeof longer - 3; bytes -= 2) {
        int fd = offer_memory(stage, longer, bytes, fileno(stderr), 1);
        assert_int_equal(handoff_stage_next_message(fd, token, sizeof token), 0);
        close(fd);
    }
    struct handoff_question request = handoff_stage_token(stage, 1, getuid());
    int lease = offer_memory(stage, request.token, sizeof request.token, fileno(stderr), 1);
    struct handoff_answer answer;
    close(handoff_stage_receive(lease, &answer)); /* a descriptor beside a token is dropped */
    close(lease);
    handoff_stage_await_leases(stage, 0);
    handoff_stage_await_closing();
    assert_true(count_descriptors() <= before);
}

static int set_up_all_tests(void **state)
{
    log_set_level(LOG_ERROR);
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
