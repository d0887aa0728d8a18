/* See peers.h. A want is done on the thread that asks:
 *
 *     get_from_hosts() --> get_spans() --> get_span() --> the owner: ask_owner()
 *                                                    '--> this host: read_own(), or find_elsewhere() */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/memory.h"
#include "hosts/block_cache.h"
#include "hosts/block_runs.h"
#include "hosts/peers_private.h"

/* What an answer may take, however quickly the owner reads; with the wait for a connection. More than the silence that the
 * engine bears (hosts.c), so that a host which says nothing is told from one which is slow. */
static const uint64_t answer_ns = 12000 * (uint64_t)NS_PER_MS;
static const uint64_t ask_again_ns = 100 * (uint64_t)NS_PER_MS;

static void count(const struct peer_want *want, enum block_way way, const char *host, uint64_t bytes)
{
    if (want->of->count && bytes > 0)
        want->of->count->add(want->of->count, way, host, bytes);
}

/* By what own blocks take, and those that are read meanwhile have taken: it grows with each look. */
static uint64_t find_give_up_ns(const struct peer_ask *ask)
{
    return ask->began_ns + election_patience_ns(block_cache_read_ns(ask->span->want->peers->cache));
}

/* Until it has answered, or is late. */
static enum peer_outcome ask_owner(struct peer_ask *ask, struct error *error)
{
    enum peer_outcome outcome;
    uint64_t asked_ns, give_up_ns;
    do {
        asked_ns = clock_now_ns();
        give_up_ns = find_give_up_ns(ask);
        ask->until_ns = give_up_ns > asked_ns + answer_ns ? give_up_ns : asked_ns + answer_ns;
        outcome = peer_ask(ask, error);
        if (outcome == PEER_STILL_READS && clock_now_ns() < asked_ns + ask_again_ns) /* it has too much to do */
            clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)ask_again_ns}, NULL);
    } while (outcome == PEER_STILL_READS && clock_now_ns() < find_give_up_ns(ask));
    return outcome;
}

/* The next one in line may have what costs this host much. */
static bool find_elsewhere(const struct peer_span *span, struct error *error)
{
    const struct peer_want *want = span->want;
    uint64_t now_ns = clock_now_ns(), own_read_ns = block_cache_read_ns(want->peers->cache);
    if (!election_asks_next(own_read_ns))
        return false;
    size_t next = peers_choose(&(struct peer_search){.want = want, .is_own_out = true}, span->lo);
    if (next >= want->set->n) /* there is none */
        return false;
    struct peer_ask ask = {.span = span,
                           .peer = want->set->list[next],
                           .only_held = true,
                           .began_ns = now_ns,
                           .until_ns = now_ns + election_patience_ns(own_read_ns)};
    enum peer_outcome outcome = peer_ask(&ask, error);
    /* else it has not got them, opens the file, or had others to answer first */
    if (outcome != PEER_MAY_NOT_READ && outcome != PEER_STILL_READS && outcome != PEER_PASSED_OVER)
        peers_note(&ask, outcome, error);
    if (outcome == PEER_GAVE_BYTES)
        count(want, BLOCK_FROM_HOST, ask.peer->name, span->wanted_bytes);
    return outcome == PEER_GAVE_BYTES;
}

static int read_own(const struct peer_span *span, const struct peer_search *search, struct error *error)
{
    const struct peer_want *want = span->want;
    const struct source_read *read = &want->of->read;
    struct block_ask ask = {.file = want->file,
                            .lo = span->lo,
                            .hi = span->hi,
                            .source_file = read->file,
                            .uid = read->uid,
                            .cancel = read->cancel};
    const unsigned char *bytes;
    struct cached_block *pin;
    enum block_answer answer = block_cache_get(want->peers->cache, &ask, &bytes, &pin, error);
    if (answer == BLOCK_ABSENT) {
        if (search->n_tried == 0 && find_elsewhere(span, error))
            return 0;
        ask.source = want->of->source;
        answer = block_cache_get(want->peers->cache, &ask, &bytes, &pin, error);
    }
    if (answer == BLOCK_FAILED)
        return -1;
    if (answer == BLOCK_HERE) {
        for (int i = 0, w = 0; w < span->wanted.n; bytes += span->all.iov[i++].iov_len)
            if (span->all.iov[i].iov_base == span->wanted.iov[w].iov_base)
                memcpy(span->wanted.iov[w++].iov_base, bytes, span->all.iov[i].iov_len);
        block_cache_unpin(want->peers->cache, pin);
    } else { /* no room */
        struct block_want direct = {.source = want->of->source, .read = *read};
        direct.read.offset = span->lo;
        direct.read.iov = span->all.iov;
        direct.read.n_iov = span->all.n;
        direct.read.checksum = CHECKSUM_NONE;
        direct.read.arrival = NULL;
        ask.read_bytes = span->hi - span->lo;
        if (blocks_get(&direct, error))
            return -1;
    }
    count(want, BLOCK_FROM_SOURCE, NULL, ask.read_bytes);
    count(want, BLOCK_KEPT, NULL, span->wanted_bytes > ask.read_bytes ? span->wanted_bytes - ask.read_bytes : 0);
    count(want, BLOCK_HEDGED, NULL, search->is_hedged ? ask.read_bytes : 0);
    return 0;
}

