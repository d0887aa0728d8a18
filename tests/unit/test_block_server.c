/* What other hosts are given: the version that they name alone, by this host's own trust, in time, and without a second read. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "hosts/block_server.h"
#include "source/stores.h"
#include "tests/support/source_shared.h"

enum { FILE_BYTES = SHARED_BLOCK_BYTES + 1000, FILES_MAX = 512 };

static unsigned char contents[FILE_BYTES];
static const char *const roots[] = {"/nowhere"};
static struct source_options trust; /* what the server is told */
static struct loop *loop;
static struct block_cache *cache;
static struct block_server *server;
static uint64_t room_bytes;
static bool is_cancelled; /* atomic */

static uint64_t get_room(void *data)
{
    (void)data;
    return room_bytes;
}

static void tell_trust(void *data, struct source_options *options)
{
    (void)data;
    *options = trust;
}

static bool get_cancelled(void *data)
{
    (void)data;
    return __atomic_load_n(&is_cancelled, __ATOMIC_SEQ_CST);
}
static const struct cancel cancel = {get_cancelled, NULL};

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILE_BYTES; i++)
        contents[i] = (unsigned char)(i * 7 + i / 4093);
    source_shared = (struct source_shared){.bytes = contents, .n_bytes = FILE_BYTES, .version = 1};
    trust = (struct source_options){.trusted_roots = roots, .n_trusted_roots = 1};
    room_bytes = 64 << 20;
    is_cancelled = false;
    loop = loop_create();
    cache = block_cache_create(get_room, NULL);
    server = block_server_create(&(struct block_server_options){loop, cache, tell_trust, NULL});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    block_server_destroy(server);
    block_cache_destroy(cache);
    loop_destroy(loop);
    assert_int_equal(source_shared.n_closes, source_shared.n_opens);
    return 0;
}

/* As another host asks that has found the file at that version. */
static struct block_query query_of(const char *reference, const char *name, uint64_t version, uint64_t lo, uint64_t hi)
{
    struct shared_file shared;
    const char *reason;
    char text[64];
    snprintf(text, sizeof text, "version %llu", (unsigned long long)version);
    struct source_file file = {.name = name,
                               .size_bytes = FILE_BYTES,
                               .identity = source_identity_of(text, FILE_BYTES),
                               .changes_by = CHANGES_BY_VERSION};
    struct source source = {.reference = reference, .files = &file, .n_files = 1, .caps = {SOURCE_CAPS_OF_REQUESTS}};
    assert_true(shared_file_of(&source, 0, &shared, &reason));
    struct block_query query = {.reference = (char *)reference, .file = (char *)name, .lo = lo, .hi = hi};
    memcpy(query.id, shared.id, sizeof query.id);
    return query;
}

static struct block_query query_for(const char *reference, uint64_t version, uint64_t lo, uint64_t hi)
{
    return query_of(reference, "m", version, lo, hi);
}

/* The status, after the bytes of a 206 were checked. */
static int get(const struct block_query *query, uint64_t *read_bytes)
{
    struct block_reply reply;
    block_server_get(server, query, &cancel, &reply);
    int status = reply.status;
    if (status == 206) {
        assert_memory_equal(reply.bytes, contents + query->lo, query->hi - query->lo);
        assert_int_equal(reply.file_bytes, FILE_BYTES);
    } else {
        assert_true(*reply.reason);
    }
    if (read_bytes)
        *read_bytes = reply.read_bytes;
    block_reply_end(server, &reply);
    return status;
}

static int get_range(uint64_t version, uint64_t lo, uint64_t hi, uint64_t *read_bytes)
{
    const struct block_query query = query_for("shared:model", version, lo, hi);
    return get(&query, read_bytes);
}

static const char *reason_of(const char *reference, int status)
{
    static struct block_reply reply;
    const struct block_query query = query_for(reference, 1, 0, 10);
    block_server_get(server, &query, &cancel, &reply);
    assert_int_equal(reply.status, status);
    return reply.reason;
}

static void set(bool *flag, bool value)
{
    __atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

static void wait_for(const uint64_t *count, uint64_t n)
{
    for (int i = 0; i < 60000 && __atomic_load_n(count, __ATOMIC_SEQ_CST) < n; i++)
        usleep(1000);
    assert_true(__atomic_load_n(count, __ATOMIC_SEQ_CST) >= n);
}

TEST_IN(a_range_is_read_once_and_given_again_from_memory, set_up, tear_down)
{
    uint64_t read_bytes;
    assert_int_equal(get_range(1, 5, 1000, &read_bytes), 206);
    assert_int_equal(read_bytes, SHARED_PIECE_BYTES);
    assert_int_equal(get_range(1, 0, SHARED_PIECE_BYTES, &read_bytes), 206);
    assert_int_equal(read_bytes, 0);
    assert_int_equal(get_range(1, SHARED_BLOCK_BYTES, FILE_BYTES, &read_bytes), 206);
    assert_int_equal(read_bytes, FILE_BYTES - SHARED_BLOCK_BYTES);
    assert_int_equal(source_shared.n_opens, 1);
    assert_int_equal(source_shared.n_reads, 2);
}

TEST_IN(files_of_a_reference_share_what_was_asked_of_its_store, set_up, tear_down)
{
    char name[8];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "m%d", i);
        const struct block_query query = query_of("shared:model", name, 1, 0, 10);
        assert_int_equal(get(&query, NULL), 206);
    }
    assert_int_equal(source_shared.n_files, 20);
    assert_true(source_shared.n_opens < 20); /* 1, unless it takes long */
    source_shared.version = 2;
    const struct block_query fresh = query_of("shared:model", name, 2, 0, 10);
    uint64_t n_opens = source_shared.n_opens;
    assert_int_equal(get(&fresh, NULL), 206); /* and what was asked before the change is asked again */
    assert_int_equal(source_shared.n_opens, n_opens + 1);
}

