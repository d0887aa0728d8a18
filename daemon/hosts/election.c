/* See election.h. */
#include "hosts/election.h"

#include "base/clock.h"

static const uint64_t ms_ns = NS_PER_MS;
static const uint64_t first_pause_ns = 10000 * ms_ns, longest_pause_ns = 160000 * ms_ns;
static const uint64_t least_patience_ns = 3000 * ms_ns, strangers_patience_ns = 15000 * ms_ns,
                      longest_patience_ns = 60000 * ms_ns;
static const uint64_t least_slow_ns = 1000 * ms_ns; /* of a host; a busy machine may keep all of its answers for less */
enum { SLOW_READS = 3, SLOW_FACTOR = 4, SLOW_MS = 100, GOOD_ANSWERS = 32 };

bool lateness_is_on(const struct lateness *lateness, uint64_t now_ns)
{
    return now_ns < lateness->until_ns;
}

bool lateness_mark(struct lateness *lateness, uint64_t began_ns, uint64_t now_ns)
{
    if (lateness->pause_ns > 0 && began_ns < lateness->until_ns - lateness->pause_ns)
        return false; /* it began before the mark that is there */
    uint64_t twice_ns = 2 * lateness->pause_ns;
    lateness->pause_ns = twice_ns == 0 ? first_pause_ns : twice_ns < longest_pause_ns ? twice_ns : longest_pause_ns;
    lateness->until_ns = now_ns + lateness->pause_ns;
    lateness->n_good = lateness->n_slow_reads = 0;
    lateness->mean_ns = lateness->slow_since_ns = 0;
    return true;
}

bool lateness_add_slow_read(struct lateness *lateness, uint64_t began_ns, uint64_t now_ns)
{
    return ++lateness->n_slow_reads >= SLOW_READS && lateness_mark(lateness, began_ns, now_ns);
}

bool lateness_add_answer(struct lateness *lateness, uint64_t took_ns, uint64_t slow_ns, uint64_t now_ns)
{
    lateness->mean_ns = lateness->mean_ns ? lateness->mean_ns - lateness->mean_ns / 16 + took_ns / 16 : took_ns;
    lateness->n_slow_reads = 0;
    if (lateness_is_on(lateness, now_ns))
        return false;
    if (slow_ns == 0 || took_ns <= slow_ns) {
        lateness->slow_since_ns = 0;
        if (++lateness->n_good >= GOOD_ANSWERS)
            lateness->pause_ns = 0; /* it is as good as others again */
        return false;
    }
    uint64_t for_ns = 2 * slow_ns > least_slow_ns ? 2 * slow_ns : least_slow_ns;
    if (lateness->slow_since_ns == 0 || now_ns > lateness->slow_last_ns + for_ns + took_ns) /* asked long after that */
        lateness->slow_since_ns = now_ns;
    lateness->slow_last_ns = now_ns;
    return now_ns - lateness->slow_since_ns >= for_ns && lateness_mark(lateness, now_ns, now_ns);
}

uint64_t election_slow_ns(uint64_t own_read_ns, uint64_t others_ns)
{
    uint64_t usual_ns = SLOW_FACTOR * (others_ns ? others_ns : own_read_ns);
    usual_ns = usual_ns > 3 * own_read_ns / 2 ? usual_ns : 3 * own_read_ns / 2;
    return usual_ns ? usual_ns + SLOW_MS * ms_ns : 0;
}

uint64_t election_patience_ns(uint64_t own_read_ns)
{
    if (own_read_ns == 0)
        return strangers_patience_ns;
    if (own_read_ns > longest_patience_ns / 4)
        return longest_patience_ns;
    return 4 * own_read_ns > least_patience_ns ? 4 * own_read_ns : least_patience_ns;
}

uint64_t election_quick_ns(uint64_t quick_ns, uint64_t took_ns)
{
    return quick_ns == 0 || took_ns < quick_ns ? took_ns : quick_ns + (took_ns - quick_ns) / 1024;
}

bool election_asks_next(uint64_t own_read_ns)
{
    return own_read_ns > 100 * (uint64_t)NS_PER_MS;
}

size_t election_winner(const struct shared_file *file, uint64_t block, const uint64_t *host_hashes, size_t n,
                       bool (*is_out)(void *data, size_t host), void *data)
{
    size_t winner = n;
    uint64_t best = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t score = shared_score(file, block, host_hashes[i]);
        if ((winner == n || score > best || (score == best && host_hashes[i] > host_hashes[winner])) && !is_out(data, i)) {
            winner = i;
            best = score;
        }
    }
    return winner;
}

uint64_t election_turn(uint64_t own_hash, uint64_t owner_hash, uint32_t nth)
{
    const struct shared_file lap = {.hash = own_hash};
    return ((uint64_t)nth + 1) << 32 | shared_score(&lap, nth, owner_hash) >> 32;
}
