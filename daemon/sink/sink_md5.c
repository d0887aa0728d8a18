#include "sink/sink_md5.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/md5_lanes.h"

enum { ALONE_BYTES = 256 << 10, CPUS_FOR_EACH = 16 };

struct waiting_part {
    struct md5_lane lane;
    bool is_done;
    struct waiting_part *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct waiting_part *first;
    size_t n_summing; /* threads; few, so that others come together meanwhile */
} parts = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void sum_alone(struct digest *digest, struct md5_lane *lane)
{
    unsigned char value[DIGEST_BYTES];
    digest_add(digest, lane->bytes, lane->count);
    digest_finish(digest, value);
    memcpy(lane->sum, value, sizeof lane->sum);
}

/* Takes what waits, as much as there are lanes. Under the lock, which is not held while the sums are made. */
static void sum_waiting(void)
{
    struct waiting_part *taken[MD5_LANES];
    struct md5_lane lanes[MD5_LANES];
    size_t n = 0;
    while (parts.first && n < MD5_LANES) {
        taken[n] = parts.first;
        lanes[n] = parts.first->lane;
        parts.first = parts.first->next;
        n++;
    }
    parts.n_summing++;
    pthread_mutex_unlock(&parts.lock);
    struct digest *digest = n == 1 ? digest_create_md5() : NULL; /* one lane alone is slower than libcrypto */
    if (digest)
        sum_alone(digest, &lanes[0]);
    else
        md5_lanes(lanes, n);
    pthread_mutex_lock(&parts.lock);
    for (size_t i = 0; i < n; i++) {
        taken[i]->lane = lanes[i];
        taken[i]->is_done = true;
    }
    parts.n_summing--;
    pthread_cond_broadcast(&parts.changed);
}

static void sum_together(struct waiting_part *part)
{
    size_t most = 1 + (size_t)sysconf(_SC_NPROCESSORS_ONLN) / CPUS_FOR_EACH;
    pthread_mutex_lock(&parts.lock);
    struct waiting_part **last = &parts.first;
    while (*last)
        last = &(*last)->next;
    *last = part;
    while (!part->is_done) {
        if (parts.first && parts.n_summing < most)
            sum_waiting();
        else
            pthread_cond_wait(&parts.changed, &parts.lock);
    }
    pthread_mutex_unlock(&parts.lock);
}

bool sink_md5_is_there(void)
{
    unsigned char unused[DIGEST_BYTES];
    struct digest *digest = digest_create_md5();
    if (digest)
        digest_finish(digest, unused);
    return digest;
}

bool sink_md5(const void *bytes, size_t count, unsigned char md5[SINK_MD5_BYTES])
{
    struct waiting_part part = {.lane = {.bytes = bytes, .count = count}};
    struct digest *digest = digest_create_md5();
    unsigned char unused[DIGEST_BYTES];
    if (!digest)
        return false;
    if (count <= ALONE_BYTES) {
        sum_alone(digest, &part.lane);
    } else {
        digest_finish(digest, unused);
        sum_together(&part);
    }
    memcpy(md5, part.lane.sum, SINK_MD5_BYTES);
    return true;
}
