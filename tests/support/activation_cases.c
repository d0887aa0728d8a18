#include "tests/support/activation_cases.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

enum { ROW_ELEMENTS = 16 };

static void assert_no_error(int failed, const struct error *error)
{
    if (failed)
        print_error("%s\n", error->message);
    assert_int_equal(failed, 0);
}

void case_sample_make(struct case_sample *made, uint32_t id, uint64_t rows)
{
    struct error error;
    *made = (struct case_sample){.shape = {rows, ROW_ELEMENTS}};
    for (uint32_t i = 0; i < 2; i++)
        made->tensors[i] = (struct sample_tensor){.layer = 10 + 5 * i, .rank = 2, .dtype = DTYPE_F32, .shape = made->shape};
    snprintf(made->info, sizeof made->info, "{\"text\": \"%" PRIu32 " \\u00e4\"}", id);
    made->sample = (struct sample){.id = id, .n_tensors = 2, .info = made->info, .info_bytes = strlen(made->info)};
    assert_int_equal(sample_check(&made->sample, made->tensors, &error), 0);
    made->bytes = memory_alloc(made->sample.bytes + 1);
    for (uint64_t i = 0; i < made->sample.bytes; i++)
        made->bytes[i] = (unsigned char)((id + i) % 251);
}

struct host_folder *case_folder_open(const char *root, uint64_t segment_bytes)
{
    struct host_folder *folder = NULL;
    struct error error = {0};
    char *path = memory_print("%s/acts", root);
    const struct host_folder_options options = {
        .roots = {&root, 1}, .path = path, .host = 3, .segment_bytes = segment_bytes};
    assert_no_error(host_folder_open(&options, &folder, &error), &error);
    free(path);
    return folder;
}

void case_folder_append(struct host_folder *folder, uint32_t id, uint64_t rows)
{
    struct case_sample made;
    struct error error = {0};
    case_sample_make(&made, id, rows);
    uint64_t half = made.sample.bytes / 2;
    assert_no_error(host_folder_begin(folder, &made.sample, UINT64_MAX, &error), &error);
    assert_no_error(host_folder_write(folder, made.bytes, half, &error), &error);
    assert_no_error(host_folder_write(folder, made.bytes + half, made.sample.bytes - half, &error), &error);
    assert_no_error(host_folder_end(folder, &made.sample, &error), &error);
    free(made.bytes);
    case_folder_seal(folder, false);
}

void case_folder_seal(struct host_folder *folder, bool all)
{
    struct error error = {0};
    if (all)
        assert_int_equal(host_folder_finish(folder, &error), 0);
    struct segment_builder *full = host_folder_take_full(folder);
    if (full)
        assert_no_error(host_folder_seal(folder, full, &error), &error);
}
