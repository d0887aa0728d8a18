/* An artifact whose tensors are derived: what is its own, and what the stored one's. */
#include "tests/support/unit.h"

#include "resolve/derivation.h"
#include "resolve/header_cache.h"
#include "tests/support/variant_scene.h"
#include "variant/variant.h"

static unsigned char zero(uint64_t i)
{
    (void)i;
    return 0;
}

TEST_IN(a_variant_has_an_identity_and_tensors_of_its_own, variant_scene_begin, variant_scene_end)
{
    variant_scene_put("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, zero);
    assert_int_equal(
        variant_scene_apply("[{\"rename\": {\"a\": \"b\"}}, {\"cast\": {\"tensors\": [\"b\"], \"dtype\": \"F16\"}}]"), 0);
    const struct artifact *variant = variant_scene.artifact;
    assert_null(variant_scene_tensor("a"));
    assert_int_equal(variant_scene_tensor("b")->bytes, 8);
    assert_int_equal(variant->total_bytes, 8);
    assert_string_not_equal(variant->identity, variant->stored->identity);
    assert_string_equal(variant->source_key, variant->stored->source_key); /* the same bytes are read */
    assert_string_equal(artifact_stored(variant, variant->pieces[0].tensor)->name, "a");
    assert_int_equal(artifact_piece_end(variant, &variant->pieces[0]) - variant->pieces[0].offset, 16);
    assert_true(derivation_memory_bytes(variant->derivation) > sizeof(struct derivation));
}

TEST_IN(the_last_one_who_has_it_frees_it, variant_scene_begin, variant_scene_end)
{
    variant_scene_put("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, zero);
    assert_int_equal(variant_scene_apply("[]"), 0);
    struct derivation *derivation = derivation_ref(variant_scene.artifact->derivation);
    artifact_unref(artifact_ref(variant_scene.artifact));
    artifact_unref(variant_scene.artifact);
    variant_scene.artifact = NULL;
    assert_string_equal(derivation->records[0].name, "a"); /* it keeps the names of what is stored */
    derivation_unref(derivation);
    derivation_unref(NULL);
}

static struct derivation *derive(const char *recipe, struct header_cache *cache)
{
    struct artifact *artifact;
    struct error error;
    assert_int_equal(artifact_resolve("memory:model", &(struct source_options){0}, cache, 0, &artifact, &error), 0);
    assert_int_equal(variant_apply(&artifact, recipe, strlen(recipe), cache, NULL, &error), 0);
    struct derivation *derivation = derivation_ref(artifact->derivation);
    artifact_unref(artifact);
    return derivation;
}

TEST_IN(the_same_steps_of_the_same_files_are_applied_once, variant_scene_begin, variant_scene_end)
{
    static const char *const recipes[] = {
        "[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"F16\"}}]",
        "{\"version\": 1, \"steps\": [{\"cast\": {\"dtype\": \"F16\", \"tensors\": [\"a\"]}}]}",
        "[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"BF16\"}}]",
    };
    struct header_cache *cache;
    struct derivation *found[3];
    struct error error;
    assert_int_equal(header_cache_create(NULL, 1 << 20, &cache, &error), 0);
    variant_scene_put("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, zero);
    for (int i = 0; i < 3; i++)
        found[i] = derive(recipes[i], cache);
    assert_ptr_equal(found[0], found[1]);
    assert_ptr_not_equal(found[0], found[2]);
    assert_true(header_cache_memory_bytes(cache) >= derivation_memory_bytes(found[0]));
    variant_scene_put("{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}", 20, zero);
    struct derivation *other = derive(recipes[0], cache);
    assert_ptr_not_equal(found[0], other);
    assert_int_equal(other->records[0].bytes, 10);
    derivation_unref(other);
    while (header_cache_shrink(cache))
        continue;
    assert_int_equal(header_cache_memory_bytes(cache), 0);
    assert_string_equal(found[2]->records[0].name, "a"); /* what is in use stays */
    for (int i = 0; i < 3; i++)
        derivation_unref(found[i]);
    header_cache_destroy(cache);
}
