/* Threads that read from stores: whose turn it is, and the table of origins. No thread is started. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "execute/engine_private.h"

#undef fail /* ours is in base/error.h */

enum { ANN = 71001, BOB = 71002, LIMIT = 32 };

static struct engine engine;
static struct segment segment = {.host_address = (unsigned char *)&segment};

static int open_pool(void **state)
{
    (void)state;
    memset(&engine, 0, sizeof engine);
    remote_pool_init(&engine.remote, &(struct engine_options){.staging_budget_bytes = 64 << 20});
    return 0;
}

static int close_pool(void **state)
{
    (void)state;
    for (struct remote_origin *origin = engine.remote.origins; origin; origin = origin->next) {
        while (origin->shares) {
            struct remote_share *next = origin->shares->next;
            free(origin->shares);
            origin->shares = next;
        }
    }
    remote_pool_fini(&engine.remote);
    return 0;
}

struct load { /* as much of one as the pool looks at */
    struct source source;
    struct artifact artifact;
    struct mapping mapping;
    struct run run;
};

static struct load *attach(uid_t uid, const char *reference)
{
    struct load *load = memory_alloc(sizeof *load);
    load->source = (struct source){
        .reference = memory_copy_text(reference),
        .caps = {SOURCE_CAPS_OF_REQUESTS, .request_bytes = 16 << 20, .parallel_requests = LIMIT},
    };
    load->artifact.source = &load->source;
    load->mapping.artifact = &load->artifact;
    load->run.engine = &engine;
    load->run.options = (struct run_options){.mapping = &load->mapping, .segment = &segment, .uid = uid};
    load->run.memory = destination_of_segment(&segment);
    load->run.destination = &load->run.memory;
    load->run.stage = RUN_ACTIVE;
    load->run.needs.n_pending = 1000;
    remote_pool_attach(&load->run);
    return load;
}

static void detach(struct load *load)
{
    remote_pool_detach(&load->run);
    free((char *)load->source.reference);
    free(load);
}

static void read_blocks(struct load *load, uint32_t n)
{
    struct remote_origin *origin = load->run.origin;
    struct remote_share *share = origin->shares;
    while (share && share->uid != load->run.options.uid)
        share = share->next;
    if (!share) {
        share = memory_alloc(sizeof *share);
        *share = (struct remote_share){.next = origin->shares, .uid = load->run.options.uid};
        origin->shares = share;
    }
    share->n_in_flight += n;
    origin->n_in_flight += n;
    engine.remote.n_busy += n;
}

/* How many more blocks it may take, one after the other. */
static uint32_t take_all(struct load *load)
{
    uint32_t n = 0;
    while (remote_pool_may_take(&load->run)) {
        read_blocks(load, 1);
        n++;
    }
    return n;
}

/* --- origins --- */

TEST_IN(an_origin_in_use_stays_whose_it_is_when_many_others_come, open_pool, close_pool)
{
    struct load *first = attach(ANN, "gs://first/model");
    struct remote_origin *origin = first->run.origin;
    size_t n_origins = 0;
    for (unsigned i = 0; i < REMOTE_MAX_IDLE_ORIGINS + 2; i++) {
        char reference[64];
        snprintf(reference, sizeof reference, "gs://bucket-%u/model", i);
        struct load *other = attach(ANN, reference);
        assert_ptr_not_equal(other->run.origin, origin);
        reference[strlen(reference) - strlen("/model")] = '\0';
        assert_string_equal(other->run.origin->name, reference);
        detach(other);
    }
    for (const struct remote_origin *each = engine.remote.origins; each; each = each->next)
        n_origins++;
    assert_int_equal(n_origins, 1 + REMOTE_MAX_IDLE_ORIGINS);
    assert_string_equal(origin->name, "gs://first");
    detach(first);
}

TEST_IN(long_names_that_begin_alike_are_different_origins, open_pool, close_pool)
{
    char reference[2][400];
    for (int i = 0; i < 2; i++)
        snprintf(reference[i], sizeof reference[i], "https://%0250d%d.example/model", 0, i);
    struct load *a = attach(ANN, reference[0]), *b = attach(ANN, reference[1]);
    assert_ptr_not_equal(a->run.origin, b->run.origin);
    detach(a);
    detach(b);
}

TEST_IN(blocks_of_a_run_are_no_larger_than_its_holders, open_pool, close_pool)
{
    struct block_holder holder = {.block_bytes = 4 << 20};
    struct load *load = attach(ANN, "gs://a/model");
    assert_int_equal(load->run.block_bytes, 16 << 20);
    load->run.options.holders = &holder;
    for (int round = 0; round < 3; round++) {
        static const uint64_t given[] = {4 << 20, 64 << 20, 0}, expected[] = {4 << 20, 16 << 20, 16 << 20};
        holder.block_bytes = given[round];
        remote_pool_detach(&load->run);
        remote_pool_attach(&load->run);
        assert_int_equal(load->run.block_bytes, expected[round]);
    }
    detach(load);
}

/* --- turns --- */

TEST_IN(one_load_gets_all_that_its_origin_allows, open_pool, close_pool)
{
    struct load *load = attach(ANN, "gs://a/model");
    assert_int_equal(take_all(load), LIMIT);
    detach(load);
}

TEST_IN(the_last_threads_are_for_who_has_few, open_pool, close_pool)
{
    struct load *busy[7], *other, *of_bob;
    for (unsigned i = 0; i < 7; i++) {
        char reference[64];
        snprintf(reference, sizeof reference, "http://slow-%u/model", i);
        busy[i] = attach(ANN, reference);
        assert_int_equal(take_all(busy[i]), LIMIT);
    }
    other = attach(ANN, "http://another/model");
    assert_int_equal(take_all(other), 0); /* Ann has 224 of 256 */
    of_bob = attach(BOB, "http://good/model");
    assert_int_equal(take_all(of_bob), REMOTE_MAX_THREADS / 16);
    for (unsigned i = 0; i < 7; i++)
        detach(busy[i]);
    detach(other);
    detach(of_bob);
}

TEST_IN(root_loads_leave_threads_to_another_origin, open_pool, close_pool)
{
    struct load *busy[8], *other;
    for (unsigned i = 0; i < 8; i++) {
        char reference[64];
        snprintf(reference, sizeof reference, "http://slow-%u/model", i);
        busy[i] = attach(0, reference);
        take_all(busy[i]);
    }
    other = attach(0, "http://good/model");
    assert_true(take_all(other) > 0);
    for (unsigned i = 0; i < 8; i++)
        detach(busy[i]);
    detach(other);
}
