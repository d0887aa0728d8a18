/* How much of a list is kept; what is compared with it is e2e/test_activation_shards.py's. */
#include "client/cli/shard_metadata.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

static struct shard_metadata parse_list(size_t n)
{
    static const char shard[] = "{\"filename\":\"a\"},";
    struct shard_metadata metadata = {0};
    char *text = memory_alloc(64 + n * (sizeof shard - 1)), *at = text + 11;
    memcpy(text, "{\"shards\":[", 11);
    for (size_t i = 0; i < n; i++, at += sizeof shard - 1)
        memcpy(at, shard, sizeof shard - 1);
    memcpy(at - 1, "],\"total_shards\":5}", 19);
    shard_metadata_parse(&metadata, text, (size_t)(at + 18 - text));
    free(text);
    return metadata;
}

static void a_million_shards_may_be_listed_and_of_one_more_it_is_complained(void **state)
{
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct shard_metadata metadata = parse_list((1 << 20) + more);
        assert_int_equal(metadata.n_list, 1 << 20);
        assert_int_equal(metadata.shards, 5);
        assert_string_equal(metadata.complaint, more ? "it lists more than 1048576 shards" : "");
        shard_metadata_fini(&metadata);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_shards_may_be_listed_and_of_one_more_it_is_complained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
