/* Names alone tell which files of a folder hold tensors, and each format has what reading one takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "resolve/format.h"
#include "resolve/safetensors.h"

#include <cmocka.h> /* last: it makes a macro of fail */

static void hidden_files_in_a_folder_are_no_parts(void **state)
{
    (void)state;
    assert_true(format_safetensors.probe("a.safetensors"));
    assert_false(format_safetensors.probe("._a.safetensors"));
    assert_false(format_safetensors.probe(".safetensors"));
    assert_false(format_safetensors.probe("a.safetensors.tmp"));
}

static void every_format_can_be_read(void **state)
{
    (void)state;
    assert_true(n_formats > 0);
    for (size_t i = 0; i < n_formats; i++) {
        assert_true(formats[i]->name && formats[i]->single_names && formats[i]->index_names && formats[i]->pattern);
        for (size_t k = 0; formats[i]->single_names[k] || formats[i]->index_names[k]; k++) {
            assert_true(formats[i]->probe(formats[i]->single_names[k]));
            assert_false(formats[i]->probe(formats[i]->index_names[k]));
        }
        assert_true(formats[i]->source_format && formats[i]->length && formats[i]->parse && formats[i]->cache_kind);
        assert_in_range(formats[i]->first_bytes, 1, FORMAT_MAX_FIRST_BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_files_in_a_folder_are_no_parts),
        cmocka_unit_test(every_format_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
