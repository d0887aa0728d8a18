/* Which hosts there are, and what is known of each; see peers_private.h. Marks on hosts are under one lock, which is never held
 * while bytes move. A set of hosts is constant and counted, so a want that began before the last change ends with those it began
 * with. */
#include "hosts/peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "hosts/block_cache.h"
#include "hosts/peers_private.h"
#include "observe/log.h"

enum {
    DECLINE_MS = 60000,
    LEAST_TIMED_BYTES = 1 << 20, /* latencies are no rate */
};

/* --- who is there --------------------------------------------------------------------------------------------------------- */

static void peer_unref(struct peer *peer)
{
    if (--peer->references > 0)
        return;
    free(peer->name);
    free(peer->incarnation);
    free(peer->address);
    free(peer);
}

static void set_unref(struct peer_set *set)
{
    if (--set->references > 0)
        return;
    for (size_t i = 0; i < set->n; i++)
        peer_unref(set->list[i]);
    free(set->list);
    free(set->hashes);
    free(set);
}

struct peer_set *peers_take_set(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    struct peer_set *set = peers->set;
    set->references++;
    pthread_mutex_unlock(&peers->lock);
    return set;
}

void peers_give_set(struct peers *peers, struct peer_set *set)
{
    pthread_mutex_lock(&peers->lock);
    set_unref(set);
    pthread_mutex_unlock(&peers->lock);
}

/* Lists of hosts change little from one to the next: a search begins where the last one ended. */
static struct peer *find_peer(const struct peer_set *set, const char *incarnation, size_t *from)
{
    for (size_t i = 0; i < set->n; i++) {
        size_t at = (*from + i) % set->n;
        if (strcmp(set->list[at]->incarnation, incarnation) == 0) {
            *from = at + 1;
            return set->list[at];
        }
    }
    return NULL;
}

void peers_set(struct peers *peers, const struct peer_host *hosts, size_t n)
{
    struct peer_set *fresh = memory_alloc(sizeof *fresh);
    *fresh = (struct peer_set){.references = 1,
                               .n = n,
                               .list = memory_alloc_array(n + 1, sizeof *fresh->list),
                               .hashes = memory_alloc_array(n + 1, sizeof *fresh->hashes)};
    size_t from = 0;
    pthread_mutex_lock(&peers->lock);
    for (size_t i = 0; i < n; i++) {
        struct peer *peer = find_peer(peers->set, hosts[i].incarnation, &from);
        if (!peer) {
            peer = memory_alloc(sizeof *peer);
            peer->name = memory_copy_text(hosts[i].name);
            peer->incarnation = memory_copy_text(hosts[i].incarnation);
            peer->address = memory_copy_text(hosts[i].address);
            peer->hash = shared_host_hash(hosts[i].name);
        }
        peer->references++;
        fresh->list[i] = peer;
        fresh->hashes[i] = peer->hash;
    }
    fresh->hashes[n] = shared_host_hash(peers->settings->name);
    set_unref(peers->set);
    peers->set = fresh;
    pthread_mutex_unlock(&peers->lock);
}

size_t peers_alive(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    size_t n = peers->set->n + 1;
    pthread_mutex_unlock(&peers->lock);
    return n;
}

double peers_bytes_per_ns(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    uint64_t quick_ns = peers->quick_ns;
    pthread_mutex_unlock(&peers->lock);
    return quick_ns ? (double)SHARED_BLOCK_BYTES / (double)quick_ns : 0;
}

void peers_count_out(struct peers *peers, const char *incarnation, uint64_t bytes)
{
    size_t from = 0;
    pthread_mutex_lock(&peers->lock);
    struct peer *peer = find_peer(peers->set, incarnation, &from);
    if (peer)
        peer->traffic.out_bytes += bytes;
    pthread_mutex_unlock(&peers->lock);
}

struct peer_traffic peers_traffic(struct peers *peers, const char *incarnation)
{
    size_t from = 0;
    pthread_mutex_lock(&peers->lock);
    const struct peer *peer = find_peer(peers->set, incarnation, &from);
    struct peer_traffic traffic = peer ? peer->traffic : (struct peer_traffic){0};
    pthread_mutex_unlock(&peers->lock);
    return traffic;
}

bool peers_take_unanswered(struct peers *peers, char incarnation[PROOF_NONCE_CHARS])
{
    bool is_found = false;
    pthread_mutex_lock(&peers->lock);
    for (size_t i = 0; i < peers->set->n && !is_found; i++) {
        struct peer *peer = peers->set->list[i];
        is_found = peer->is_unanswered;
        peer->is_unanswered = false;
        if (is_found)
            snprintf(incarnation, PROOF_NONCE_CHARS, "%s", peer->incarnation);
    }
    pthread_mutex_unlock(&peers->lock);
    return is_found;
}

/* --- who owns a block ----------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static bool is_out(void *data, size_t host)
{
    const struct peer_search *search = data;
    const struct peer_want *want = search->want;
    uint64_t now_ns = clock_now_ns();
    if (host == want->set->n)
        return search->is_own_out;
    for (size_t i = 0; i < search->n_tried; i++)
        if (search->tried[i] == host)
            return true;
    const struct peer *peer = want->set->list[host];
    const struct decline *decline = &peer->declines[want->reference_hash % PEERS_DECLINES];
    return (!search->allows_late && lateness_is_on(&peer->lateness, now_ns)) ||
           (decline->reference_hash == want->reference_hash && now_ns < decline->until_ns);
}

size_t peers_choose(struct peer_search *search, uint64_t offset)
{
    const struct peer_want *want = search->want;
    const struct peer_set *set = want->set;
    uint64_t block = offset / SHARED_BLOCK_BYTES;
    if (search->n_tried == PEERS_MAX_OWNERS)
        return set->n;
    pthread_mutex_lock(&want->peers->lock);
    search->allows_late = !search->is_own_out;
    size_t owner = election_winner(&want->file, block, set->hashes, set->n + 1, is_out, search);
    if (search->allows_late && owner < set->n && lateness_is_on(&set->list[owner]->lateness, clock_now_ns())) {
        search->allows_late = false;
        search->is_hedged = true;
        owner = election_winner(&want->file, block, set->hashes, set->n + 1, is_out, search);
    }
    pthread_mutex_unlock(&want->peers->lock);
    return owner;
}

/* --- what an outcome says of a host --------------------------------------------------------------------------------------- */

