/* B bytes in the artifact, N of them needed by this host, alpha x N read for them from the source, H hosts alive, Rg bytes a
 * second from the source to one host, F from other hosts to this one. docs/hosts.md explains the formulas. */
#include "plan/hosts_choice.h"

#include "base/clock.h"

const char *const hosts_way_names[HOSTS_WAYS] = {"read_all", "local_slices", "owner_peers"};

/* While no other host has sent anything. 10 Gbit/s: on the low side. */
static const double DEFAULT_PEERS_RATE = 1.25;

/* Owners and peers spare the source: a tenth more time is a fair price. */
static const double CLEARLY_SLOWER = 1.1;

/* Of what one owner reads before the first bytes go on: shared_block.h. */
static const double BLOCK_BYTES = 4 << 20;

static double part_ns(double bytes, double bytes_per_ns)
{
    return bytes_per_ns > 0 ? bytes / bytes_per_ns : 0;
}

static double larger_ns(double a, double b)
{
    return a > b ? a : b;
}

double hosts_peers_rate(const struct hosts_facts *facts)
{
    return facts->peers > 0 ? facts->peers * (facts->answers ? facts->answers : 1) : DEFAULT_PEERS_RATE;
}

/* T = max(U/(H*Rg), N*(1-1/H)/F) + a block. U is what all hosts need together: B, or less where they need little of it. */
static double from_owners_ns(const struct hosts_facts *facts)
{
    double hosts = facts->alive, needed = (double)facts->needed_bytes, all = (double)facts->artifact_bytes;
    double peers = hosts_peers_rate(facts);
    double together = hosts * needed < all ? hosts * needed : all, received = needed * (1 - 1 / hosts);
    double own_ns = part_ns(together / hosts, facts->source), received_ns = part_ns(received, peers);
    double block_ns = part_ns(BLOCK_BYTES, facts->source) + part_ns(BLOCK_BYTES, peers);
    return larger_ns(own_ns, received_ns) + block_ns;
}

static struct reason judge_owners(const struct hosts_facts *facts, double owners_ms, double local_ms)
{
    bool is_measured = facts->is_source_measured && facts->peers > 0;
    if (!facts->is_on)
        return reason_of(REASON_HOSTS_OFF);
    if (facts->etcd_problem[0])
        return reason_with(REASON_ETCD_AWAY, "%s", facts->etcd_problem);
    if (facts->alive < 2)
        return reason_of(REASON_NO_OTHER_HOST);
    if (facts->unshared)
        return reason_with(REASON_SOURCE_NOT_SHARED, "%s", facts->unshared);
    if (facts->cached_share >= 1)
        return reason_of(REASON_IN_PAGE_CACHE);
    if (is_measured && owners_ms > local_ms * CLEARLY_SLOWER)
        return reason_with(REASON_OWNER_PEERS_SLOWER, "%.0fms,local_slices=%.0fms", owners_ms, local_ms);
    return reason_of(REASON_ELIGIBLE);
}

struct hosts_choice hosts_choose(const struct hosts_facts *facts)
{
    struct hosts_choice choice = {.alive = facts->is_on ? facts->alive : 0};
    struct hosts_candidate *all = &choice.candidates[HOSTS_READ_ALL], *local = &choice.candidates[HOSTS_LOCAL_SLICES];
    struct hosts_candidate *owners = &choice.candidates[HOSTS_OWNER_PEERS];
    bool needs_all = facts->needed_bytes >= facts->artifact_bytes;
    double read_ns = part_ns((double)facts->read_bytes, facts->source) + facts->requests_ns;
    all->estimated_ms = (needs_all ? read_ns : part_ns((double)facts->artifact_bytes, facts->source)) / NS_PER_MS;
    all->reason = reason_of(needs_all ? REASON_ELIGIBLE : REASON_NOT_ALL_IS_NEEDED);
    local->estimated_ms = read_ns / NS_PER_MS;
    local->reason = reason_of(needs_all ? REASON_ALL_IS_NEEDED : REASON_ELIGIBLE);
    if (facts->is_on && facts->alive > 1)
        owners->estimated_ms = from_owners_ns(facts) / NS_PER_MS;
    owners->reason = judge_owners(facts, owners->estimated_ms, local->estimated_ms);
    choice.way = owners->reason.kind == REASON_ELIGIBLE ? HOSTS_OWNER_PEERS
                 : needs_all                            ? HOSTS_READ_ALL
                                                        : HOSTS_LOCAL_SLICES;
    choice.reason =
        choice.way == HOSTS_OWNER_PEERS ? reason_with(REASON_HOSTS_SHARE, "alive=%u", facts->alive) : owners->reason;
    return choice;
}
