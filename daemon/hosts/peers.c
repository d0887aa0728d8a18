/* See peers.h. A want is done on the thread that asks. Marks on hosts are under one lock, which is never held while bytes move;
 * a set of hosts is constant and counted, so a want that began before the last change ends with those it began with. */
#include "hosts/peers.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"
#include "hosts/block_runs.h"
#include "hosts/data_port.h"
#include "hosts/election.h"
#include "hosts/proof.h"
#include "observe/log.h"
#include "source/http/http.h"

enum {
    MAX_OWNERS = 4, /* that are tried for a block, one after the other; then the source is read */
    DECLINES = 32,  /* references that a host may not read: the last ones */
    DECLINE_MS = 60000,
    LEAST_TIMED_BYTES = 1 << 20, /* latencies are no rate */
    ETAG_CHARS = SHARED_ID_CHARS + 2,
};

/* What an answer may take, however quickly the owner reads; with the wait for a connection. More than the silence that the
 * engine bears (hosts.c), so that a host which says nothing is told from one which is slow. */
static const uint64_t answer_ns = 12000 * (uint64_t)NS_PER_MS;
static const uint64_t ask_again_ns = 100 * (uint64_t)NS_PER_MS;

struct peer { /* const but for what the lock guards */
    char *name, *incarnation, *address;
    uint64_t hash;
    uint64_t lost_ns; /* atomic: when it was last found to give no answer */
    uint64_t late_ns; /* atomic: when it was last found to be too slow */
    int references;   /* under the lock, as is all that follows */
    struct lateness lateness;
    struct decline {
        uint64_t reference_hash, until_ns;
    } declines[DECLINES];
    size_t n_declines;
    struct peer_traffic traffic;
};

struct peer_set { /* const; this host is the last of `hashes` and not in `list` */
    int references;
    size_t n;
    struct peer **list;
    uint64_t *hashes;
};

