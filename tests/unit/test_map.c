/* The map agrees with a plain list under adds, finds and removes, and no key can be made to collide on purpose. */
#include "tests/support/unit.h"

#include "base/map.c" /* for hash_of() */

enum { N_KEYS = 2000, KEY_CHARS = 64 };
static char keys[N_KEYS][KEY_CHARS];

static int make_keys(void **state)
{
    (void)state;
    for (int i = 0; i < N_KEYS; i++)
        snprintf(keys[i], KEY_CHARS, "model.layers.%d.%.*s", i, i % 30, "self_attn.q_proj.weight.and.so.on");
    return 0;
}

TEST(an_added_key_is_found_and_others_are_not)
{
    struct map map;
    map_init(&map, 0);
    assert_int_equal(map_find(&map, "a", 1), MAP_NONE);
    assert_int_equal(map_add(&map, "a", 1, 7), MAP_NONE);
    assert_int_equal(map_find(&map, "a", 1), 7);
    assert_int_equal(map_find(&map, "b", 1), MAP_NONE);
    assert_int_equal(map_find(&map, "ab", 2), MAP_NONE);
    assert_int_equal(map_find(&map, "", 0), MAP_NONE);
    map_fini(&map);
}

TEST(a_second_add_returns_the_first_value_and_changes_nothing)
{
    struct map map;
    map_init(&map, 4);
    map_add(&map, "key", 3, 1);
    assert_int_equal(map_add(&map, "key", 3, 2), 1);
    assert_int_equal(map_find(&map, "key", 3), 1);
    assert_int_equal(map.n_keys, 1);
    map_fini(&map);
}

TEST(keys_are_bytes_of_any_length)
{
    static const char bytes[40] = "\0\0\0\0\0\0\0\0\0\0\0\0";
    struct map map;
    map_init(&map, 0);
    for (uint32_t length = 0; length <= sizeof bytes; length++)
        assert_int_equal(map_add(&map, bytes, length, length), MAP_NONE);
    for (uint32_t length = 0; length <= sizeof bytes; length++)
        assert_int_equal(map_find(&map, bytes, length), length);
    map_fini(&map);
}

TEST(it_agrees_with_a_list_under_random_adds_and_removes)
{
    struct map map;
    bool present[N_KEYS] = {false};
    uint64_t seed = 42;
    map_init(&map, 3);
    for (int step = 0; step < 60000; step++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t i = (uint32_t)(seed >> 33) % (step % 3 ? N_KEYS : 40);
        if (seed >> 62) {
            uint32_t old = map_add(&map, keys[i], strlen(keys[i]), i);
            assert_int_equal(old, present[i] ? i : MAP_NONE);
            present[i] = true;
        } else {
            map_remove(&map, keys[i], strlen(keys[i]));
            present[i] = false;
        }
    }
    size_t n_present = 0;
    for (uint32_t i = 0; i < N_KEYS; i++) {
        n_present += present[i];
        assert_int_equal(map_find(&map, keys[i], strlen(keys[i])), present[i] ? i : MAP_NONE);
    }
    assert_int_equal(map.n_keys, n_present);
    map_fini(&map);
}

TEST(removing_from_an_empty_or_finished_map_is_harmless)
{
    struct map map;
    map_init(&map, 0);
    map_remove(&map, "x", 1);
    map_fini(&map);
    map_remove(&map, "x", 1);
    assert_int_equal(map_find(&map, "x", 1), MAP_NONE);
}

/* With a multiply-and-shift mix, flipping the top bit of one word and two bits of the next gave the same hash whatever the
 * seed, and n such pairs 2^n colliding names. */
TEST(differences_that_cancel_out_for_every_seed_are_not_to_be_had)
{
    uint64_t plain[4] = {1, 2, 3, 4};
    uint64_t twisted[4] = {1 ^ 1ull << 63, 2 ^ (1ull << 63 | 1ull << 34), 3, 4};
    int n_equal = 0;
    for (uint64_t seed = 0; seed < 1000; seed++)
        n_equal += hash_of(seed, (const char *)plain, sizeof plain) == hash_of(seed, (const char *)twisted, sizeof twisted);
    assert_int_equal(n_equal, 0);
}

TEST(a_charged_map_is_paid_for_and_full_where_its_user_has_no_more)
{
    struct quota *quota = quota_create();
    struct error error;
    struct map map;
    quota_set_limits(quota, QUOTA_METADATA, 2 * map_memory_bytes(N_KEYS), 0);
    quota_set_kept(quota, 0);
    metadata_enter((struct metadata_account){quota, 12345});
    assert_int_equal(map_init_charged(&map, 10, &error), 0);
    for (int i = 0; i < N_KEYS; i++) {
        if (i >= 10 && i % 100 == 0)
            assert_int_equal(map_reserve(&map, (size_t)i + 100, &error), 0);
        if (i < 10 || i >= 100)
            assert_int_equal(map_add(&map, keys[i], strlen(keys[i]), (uint32_t)i), MAP_NONE);
    }
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), map_memory_bytes(N_KEYS));
    assert_int_equal(map_reserve(&map, 4 * N_KEYS, &error), -1);
    assert_string_equal(error.reason, "METADATA_EXCEEDED");
    for (int i = 0; i < N_KEYS; i++)
        assert_int_equal(map_find(&map, keys[i], strlen(keys[i])), i < 10 || i >= 100 ? (uint32_t)i : MAP_NONE);
    map_fini(&map);
    assert_int_equal(map_init_charged(&map, 4 * N_KEYS, &error), -1);
    assert_int_equal(map_find(&map, "a", 1), MAP_NONE);
    map_fini(&map);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    metadata_enter((struct metadata_account){0});
    quota_destroy(quota);
}

TEST(hashes_depend_on_the_seed_and_on_every_byte_and_the_length)
{
    char key[40] = {0};
    uint64_t hash = hash_of(1, key, 33);
    assert_true(hash != hash_of(2, key, 33));
    assert_true(hash != hash_of(1, key, 32));
    assert_true(hash != hash_of(1, key, 34));
    for (int i = 0; i < 33; i++) {
        key[i] ^= 1;
        assert_true(hash != hash_of(1, key, 33));
        key[i] ^= 1;
    }
    key[33] = 1;
    assert_true(hash == hash_of(1, key, 33));
}

TESTS_IN(make_keys, NULL)