/* What answers of other hosts than this one take, on average; 0 = not known. Under the lock. */
static uint64_t others_ns(const struct peer_set *set, const struct peer *peer)
{
    uint64_t sum_ns = 0, n = 0;
    for (size_t i = 0; i < set->n; i++)
        if (set->list[i] != peer && set->list[i]->lateness.mean_ns > 0) {
            sum_ns += set->list[i]->lateness.mean_ns;
            n++;
        }
    return n > 0 ? sum_ns / n : 0;
}

void peers_note(const struct peer_ask *ask, enum peer_outcome outcome, const struct error *error)
{
    const struct peer_span *span = ask->span;
    const struct peer_want *want = span->want;
    struct peers *peers = want->peers;
    struct peer *peer = ask->peer;
    uint64_t now_ns = clock_now_ns(), bytes = span->wanted_bytes, took_ns = now_ns - ask->began_ns, slow_ns = 0;
    uint64_t own_read_ns = block_cache_read_ns(peers->cache);
    const char *why = error->message;
    bool is_news = false, is_slow = false;
    pthread_mutex_lock(&peers->lock);
    if (outcome == PEER_GAVE_BYTES) {
        peer->traffic.in_bytes += bytes;
        peer->lateness.n_slow_reads = 0; /* however few they are */
        if (bytes >= LEAST_TIMED_BYTES)
            peers->quick_ns = election_quick_ns(peers->quick_ns, (now_ns - ask->head_ns) * SHARED_BLOCK_BYTES / bytes);
        if (took_ns > own_read_ns)
            slow_ns = election_slow_ns(own_read_ns, others_ns(want->set, peer));
        if (span->hi - span->lo >= LEAST_TIMED_BYTES) /* of rows, too: it reads what is between them */
            is_slow = lateness_add_answer(&peer->lateness, took_ns, slow_ns, now_ns);
        why = "its answers take much longer than this host's reads and other hosts' answers";
    } else if (outcome == PEER_STILL_READS || outcome == PEER_TOO_LATE) {
        is_slow = lateness_add_slow_read(&peer->lateness, ask->began_ns, now_ns);
        why = "it reads longer than this host would";
    } else if (outcome == PEER_MAY_NOT_READ) {
        peer->declines[want->reference_hash % PEERS_DECLINES] =
            (struct decline){want->reference_hash, now_ns + (uint64_t)DECLINE_MS * NS_PER_MS};
    } else if (outcome == PEER_NO_ANSWER || outcome == PEER_WRONG_BYTES) {
        is_news = lateness_mark(&peer->lateness, ask->began_ns, now_ns);
    }
    peer->traffic.wrong += outcome == PEER_WRONG_BYTES;
    peer->traffic.late +=
        outcome == PEER_STILL_READS || outcome == PEER_TOO_LATE || outcome == PEER_NO_ANSWER || outcome == PEER_PASSED_OVER;
    peer->is_unanswered = peer->is_unanswered || outcome == PEER_NO_ANSWER;
    if (outcome == PEER_NO_ANSWER) /* ends the asks that wait for a connection to it */
        __atomic_store_n(&peer->lost_ns, now_ns, __ATOMIC_RELAXED);
    if (is_slow) /* ends all of them */
        __atomic_store_n(&peer->late_ns, now_ns, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&peers->lock);
    if (outcome == PEER_WRONG_BYTES)
        log_at_of(LOG_WARN, "peer_block_wrong", 0, LOG_TEXT("host", peer->name), LOG_TEXT("address", peer->address),
                  LOG_TEXT("file", want->of->source->files[want->of->read.file].name), LOG_U64("offset", span->lo),
                  LOG_U64("bytes", bytes), LOG_TEXT("effect", "other hosts and the source are read instead"));
    else if (is_news || is_slow)
        log_at_of(LOG_INFO, "peer_late", 0, LOG_TEXT("host", peer->name), LOG_TEXT("address", peer->address),
                  LOG_TEXT("reason", why), LOG_TEXT("effect", "other hosts own its blocks for a while"));
}

/* --- life ----------------------------------------------------------------------------------------------------------------- */

struct peers *peers_create(const struct host_settings *settings, const char *own_incarnation, struct http_engine *engine,
                           struct block_cache *cache)
{
    struct peers *peers = memory_alloc(sizeof *peers);
    *peers = (struct peers){.holder = peer_want_holder,
                            .settings = settings,
                            .own_incarnation = own_incarnation,
                            .engine = engine,
                            .cache = cache,
                            .set = memory_alloc(sizeof *peers->set)};
    pthread_mutex_init(&peers->lock, NULL);
    *peers->set = (struct peer_set){.references = 1};
    peers_set(peers, NULL, 0);
    return peers;
}

void peers_stop(struct peers *peers)
{
    if (peers)
        __atomic_store_n(&peers->is_stopped, true, __ATOMIC_RELAXED);
}

void peers_destroy(struct peers *peers)
{
    if (!peers)
        return;
    set_unref(peers->set);
    pthread_mutex_destroy(&peers->lock);
    free(peers);
}

struct block_holder *peers_holder(struct peers *peers)
{
    return &peers->holder;
}