struct peers {
    struct block_holder holder;
    const struct host_settings *settings;
    const char *own_incarnation;
    struct http_engine *engine;
    struct block_cache *cache;
    bool is_stopped;      /* atomic: nothing is read ahead any more */
    pthread_mutex_t lock; /* guards what follows */
    struct peer_set *set;
    uint64_t quick_ns; /* what a whole block takes from a host that has it */
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

static struct peer_set *take_set(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    struct peer_set *set = peers->set;
    set->references++;
    pthread_mutex_unlock(&peers->lock);
    return set;
}

static void give_set(struct peers *peers, struct peer_set *set)
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

/* --- the election ------------------------------------------------------------------------------------------------------- */

struct span { /* bytes of one block that are wanted, and where they go */
    struct peers *peers;
    struct block_want *want;
    struct peer_set *set;
    struct shared_file file;
    uint64_t reference_hash, lo, hi;
    struct block_rows rows; /* what an owner is asked for; else for all */
    struct buffers {
        struct iovec *iov; /* no base is NULL */
        int n;
    } all, wanted; /* of lo to hi, gaps are in the trash; of what an owner is asked for */
    uint64_t wanted_bytes;
    unsigned char *trash;
    size_t tried[MAX_OWNERS], n_tried;
    bool is_hedged;   /* an owner is late, or gave no bytes */
    bool is_own_out;  /* another host is looked for */
    bool allows_late; /* and none is passed over for being late */
};

/* Under the lock. */
static bool is_out(void *data, size_t host)
{
    const struct span *span = data;
    uint64_t now_ns = clock_now_ns();
    if (host == span->set->n)
        return span->is_own_out;
    const struct peer *peer = span->set->list[host];
    bool out = !span->allows_late && lateness_is_on(&peer->lateness, now_ns);
    for (size_t i = 0; i < span->n_tried && !out; i++)
        out = span->tried[i] == host;
    for (size_t i = 0; i < DECLINES && !out; i++)
        out = peer->declines[i].reference_hash == span->reference_hash && now_ns < peer->declines[i].until_ns;
    return out;
}

/* The set's n = this host; n + 1 = none. */
static size_t choose_owner(struct span *span)
{
    const struct peer_set *set = span->set;
    uint64_t block = span->lo / SHARED_BLOCK_BYTES;
    if (span->n_tried == MAX_OWNERS)
        return set->n;
    pthread_mutex_lock(&span->peers->lock);
    span->allows_late = !span->is_own_out;
    size_t owner = election_winner(&span->file, block, set->hashes, set->n + 1, is_out, span);
    if (span->allows_late && owner < set->n && lateness_is_on(&set->list[owner]->lateness, clock_now_ns())) {
        span->allows_late = false;
        span->is_hedged = true;
        owner = election_winner(&span->file, block, set->hashes, set->n + 1, is_out, span);
    }
    pthread_mutex_unlock(&span->peers->lock);
    return owner;
}

static uint64_t hash_reference(const struct source *source)
{
    return shared_host_hash(source->reference);
}

/* --- asking an owner ---------------------------------------------------------------------------------------------------- */

enum outcome {
    GOT_BYTES,
    STILL_READING,
    TOO_LATE,
    MAY_NOT_READ,
    NO_ANSWER,
    WRONG_BYTES,
    PASSED_OVER, /* meanwhile it was found to be late */
    GIVEN_UP     /* the want is cancelled */
};

struct ask_times { /* as clock_now_ns(): when the host was asked first, when the answer's head came, when it is too late */
    uint64_t began_ns, head_ns, until_ns;
};

struct ask { /* one request; the head is copied where it comes, on the engine's thread */
    const struct peers *peers;
    const struct peer *peer;
    const char *target, *range; /* path and query; the header */
    char proof[PROOF_CHARS];
    int status;
    char etag[ETAG_CHARS + 1], content_range[64], given_proof[PROOF_CHARS], given_sum[BODY_SUM_CHARS];
    const struct ask_times *times;
    uint64_t read_bytes, sent_ns, head_ns; /* read: by the host, for this */
    const struct cancel *cancel;
    bool is_sent;
};

static bool is_passed_over(const struct peer *peer, const struct ask_times *times)
{
    return __atomic_load_n(&peer->late_ns, __ATOMIC_RELAXED) > times->began_ns;
}

/* One that waits for a connection to a host which was found to give no answer meanwhile need not find that out, too. */
static bool is_over(void *data)
{
    const struct ask *ask = data;
    return cancel_is_set(ask->cancel) || clock_now_ns() >= ask->times->until_ns || is_passed_over(ask->peer, ask->times) ||
           (!ask->is_sent && __atomic_load_n(&ask->peer->lost_ns, __ATOMIC_RELAXED) > ask->sent_ns);
}

static int prepare(void *data, struct http_attempt *attempt, struct error *error)
{
    struct ask *ask = data;
    char nonce[PROOF_NONCE_CHARS], time[24];
    (void)error;
    if (!ask->peers->settings->has_key)
        return 0;
    proof_make_nonce(nonce);
    const struct proof_request request = {.method = "GET",
                                          .path = ask->target,
                                          .range = ask->range,
                                          .to = ask->peer->incarnation,
                                          .time_ms = proof_now_ms(),
                                          .nonce = nonce};
    snprintf(time, sizeof time, "%" PRIu64, request.time_ms);
    proof_of_request(ask->peers->settings->key, &request, ask->proof);
    http_attempt_add_header(attempt, PROOF_HEADER, ask->proof);
    http_attempt_add_header(attempt, PROOF_NONCE_HEADER, nonce);
    http_attempt_add_header(attempt, PROOF_TIME_HEADER, time);
    return 0;
}

static void copy_header(const struct http_head *head, const char *name, char *text, size_t room)
{
    const char *value = http_head_find(head, name);
    snprintf(text, room, "%s", value ? value : "");
}

static void copy_head(struct ask *ask, const struct http_head *head)
{
    const char *read = http_head_find(head, BLOCK_READ_HEADER);
    ask->status = head->status;
    ask->head_ns = clock_now_ns();
    ask->read_bytes = read ? strtoull(read, NULL, 10) : 0;
    copy_header(head, "etag", ask->etag, sizeof ask->etag);
    copy_header(head, "content-range", ask->content_range, sizeof ask->content_range);
    copy_header(head, PROOF_HEADER, ask->given_proof, sizeof ask->given_proof);
    copy_header(head, BODY_SUM_HEADER, ask->given_sum, sizeof ask->given_sum);
}

static int check_head(void *data, const struct http_head *head, struct error *error)
{
    struct ask *ask = data;
    copy_head(ask, head);
    return head->status == 206 ? 0
                               : fail(error, ERROR_UNAVAILABLE, "PEER_FAILED", "it answers with status %d", head->status);
}

/* Whether the answer is the asked host's, to this request. */
static bool is_proven(const struct ask *ask, const struct buffers *body)
{
    struct body_sum sum;
    char text[BODY_SUM_CHARS];
    body_sum_begin(&sum, ask->peers->settings, ask->proof);
    for (int i = 0; i < body->n; i++)
        body_sum_add(&sum, body->iov[i].iov_base, body->iov[i].iov_len);
    body_sum_finish(&sum, text);
    const struct proof_answer answer = {ask->proof, ask->status, ask->etag, ask->content_range, text};
    return proof_holds(ask->peers->settings, &answer, ask->given_proof, ask->given_sum);
}

/* A refusal that is not proven is none: an attacker on the wire could make hosts read for themselves. */
static enum http_verdict judge_refusal(void *data, const struct http_reply *reply, struct error *error)
{
    struct ask *ask = data;
    struct iovec body = {reply->body, reply->body_bytes};
    copy_head(ask, &reply->head);
    if (!is_proven(ask, &(struct buffers){&body, 1}))
        ask->status = 0;
    fail(error, ERROR_UNAVAILABLE, "PEER_FAILED", "it answers with status %d: %s", reply->head.status,
         text_show(reply->body));
    return HTTP_FAIL;
}

static enum outcome outcome_of(const struct ask *ask, const struct span *span, int result)
{
    char etag[ETAG_CHARS + 1];
    snprintf(etag, sizeof etag, "\"%s\"", span->file.id);
    if (result == 0)
        return strcmp(ask->etag, etag) == 0 && is_proven(ask, &span->wanted) ? GOT_BYTES : WRONG_BYTES;
    if (cancel_is_set(ask->cancel))
        return GIVEN_UP;
    if (ask->status == 503 || ask->status == 504)
        return STILL_READING;
    if (is_passed_over(ask->peer, ask->times))
        return PASSED_OVER;
    if (clock_now_ns() >= ask->times->until_ns)
        return TOO_LATE;
    return ask->status >= 400 && ask->status != 401 ? MAY_NOT_READ : NO_ANSWER;
}

/* Of one request; `read_bytes` is what the host read for it. */
static enum outcome ask_once(const struct span *span, struct peer *peer, bool only_held, struct ask_times *times,
                             uint64_t *read_bytes, struct error *error)
{
    const struct peers *peers = span->peers;
    const struct source *source = span->want->source;
    const struct source_file *file = &source->files[span->want->read.file];
    struct block_query query = {.reference = memory_copy_text(source->reference),
                                .file = memory_copy_text(file->name),
                                .only_held = only_held,
                                .lo = span->lo,
                                .hi = span->hi,
                                .rows = span->rows};
    snprintf(query.id, sizeof query.id, "%s", span->file.id);
    snprintf(query.from, sizeof query.from, "%s", peers->own_incarnation);
    char *target = block_query_path(&query), *bytes = block_query_range(&query);
    char *url = memory_print("%s://%s%s", *peers->settings->certificate ? "https" : "http", peer->address, target);
    struct ask ask = {.peers = peers,
                      .peer = peer,
                      .target = target,
                      .range = bytes,
                      .times = times,
                      .sent_ns = clock_now_ns(),
                      .cancel = span->want->read.cancel};
    const struct http_store store = {.prepare = prepare, .check = check_head, .judge = judge_refusal, .data = &ask};
    const struct cancel cancel = {is_over, &ask};
    const struct http_range range = {.store = &store,
                                     .url = url,
                                     .name = file->name,
                                     .offset = span->rows.stride ? 0 : span->lo,
                                     .iov = span->wanted.iov,
                                     .n_iov = span->wanted.n,
                                     .object_bytes = span->rows.stride ? span->wanted_bytes : file->size_bytes,
                                     .uid = span->want->read.uid,
                                     .cancel = &cancel,
                                     .is_sent = &ask.is_sent};
    enum outcome outcome = MAY_NOT_READ;
    if (strlen(target) <= BLOCK_PATH_MAX_CHARS)
        outcome = outcome_of(&ask, span, http_read_range(peers->engine, &range, error));
    *read_bytes = outcome == GOT_BYTES ? ask.read_bytes : 0;
    times->head_ns = ask.head_ns;
    free(url);
    free(bytes);
    free(target);
    block_query_fini(&query);
    return outcome;
}

/* A host is blamed for wrong bytes unless they are right in this host's own memory: that of a client it may have changed. */
static enum outcome ask_host(const struct span *span, struct peer *peer, bool only_held, struct ask_times *times,
                             uint64_t *read_bytes, struct error *error)
{
    enum outcome outcome = ask_once(span, peer, only_held, times, read_bytes, error);
    unsigned char *memory = outcome == WRONG_BYTES ? malloc(span->wanted_bytes) : NULL, *from = memory;
    if (!memory)
        return outcome;
    struct span apart = *span;
    apart.wanted = (struct buffers){&(struct iovec){memory, span->wanted_bytes}, 1};
    outcome = ask_once(&apart, peer, only_held, times, read_bytes, error);
    for (int i = 0; outcome == GOT_BYTES && i < span->wanted.n; from += span->wanted.iov[i++].iov_len)
        memcpy(span->wanted.iov[i].iov_base, from, span->wanted.iov[i].iov_len);
    free(memory);
    return outcome == NO_ANSWER || outcome == TOO_LATE || outcome == PASSED_OVER ? WRONG_BYTES : outcome;
}

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

/* What the answer says of the host, for the next choice. */
static void note_outcome(const struct span *span, struct peer *peer, enum outcome outcome, const struct ask_times *times,
                         const struct error *error)
{
    struct peers *peers = span->peers;
    uint64_t now_ns = clock_now_ns(), bytes = span->wanted_bytes, took_ns = now_ns - times->began_ns;
    uint64_t own_read_ns = block_cache_read_ns(peers->cache);
    const char *why = error->message;
    bool is_news = false, is_slow = false;
    pthread_mutex_lock(&peers->lock);
    if (outcome == GOT_BYTES) {
        peer->traffic.in_bytes += bytes;
        peer->lateness.n_slow_reads = 0; /* however few they are */
        if (bytes >= LEAST_TIMED_BYTES) {
            uint64_t whole_ns = (now_ns - times->head_ns) * SHARED_BLOCK_BYTES / bytes;
            peers->quick_ns = election_quick_ns(peers->quick_ns, whole_ns);
        }
        if (span->hi - span->lo >= LEAST_TIMED_BYTES) { /* of rows, too: it reads what is between them */
            uint64_t slow_ns = took_ns > own_read_ns ? election_slow_ns(own_read_ns, others_ns(span->set, peer)) : 0;
            is_news = lateness_add_answer(&peer->lateness, took_ns, slow_ns, now_ns);
            is_slow = is_news;
        }
        why = "its answers take much longer than this host's reads and other hosts' answers";
    } else if (outcome == MAY_NOT_READ) {
        peer->declines[peer->n_declines++ % DECLINES] =
            (struct decline){span->reference_hash, now_ns + (uint64_t)DECLINE_MS * NS_PER_MS};
    } else if (outcome == STILL_READING || outcome == TOO_LATE) {
        is_news = lateness_add_slow_read(&peer->lateness, times->began_ns, now_ns);
        peer->traffic.late++;
        is_slow = is_news;
        why = "it reads longer than this host would";
    } else if (outcome == PASSED_OVER) {
        peer->traffic.late++;
    } else {
        if (outcome == NO_ANSWER)
            __atomic_store_n(&peer->lost_ns, now_ns, __ATOMIC_RELAXED);
        is_news = lateness_mark(&peer->lateness, times->began_ns, now_ns);
        peer->traffic.late += outcome == NO_ANSWER;
        peer->traffic.wrong += outcome == WRONG_BYTES;
    }
    if (is_slow) /* ends the asks that wait for it */
        __atomic_store_n(&peer->late_ns, now_ns, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&peers->lock);
    if (outcome == WRONG_BYTES)
        log_at_of(LOG_WARN, "peer_block_wrong", 0, LOG_TEXT("host", peer->name), LOG_TEXT("address", peer->address),
                  LOG_TEXT("file", span->want->source->files[span->want->read.file].name), LOG_U64("offset", span->lo),
                  LOG_U64("bytes", bytes), LOG_TEXT("effect", "other hosts and the source are read instead"));
    else if (is_news)
        log_at_of(LOG_INFO, "peer_late", 0, LOG_TEXT("host", peer->name), LOG_TEXT("address", peer->address),
                  LOG_TEXT("reason", why), LOG_TEXT("effect", "other hosts own its blocks for a while"));
}

/* --- a block ------------------------------------------------------------------------------------------------------------ */

static void count(const struct span *span, enum block_way way, const char *host, uint64_t bytes)
{
    if (span->want->count && bytes > 0)
        span->want->count->add(span->want->count, way, host, bytes);
}

/* The next one in line may have what costs this host much. */
static bool find_elsewhere(struct span *span, struct error *error)
{
    uint64_t now_ns = clock_now_ns(), own_read_ns = block_cache_read_ns(span->peers->cache), read_bytes;
    struct ask_times times = {now_ns, now_ns, now_ns + election_patience_ns(own_read_ns)};
    if (!election_asks_next(own_read_ns))
        return false;
    span->is_own_out = true;
    size_t next = choose_owner(span);
    span->is_own_out = false;
    if (next >= span->set->n) /* there is none */
        return false;
    struct peer *peer = span->set->list[next];
    enum outcome outcome = ask_host(span, peer, true, &times, &read_bytes, error);
    if (outcome != MAY_NOT_READ && outcome != STILL_READING && outcome != GIVEN_UP) /* it has not got them, or opens the file */
        note_outcome(span, peer, outcome, &times, error);
    if (outcome == GOT_BYTES)
        count(span, BLOCK_FROM_HOST, peer->name, span->wanted_bytes);
    return outcome == GOT_BYTES;
}

static int read_own(struct span *span, struct error *error)
{
    const struct source_read *read = &span->want->read;
    struct block_ask ask = {.file = span->file,
                            .lo = span->lo,
                            .hi = span->hi,
                            .source_file = read->file,
                            .uid = read->uid,
                            .cancel = read->cancel};
    const unsigned char *bytes;
    struct cached_block *pin;
    enum block_answer answer = block_cache_get(span->peers->cache, &ask, &bytes, &pin, error);
    if (answer == BLOCK_ABSENT) {
        if (span->n_tried == 0 && find_elsewhere(span, error))
            return 0;
        ask.source = span->want->source;
        answer = block_cache_get(span->peers->cache, &ask, &bytes, &pin, error);
    }
    if (answer == BLOCK_FAILED)
        return -1;
    if (answer == BLOCK_HERE) {
        for (int i = 0, w = 0; i < span->all.n && w < span->wanted.n; bytes += span->all.iov[i++].iov_len)
            if (span->all.iov[i].iov_base == span->wanted.iov[w].iov_base)
                memcpy(span->wanted.iov[w++].iov_base, bytes, span->all.iov[i].iov_len);
        block_cache_unpin(span->peers->cache, pin);
    } else { /* no room */
        struct block_want want = {.source = span->want->source, .read = *read};
        want.read.offset = span->lo;
        want.read.iov = span->all.iov;
        want.read.n_iov = span->all.n;
        want.read.checksum = CHECKSUM_NONE;
        want.read.arrival = NULL;
        ask.read_bytes = span->hi - span->lo;
        if (blocks_get(&want, error))
            return -1;
    }
    count(span, BLOCK_FROM_SOURCE, NULL, ask.read_bytes);
    count(span, BLOCK_KEPT, NULL, span->wanted_bytes > ask.read_bytes ? span->wanted_bytes - ask.read_bytes : 0);
    if (span->is_hedged)
        count(span, BLOCK_HEDGED, NULL, ask.read_bytes);
    return 0;
}

/* Until it has answered, or is late. */
static enum outcome ask_owner(const struct span *span, struct peer *peer, struct ask_times *times, bool *was_read,
                              struct error *error)
{
    enum outcome outcome;
    uint64_t read_bytes, asked_ns, give_up_ns;
    *was_read = false;
    do {
        asked_ns = clock_now_ns();
        give_up_ns = times->began_ns + election_patience_ns(block_cache_read_ns(span->peers->cache));
        times->until_ns = give_up_ns > asked_ns + answer_ns ? give_up_ns : asked_ns + answer_ns;
        outcome = ask_host(span, peer, false, times, &read_bytes, error);
        *was_read = *was_read || outcome == STILL_READING || read_bytes > 0;
        if (outcome == STILL_READING && clock_now_ns() < asked_ns + ask_again_ns) /* it has too much to do */
            clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)ask_again_ns}, NULL);
    } while (outcome == STILL_READING && clock_now_ns() < give_up_ns);
    return outcome;
}