static int get_span(const struct peer_span *span, struct error *error)
{
    const struct peer_want *want = span->want;
    struct peer_search search = {.want = want};
    for (;;) {
        size_t owner = peers_choose(&search, span->lo);
        if (owner == want->set->n)
            return read_own(span, &search, error);
        struct peer_ask ask = {.span = span, .peer = want->set->list[owner], .began_ns = clock_now_ns()};
        enum peer_outcome outcome = ask_owner(&ask, error);
        peers_note(&ask, outcome, error);
        if (outcome == PEER_GIVEN_UP)
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while %s was asked for a block", ask.peer->name);
        if (outcome == PEER_GAVE_BYTES) {
            count(want, BLOCK_FROM_HOST, ask.peer->name, span->wanted_bytes);
            count(want, BLOCK_HEDGED, NULL, search.is_hedged && ask.was_read ? span->wanted_bytes : 0);
            return 0;
        }
        search.tried[search.n_tried++] = owner;
        search.is_hedged = search.is_hedged || outcome != PEER_MAY_NOT_READ;
    }
}

/* From one run to another one of the block. */
static struct peer_span build_span(const struct peer_want *want, const struct block_run *first, const struct block_run *last,
                                   struct block_rows rows)
{
    const struct source_read *read = &want->of->read;
    unsigned char *trash = want->trash;
    size_t done = first->done;
    struct peer_span span = {
        .want = want, .lo = first->lo, .hi = last->hi, .rows = rows, .all.iov = want->all, .wanted.iov = want->wanted};
    for (uint64_t i = (uint64_t)first->i, offset = span.lo; offset < span.hi; i++, done = 0) {
        size_t left = read->iov[i].iov_len - done;
        size_t bytes = left < span.hi - offset ? left : (size_t)(span.hi - offset);
        bool goes_to_trash = block_runs_is_gap(read, (int)i);
        const struct iovec piece = {goes_to_trash ? trash : (unsigned char *)read->iov[i].iov_base + done, bytes};
        trash += goes_to_trash ? bytes : 0;
        offset += bytes;
        if (bytes == 0)
            continue;
        span.all.iov[span.all.n++] = piece;
        if (rows.stride && goes_to_trash)
            continue;
        span.wanted.iov[span.wanted.n++] = piece;
        span.wanted_bytes += bytes;
    }
    return span;
}

/* After a checksum did not match: from the source, and what is kept here of it and differs goes. */
static int read_again(const struct peer_want *want, const struct block_runs *runs, struct error *error)
{
    struct block_want fresh = {.source = want->of->source, .read = want->of->read};
    if (blocks_get(&fresh, error))
        return -1;
    want->of->read.checksum_value = fresh.read.checksum_value;
    for (const struct block_run *run = runs->list; run < runs->list + runs->n; run++) {
        const struct peer_span span = build_span(want, run, run, (struct block_rows){0});
        struct block_ask ask = {.file = want->file, .lo = span.lo, .hi = span.hi, .wait_until_ns = 1};
        const unsigned char *bytes;
        struct cached_block *pin;
        struct error ignored;
        bool is_same = true;
        if (block_cache_get(want->peers->cache, &ask, &bytes, &pin, &ignored) != BLOCK_HERE)
            continue;
        for (int i = 0; i < span.all.n; bytes += span.all.iov[i++].iov_len)
            is_same = is_same && memcmp(span.all.iov[i].iov_base, bytes, span.all.iov[i].iov_len) == 0;
        (is_same ? block_cache_unpin : block_cache_discard)(want->peers->cache, pin);
    }
    return 0;
}

static int get_spans(const struct peer_want *want, const struct block_runs *runs, struct error *error)
{
    struct source_read *read = &want->of->read;
    uint64_t told_to = read->offset;
    struct block_rows rows;
    size_t n;
    read->checksum_value = 0;
    count(want, BLOCK_ASKED, NULL, runs->bytes);
    for (size_t at = 0; at < runs->n; at += n) {
        n = block_runs_choose(runs, at, &rows);
        const struct peer_span span = build_span(want, &runs->list[at], &runs->list[at + n - 1], rows);
        if (get_span(&span, error))
            return -1;
        arrival_tell(read->arrival, span.hi - told_to);
        told_to = span.hi;
        for (int i = 0; i < span.all.n && read->checksum != CHECKSUM_NONE; i++)
            read->checksum_value =
                crc_update(read->checksum, read->checksum_value, span.all.iov[i].iov_base, span.all.iov[i].iov_len);
    }
    return 0;
}

