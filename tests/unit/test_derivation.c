/* An artifact whose tensors are derived: what is its own, and what the stored one's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "resolve/derivation.h"
#include "tests/support/variant_scene.h"

#include <cmocka.h>

static unsigned char zero(uint64_t i)
{
    (void)i;
    return 0;
}

static void a_variant_has_an_identity_and_tensors_of_its_own(void **state)
{
    (void)state;
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

static void the_last_one_who_has_it_frees_it(void **state)
{
    (void)state;
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, variant_scene_begin, variant_scene_end)
    const struct CMUnitTest tests[] = {TEST(a_variant_has_an_identity_and_tensors_of_its_own),
                                       TEST(the_last_one_who_has_it_frees_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