TEST_IN(a_range_beyond_the_end_of_the_file_is_refused, set_up, tear_down)
{
    assert_int_equal(get_range(1, FILE_BYTES - 1, FILE_BYTES, NULL), 206);
    assert_int_equal(get_range(1, FILE_BYTES - 1, FILE_BYTES + 1, NULL), 400);
}

TEST_IN(what_is_not_held_is_not_read_for_an_ask_that_wants_no_read, set_up, tear_down)
{
    struct block_query held = query_for("shared:model", 1, 0, 100);
    held.only_held = true;
    assert_int_equal(get(&held, NULL), 404);
    assert_int_equal(source_shared.n_reads, 0);
    assert_int_equal(get_range(1, 0, 100, NULL), 206);
    assert_int_equal(get(&held, NULL), 206);
    assert_int_equal(source_shared.n_reads, 1);
}

TEST_IN(another_version_is_looked_for_once, set_up, tear_down)
{
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
    assert_int_equal(get_range(2, 0, 10, NULL), 412); /* the asker is ahead, or wrong */
    assert_int_equal(get_range(2, 0, 10, NULL), 412);
    assert_int_equal(source_shared.n_opens, 2);
    source_shared.version = 3;
    assert_int_equal(get_range(3, 0, 10, NULL), 206);
    assert_int_equal(get_range(1, 0, 10, NULL), 412); /* a load that began before the change */
    assert_int_equal(get_range(3, 0, 10, NULL), 206);
    assert_int_equal(source_shared.n_opens, 4);
    assert_int_equal(source_shared.n_reads, 2);
}

TEST_IN(a_file_that_changes_while_it_is_read_is_opened_again, set_up, tear_down)
{
    source_shared.read_code = ERROR_FAILED_PRECONDITION;
    source_shared.read_reason = REASON(OBJECT_CHANGED);
    assert_int_equal(get_range(1, 0, 10, NULL), 412);
    source_shared.read_code = ERROR_OK;
    source_shared.version = 2;
    assert_int_equal(get_range(1, 0, 10, NULL), 412);
    assert_int_equal(get_range(2, 0, 10, NULL), 206);
    assert_int_equal(source_shared.n_opens, 2);
}

TEST_IN(a_file_without_a_strong_version_is_not_shared, set_up, tear_down)
{
    source_shared.is_weak = true;
    assert_int_equal(get_range(1, 0, 10, NULL), 412);
    source_shared.is_weak = false; /* and that is not remembered */
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
}

TEST_IN(what_is_not_there_or_not_trusted_is_refused_whoever_asks, set_up, tear_down)
{
    struct stores *stores;
    struct error error;
    static const char text[] = "sources: {trusted_urls: [\"https://127.0.0.1:9/models/\"]}";
    struct config *config = config_parse(text, strlen(text), "test.yaml", &error);
    assert_non_null(config);
    assert_int_equal(stores_create(config, NULL, &stores, &error), 0);
    trust.stores = stores;
    trust.allow_relative = true; /* a host trusts no path for being of one user */
    reason_of("shared:absent", 403);
    reason_of("nothing:absent", 403);
    assert_non_null(strstr(reason_of("disk:/proc/self/environ", 403), "trusted"));
    reason_of("disk:proc/self/environ", 403);
    assert_non_null(strstr(reason_of("https://127.0.0.1:9/other/m", 403), "sources.trusted_urls"));
    const struct block_query trusted = query_for("https://127.0.0.1:9/models/m", 1, 0, 10);
    int status = 504;
    while (status == 504)
        status = get(&trusted, NULL);
    assert_int_equal(status, 502); /* there is no server */
    block_server_destroy(server);
    server = NULL;
    stores_destroy(stores);
    config_destroy(config);
}

TEST_IN(a_reload_that_changes_what_is_trusted_counts_at_once, set_up, tear_down)
{
    static const char *const others[] = {"/elsewhere"};
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
    trust.trusted_roots = others;
    source_shared.open_code = ERROR_PERMISSION_DENIED;
    assert_int_equal(get_range(1, 0, 10, NULL), 403);
    source_shared.open_code = ERROR_OK;
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
    assert_int_equal(source_shared.n_reads, 1);
}