static int get_span(struct span *span, struct error *error)
{
    for (;;) {
        size_t owner = choose_owner(span);
        if (owner == span->set->n)
            return read_own(span, error);
        struct peer *peer = span->set->list[owner];
        struct ask_times times = {.began_ns = clock_now_ns()};
        bool was_read;
        enum outcome outcome = ask_owner(span, peer, &times, &was_read, error);
        if (outcome == GIVEN_UP)
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while %s was asked for a block", peer->name);
        note_outcome(span, peer, outcome, &times, error);
        if (outcome == GOT_BYTES) {
            count(span, BLOCK_FROM_HOST, peer->name, span->wanted_bytes);
            if (span->is_hedged && was_read) /* for this, perhaps before this answer */
                count(span, BLOCK_HEDGED, NULL, span->wanted_bytes);
            return 0;
        }
        span->tried[span->n_tried++] = owner;
        span->is_hedged = span->is_hedged || outcome != MAY_NOT_READ;
    }
}

/* --- a want ------------------------------------------------------------------------------------------------------------- */

/* From one run to another one of the block. */
static void set_span(struct span *span, const struct block_run *first, const struct block_run *last)
{
    const struct source_read *read = &span->want->read;
    unsigned char *trash = span->trash;
    size_t done = first->done;
    span->lo = first->lo;
    span->hi = last->hi;
    span->all.n = span->wanted.n = 0;
    span->wanted_bytes = 0;
    for (uint64_t i = (uint64_t)first->i, offset = span->lo; offset < span->hi; i++, done = 0) {
        size_t left = read->iov[i].iov_len - done;
        size_t bytes = left < span->hi - offset ? left : (size_t)(span->hi - offset);
        bool goes_to_trash = block_runs_is_gap(read, (int)i);
        const struct iovec piece = {goes_to_trash ? trash : (unsigned char *)read->iov[i].iov_base + done, bytes};
        trash += goes_to_trash ? bytes : 0;
        offset += bytes;
        if (bytes == 0)
            continue;
        span->all.iov[span->all.n++] = piece;
        if (span->rows.stride && goes_to_trash)
            continue;
        span->wanted.iov[span->wanted.n++] = piece;
        span->wanted_bytes += bytes;
    }
}

