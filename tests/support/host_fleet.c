/* See host_fleet.h. Time limits are short, so that a test of silence takes a second. */
#include "tests/support/host_fleet.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/loop.h"
#include "base/memory.h"
#include "hosts/block_server.h"
#include "hosts/election.h"
#include "source/http/http.h"

struct fleet_host fleet[FLEET_MAX];
static size_t n_hosts;

static uint64_t get_room(void *data)
{
    return __atomic_load_n(&((struct fleet_host *)data)->room_bytes, __ATOMIC_RELAXED);
}

static void tell_trust(void *data, struct source_options *options)
{
    options->uid = ((struct fleet_host *)data)->uid;
}

static void count_out(void *data, const char *incarnation, uint64_t bytes)
{
    struct fleet_host *host = data;
    peers_count_out(host->peers, incarnation, bytes);
    __atomic_add_fetch(&host->asked_bytes, bytes, __ATOMIC_SEQ_CST);
}

static void start_host(size_t i)
{
    static const struct http_engine_options options = {.connect_timeout_ms = 3000,
                                                       .first_byte_timeout_ms = 3000,
                                                       .stall_timeout_ms = 1000,
                                                       .max_host_connections = 8,
                                                       .new_host_connections = 2, /* as once they have proven themselves */
                                                       .max_tries = 1,
                                                       .hedge_percent = 101,
                                                       .turn_ms = 600000,
                                                       .fence = {.allow_plain = true, .no_proxies = true}};
    struct fleet_host *host = &fleet[i];
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct error error;
    size_t file;
    *host = (struct fleet_host){.room_bytes = 64 << 20, .uid = (uid_t)i + 1};
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(&host->settings.listen.socket, &any, host->settings.listen.bytes = sizeof any);
    snprintf(host->settings.name, sizeof host->settings.name, "h%zu", i);
    host->settings.certificate = host->settings.private_key = host->settings.ca = (char *)"";
    host->settings.has_key = true;
    memset(host->settings.key, 7, sizeof host->settings.key);
    proof_make_nonce(host->incarnation);
    host->identity = (struct data_port_identity){host->settings.name, host->incarnation, "1"};
    host->loop = loop_create();
    host->cache = block_cache_create(get_room, host);
    host->server = block_server_create(&(struct block_server_options){host->loop, host->cache, tell_trust, host});
    int failed = http_engine_create(&options, &host->engine, &error) ||
                 data_port_open(&host->settings, &host->identity, &(struct data_port_blocks){host->server, count_out, host},
                                &host->port, &error) ||
                 source_open("shared:model", &(struct source_options){.uid = host->uid}, &host->source, &error) ||
                 source_add_file(host->source, "m", &file, &error);
    assert(!failed);
    host->peers = peers_create(&host->settings, host->incarnation, host->engine, host->cache);
    snprintf(host->address, sizeof host->address, "127.0.0.1:%u", data_port_number(host->port));
}

void fleet_meet(size_t host, uint32_t others, const char *stranger)
{
    struct peer_host list[FLEET_MAX + 1];
    size_t n = 0;
    for (size_t i = 0; i < n_hosts; i++)
        if (i != host && others >> i & 1)
            list[n++] = (struct peer_host){fleet[i].settings.name, fleet[i].incarnation, fleet[i].address};
    if (stranger)
        list[n++] = (struct peer_host){"stranger", "0123456789abcdef0123456789abcdef", stranger};
    peers_set(fleet[host].peers, list, n);
}

void fleet_start(size_t n)
{
    n_hosts = n;
    for (size_t i = 0; i < n; i++)
        start_host(i);
    for (size_t i = 0; i < n; i++)
        fleet_meet(i, UINT32_MAX, NULL);
}

void fleet_kill(size_t host)
{
    data_port_close(fleet[host].port);
    fleet[host].port = NULL;
}

void fleet_stop(void)
{
    for (size_t i = 0; i < n_hosts; i++) { /* as the daemon does it, see hosts.c */
        struct fleet_host *host = &fleet[i];
        block_server_stop(host->server);
        data_port_close(host->port);
        block_server_destroy(host->server);
        source_unref(host->source);
        loop_destroy(host->loop);
        peers_destroy(host->peers);
        block_cache_destroy(host->cache);
        http_engine_destroy(host->engine);
    }
    n_hosts = 0;
}

static void add(struct block_count *count, enum block_way way, const char *host, uint64_t bytes)
{
    assert((way == BLOCK_FROM_HOST) == (host != NULL));
    ((struct fleet_count *)count)->bytes[way] += bytes;
}

struct block_want fleet_want(size_t host, uint64_t offset, const struct iovec *iov, int n_iov, struct fleet_count *count)
{
    *count = (struct fleet_count){.count.add = add};
    return (struct block_want){.source = fleet[host].source,
                               .read = {.offset = offset, .iov = iov, .n_iov = n_iov, .uid = fleet[host].uid},
                               .holders = peers_holder(fleet[host].peers),
                               .count = &count->count};
}

static bool is_out(void *data, size_t host)
{
    (void)data, (void)host;
    return false;
}

uint64_t fleet_block_of(size_t owner, uint64_t from)
{
    struct shared_file file;
    uint64_t hashes[FLEET_MAX + 1];
    const char *reason;
    bool is_shared = shared_file_of(fleet[0].source, 0, &file, &reason);
    assert(is_shared);
    size_t n = 0, winner = owner;
    for (size_t i = 0; i < n_hosts; i++)
        hashes[n++] = shared_host_hash(fleet[i].settings.name);
    if (owner == FLEET_STRANGER) {
        winner = n;
        hashes[n++] = shared_host_hash("stranger");
    }
    while (election_winner(&file, from, hashes, n, is_out, NULL) != winner)
        from++;
    return from;
}

struct peer_traffic fleet_traffic(size_t host, size_t of)
{
    return peers_traffic(fleet[host].peers, fleet[of].incarnation);
}