TEST_IN(errors_of_the_source_are_told_and_tried_again, set_up, tear_down)
{
    source_shared.open_code = ERROR_UNAVAILABLE;
    assert_non_null(strstr(reason_of("shared:model", 502), "does not open it"));
    source_shared.open_code = ERROR_OK;
    source_shared.read_code = ERROR_UNAVAILABLE;
    source_shared.read_reason = "NO_ANSWER";
    assert_non_null(strstr(reason_of("shared:model", 502), "does not answer"));
    source_shared.read_code = ERROR_OK;
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
}

TEST_IN(without_memory_nothing_is_read, set_up, tear_down)
{
    room_bytes = 0;
    assert_int_equal(get_range(1, 0, 10, NULL), 507);
    assert_int_equal(source_shared.n_reads, 0);
}

TEST_IN(an_asker_is_told_of_a_read_that_takes_long_and_the_read_goes_on, set_up, tear_down)
{
    source_shared.reads_wait = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(get_range(1, 0, 10, NULL), 504);
    wait_for(&source_shared.n_reads, 1);
    set(&source_shared.reads_wait, false);
    while (get_range(1, 0, 10, NULL) == 504)
        ;
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
    assert_int_equal(source_shared.n_reads, 1);
}

TEST_IN(an_asker_is_told_of_a_file_that_takes_long_to_open, set_up, tear_down)
{
    source_shared.opens_wait = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(get_range(1, 0, 10, NULL), 504);
    set(&source_shared.opens_wait, false);
    while (get_range(1, 0, 10, NULL) == 504)
        ;
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
    assert_int_equal(source_shared.n_opens, 1);
}

TEST_IN(a_cancelled_ask_ends_and_leaves_the_read_to_others, set_up, tear_down)
{
    source_shared.reads_wait = true;
    is_cancelled = true;
    assert_int_equal(get_range(1, 0, 10, NULL), 504);
    set(&is_cancelled, false);
    set(&source_shared.reads_wait, false);
    while (get_range(1, 0, 10, NULL) == 504)
        ;
    assert_int_equal(get_range(1, 0, 10, NULL), 206);
}

static void *get_in_thread(void *status)
{
    *(int *)status = get_range(1, 0, 10, NULL);
    return NULL;
}

TEST_IN(many_askers_at_once_cost_one_open_and_one_read, set_up, tear_down)
{
    enum { ASKERS = 24 };
    pthread_t threads[ASKERS];
    int statuses[ASKERS];
    source_shared.opens_wait = true;
    for (size_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_in_thread, &statuses[i]), 0);
    wait_for(&source_shared.n_files, 1);
    set(&source_shared.opens_wait, false);
    for (size_t i = 0; i < ASKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(statuses[i] == 206 || statuses[i] == 504); /* on a host with much to do */
    }
    while (get_range(1, 0, 10, NULL) == 504)
        ;
    assert_int_equal(source_shared.n_opens, 1);
    assert_int_equal(source_shared.n_reads, 1);
}

TEST_IN(a_server_that_stops_answers_no_ask_and_ends_its_reads, set_up, tear_down)
{
    int status;
    pthread_t thread;
    assert_int_equal(get_range(1, SHARED_BLOCK_BYTES, FILE_BYTES, NULL), 206);
    source_shared.reads_wait = true;
    assert_int_equal(pthread_create(&thread, NULL, get_in_thread, &status), 0);
    wait_for(&source_shared.n_reads, 2);
    block_server_stop(server);
    pthread_join(thread, NULL);
    assert_true(status == 502 || status == 504); /* a second may have passed before it stopped */
    assert_int_equal(get_range(1, SHARED_BLOCK_BYTES, FILE_BYTES, NULL), 502);
    block_server_destroy(server); /* while the read would wait forever */
    server = NULL;
}

TEST_IN(the_file_that_was_asked_for_least_recently_is_closed_for_one_too_many, set_up, tear_down)
{
    char reference[32];
    for (int i = 0; i <= FILES_MAX; i++) {
        snprintf(reference, sizeof reference, "shared:model%d", i);
        const struct block_query query = query_for(reference, 1, 0, 10);
        assert_int_equal(get(&query, NULL), 206);
        assert_int_equal(source_shared.n_opens, i + 1);
        assert_int_equal(source_shared.n_closes, i == FILES_MAX);
    }
    const struct block_query kept = query_for("shared:model1", 1, 0, 10), gone = query_for("shared:model0", 1, 0, 10);
    assert_int_equal(get(&kept, NULL), 206);
    assert_int_equal(source_shared.n_opens, FILES_MAX + 1);
    assert_int_equal(get(&gone, NULL), 206);
    assert_int_equal(source_shared.n_opens, FILES_MAX + 2);
    assert_int_equal(source_shared.n_reads, 1); /* it is one file under all names */
    block_server_trim(server);                  /* a minute has not passed */
    assert_int_equal(get(&kept, NULL), 206);
    assert_int_equal(source_shared.n_opens, FILES_MAX + 2);
}
