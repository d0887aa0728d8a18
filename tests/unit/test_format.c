/* Names alone tell which files of a folder hold tensors, and each format has what reading one takes. */
#include "tests/support/unit.h"

#include "resolve/format.h"
#include "resolve/safetensors.h"

TEST(hidden_files_in_a_folder_are_no_parts)
{
    assert_true(format_safetensors.probe("a.safetensors"));
    assert_false(format_safetensors.probe("._a.safetensors"));
    assert_false(format_safetensors.probe(".safetensors"));
    assert_false(format_safetensors.probe("a.safetensors.tmp"));
}

TEST(every_format_can_be_read)
{
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