/* After a checksum did not match: from the source, and what is kept here of it and differs goes. */
static int read_again(struct span *span, const struct block_runs *runs, struct error *error)
{
    struct source_read *read = &span->want->read;
    struct block_want fresh = {.source = span->want->source, .read = *read};
    if (blocks_get(&fresh, error))
        return -1;
    read->checksum_value = fresh.read.checksum_value;
    for (size_t at = 0; at < runs->n; at++) {
        set_span(span, &runs->list[at], &runs->list[at]);
        struct block_ask ask = {.file = span->file, .lo = span->lo, .hi = span->hi, .wait_until_ns = 1};
        const unsigned char *bytes;
        struct cached_block *pin;
        struct error ignored;
        bool is_same = true;
        if (block_cache_get(span->peers->cache, &ask, &bytes, &pin, &ignored) != BLOCK_HERE)
            continue;
        for (int i = 0; i < span->all.n; bytes += span->all.iov[i++].iov_len)
            is_same = is_same && memcmp(span->all.iov[i].iov_base, bytes, span->all.iov[i].iov_len) == 0;
        (is_same ? block_cache_unpin : block_cache_discard)(span->peers->cache, pin);
    }
    return 0;
}

static int get_spans(struct span *span, const struct block_runs *runs, struct error *error)
{
    struct source_read *read = &span->want->read;
    uint64_t told_to = read->offset;
    int failed = 0;
    size_t n;
    span->reference_hash = hash_reference(span->want->source);
    span->set = take_set(span->peers);
    read->checksum_value = 0;
    count(span, BLOCK_ASKED, NULL, runs->bytes);
    for (size_t at = 0; at < runs->n && !failed; at += n) {
        n = block_runs_choose(runs, at, &span->rows);
        set_span(span, &runs->list[at], &runs->list[at + n - 1]);
        span->n_tried = 0;
        span->is_hedged = false;
        failed = get_span(span, error);
        if (failed)
            break;
        arrival_tell(read->arrival, span->hi - told_to);
        told_to = span->hi;
        for (int i = 0; i < span->all.n && read->checksum != CHECKSUM_NONE; i++)
            read->checksum_value =
                crc_update(read->checksum, read->checksum_value, span->all.iov[i].iov_base, span->all.iov[i].iov_len);
    }
    give_set(span->peers, span->set);
    return failed;
}

