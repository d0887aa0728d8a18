/* Threads that make MD5 sums together each get their own. */
#include "tests/support/unit.h"

#include <pthread.h>

#include "sink/sink_md5.h"
#include "base/digest.h"
#include "base/memory.h"

enum { N_THREADS = 12, N_SUMS = 20, BYTES = 300 << 10 };

static void *make_sums(void *data)
{
    size_t number = (size_t)data;
    unsigned char *bytes = memory_alloc(2 * BYTES), found[SINK_MD5_BYTES], right[DIGEST_BYTES];
    memset(bytes, (int)number + 1, 2 * BYTES);
    size_t n_wrong = 0;
    for (size_t i = 0; i < N_SUMS; i++) {
        size_t count = BYTES / 2 + (number * 7919 + i * 104729) % BYTES; /* also some that are summed alone */
        struct digest *digest = digest_create_md5();
        if (!sink_md5(bytes, count, found) || !digest)
            break;
        digest_add(digest, bytes, count);
        digest_finish(digest, right);
        n_wrong += memcmp(found, right, sizeof found) != 0;
    }
    free(bytes);
    return (void *)n_wrong;
}

TEST(each_thread_gets_the_sum_of_its_own_part)
{
    pthread_t threads[N_THREADS];
    for (size_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_sums, (void *)i), 0);
    for (size_t i = 0; i < N_THREADS; i++) {
        void *n_wrong;
        pthread_join(threads[i], &n_wrong);
        assert_null(n_wrong);
    }
}