/* Gaps that are asked for along with the rest land in the trash, which is large enough for those of a block. */
static int get_from_hosts(struct block_holder *holder, struct block_want *of, struct error *error)
{
    const struct source_read *read = &of->read;
    struct peer_want want = {.peers = (struct peers *)holder, .of = of};
    struct block_runs runs = {0};
    const char *reason;
    if (!shared_file_of(of->source, read->file, &want.file, &reason) || (read->fresh_connection && read->trash))
        return 1;
    block_runs_collect(&runs, read, read->checksum != CHECKSUM_NONE && !read->fresh_connection);
    uint64_t trash_bytes = runs.gap_bytes < SHARED_BLOCK_BYTES ? runs.gap_bytes : SHARED_BLOCK_BYTES;
    want.trash = trash_bytes ? malloc(trash_bytes) : NULL;
    int failed = 1;
    if (want.trash || !trash_bytes) {
        struct peer_set *set = peers_take_set(want.peers);
        want.set = set;
        want.reference_hash = shared_host_hash(of->source->reference);
        want.all = memory_alloc_array((size_t)read->n_iov + 1, sizeof *want.all);
        want.wanted = memory_alloc_array((size_t)read->n_iov + 1, sizeof *want.wanted);
        failed = (read->fresh_connection ? read_again : get_spans)(&want, &runs, error);
        peers_give_set(want.peers, set);
    }
    free(want.all);
    free(want.wanted);
    free(want.trash);
    block_runs_fini(&runs);
    return failed;
}

static bool serves(const struct source *source, size_t file)
{
    struct shared_file shared;
    const char *reason;
    return shared_file_of(source, file, &shared, &reason);
}

static void arrange(struct block_holder *holder, const struct source *source, struct block_place *places, size_t n)
{
    struct peers *peers = (struct peers *)holder;
    struct peer_set *set = peers_take_set(peers);
    struct peer_want want = {.peers = peers, .set = set, .reference_hash = shared_host_hash(source->reference)};
    uint32_t *n_of_owner = memory_alloc_array(set->n + 1, sizeof *n_of_owner);
    const char *reason;
    bool is_shared = false;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || places[i].file != places[i - 1].file)
            is_shared = shared_file_of(source, places[i].file, &want.file, &reason);
        size_t owner = is_shared ? peers_choose(&(struct peer_search){.want = &want}, places[i].offset) : set->n;
        places[i].turn = owner == set->n ? 0 : election_turn(set->hashes[set->n], set->hashes[owner], n_of_owner[owner]++);
    }
    free(n_of_owner);
    peers_give_set(peers, set);
}

struct ahead_cancel {
    const struct cancel *of_want;
    const struct peers *peers;
};

static bool is_ahead_over(void *data)
{
    const struct ahead_cancel *cancel = data;
    return cancel_is_set(cancel->of_want) || __atomic_load_n(&cancel->peers->is_stopped, __ATOMIC_RELAXED);
}

/* What another ask reads at the moment is as good as read. It is not counted as the load's: other hosts are to have it. */
static bool read_ahead(struct block_holder *holder, const struct block_want *want, uint64_t bytes)
{
    const struct peers *peers = (struct peers *)holder;
    struct ahead_cancel either = {want->read.cancel, peers};
    const struct cancel cancel = {is_ahead_over, &either};
    struct block_ask ask = {.lo = want->read.offset,
                            .hi = want->read.offset + bytes,
                            .source = want->source,
                            .source_file = want->read.file,
                            .uid = want->read.uid,
                            .cancel = &cancel,
                            .wait_until_ns = 1,
                            .is_ahead = true};
    const unsigned char *here;
    const char *reason;
    struct cached_block *pin;
    struct error error;
    if (!shared_file_of(want->source, want->read.file, &ask.file, &reason))
        return true;
    if (cancel_is_set(&cancel))
        return false;
    enum block_answer answer = block_cache_get(peers->cache, &ask, &here, &pin, &error);
    if (answer == BLOCK_HERE)
        block_cache_unpin(peers->cache, pin);
    return answer == BLOCK_HERE || answer == BLOCK_READING;
}

const struct block_holder peer_want_holder = {.name = "hosts",
                                              .serves = serves,
                                              .get = get_from_hosts,
                                              .arrange = arrange,
                                              .read_ahead = read_ahead,
                                              .block_bytes = SHARED_BLOCK_BYTES};