/* Gaps that are asked for along with the rest land in the trash, which is large enough for those of a block. */
static int get_from_hosts(struct block_holder *holder, struct block_want *want, struct error *error)
{
    const struct source_read *read = &want->read;
    struct span span = {.peers = (struct peers *)holder, .want = want};
    struct block_runs runs = {0};
    const char *reason;
    if (!shared_file_of(want->source, read->file, &span.file, &reason) || (read->fresh_connection && read->trash))
        return 1;
    block_runs_collect(&runs, read, read->checksum != CHECKSUM_NONE && !read->fresh_connection);
    uint64_t trash_bytes = runs.gap_bytes < SHARED_BLOCK_BYTES ? runs.gap_bytes : SHARED_BLOCK_BYTES;
    span.trash = trash_bytes ? malloc(trash_bytes) : NULL;
    int failed = 1;
    if (span.trash || !trash_bytes) {
        span.all.iov = memory_alloc_array((size_t)read->n_iov + 1, sizeof *span.all.iov);
        span.wanted.iov = memory_alloc_array((size_t)read->n_iov + 1, sizeof *span.wanted.iov);
        failed = read->fresh_connection ? read_again(&span, &runs, error) : get_spans(&span, &runs, error);
    }
    free(span.all.iov);
    free(span.wanted.iov);
    free(span.trash);
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
    struct span span = {.peers = peers, .reference_hash = hash_reference(source), .set = take_set(peers)};
    uint32_t *n_of_owner = memory_alloc_array(span.set->n + 1, sizeof *n_of_owner);
    const char *reason;
    bool is_shared = false;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || places[i].file != places[i - 1].file)
            is_shared = shared_file_of(source, places[i].file, &span.file, &reason);
        span.lo = places[i].offset;
        size_t owner = is_shared ? choose_owner(&span) : span.set->n;
        places[i].turn = owner == span.set->n
                             ? 0
                             : election_turn(span.set->hashes[span.set->n], span.set->hashes[owner], n_of_owner[owner]++);
    }
    free(n_of_owner);
    give_set(peers, span.set);
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

struct peers *peers_create(const struct host_settings *settings, const char *own_incarnation, struct http_engine *engine,
                           struct block_cache *cache)
{
    struct peers *peers = memory_alloc(sizeof *peers);
    *peers = (struct peers){.holder = {.name = "hosts",
                                       .serves = serves,
                                       .get = get_from_hosts,
                                       .arrange = arrange,
                                       .read_ahead = read_ahead,
                                       .block_bytes = SHARED_BLOCK_BYTES},
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
