/* Random views of random tensors: the byte runs of a mapping move exactly the bytes that an element-by-element walk moves,
 * in file order, disjoint, within the bounds the mapping states. Prints its seed; TEST_SEED repeats a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "resolve/mapping.h"
#include "source/source_memory.h"

#include <cmocka.h> /* last: its fail() hides ours */

enum { N_CASES = 20000, MAX_TENSORS = 6, MAX_RANK = 6, FILE_ROOM = 1 << 20 };

static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state * 0x2545F4914F6CDD1Du >> 33) % n;
}

struct model { /* one random checkpoint in two files, and a random view of it */
    size_t n_tensors;
    char names[MAX_TENSORS][32];
    enum dtype dtypes[MAX_TENSORS];
    uint32_t ranks[MAX_TENSORS];
    uint64_t shapes[MAX_TENSORS][MAX_RANK];
    struct view_item items[MAX_TENSORS];
    struct slice slices[MAX_TENSORS][MAX_RANK];
    size_t tensor_of_item[MAX_TENSORS];
    size_t n_items;
    unsigned char *files[2];
    uint64_t file_bytes[2];
};

static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_BF16, DTYPE_F32, DTYPE_C64, DTYPE_BOOL};

static void make_tensors(struct model *model)
{
    static const uint64_t extents[] = {0, 1, 1, 2, 3, 4, 5, 7};
    model->n_tensors = 1 + random_below(MAX_TENSORS);
    for (size_t i = 0; i < model->n_tensors; i++) {
        snprintf(model->names[i], sizeof model->names[i], "layer.%zu.w", i);
        model->dtypes[i] = dtypes[random_below(sizeof dtypes / sizeof *dtypes)];
        model->ranks[i] = (uint32_t)random_below(MAX_RANK + 1);
        for (uint32_t d = 0; d < model->ranks[i]; d++)
            model->shapes[i][d] = extents[random_below(20) == 0 ? 0 : 1 + random_below(7)];
    }
}

static uint64_t tensor_bytes(const struct model *model, size_t i)
{
    uint64_t bytes = dtype_bits(model->dtypes[i]) / 8;
    for (uint32_t d = 0; d < model->ranks[i]; d++)
        bytes *= model->shapes[i][d];
    return bytes;
}

/* Even tensors go to one file, odd ones to the other. */
static void write_file(struct model *model, size_t file)
{
    static const char *const names[] = {"a.safetensors", "b.safetensors"};
    char header[4096] = "{";
    uint64_t end = 0;
    for (size_t i = file; i < model->n_tensors; i += 2) {
        char shape[256] = "";
        for (uint32_t d = 0; d < model->ranks[i]; d++)
            sprintf(shape + strlen(shape), "%s%llu", d ? "," : "", (unsigned long long)model->shapes[i][d]);
        uint64_t bytes = tensor_bytes(model, i);
        sprintf(header + strlen(header), "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                i > 1 ? "," : "", model->names[i], dtype_name(model->dtypes[i]), shape, (unsigned long long)end,
                (unsigned long long)(end + bytes));
        end += bytes;
    }
    strcat(header, "}");
    uint64_t length = strlen(header);
    model->file_bytes[file] = 8 + length + end;
    model->files[file] = malloc(model->file_bytes[file]);
    memcpy(model->files[file], &length, 8);
    memcpy(model->files[file] + 8, header, length);
    for (uint64_t i = 8 + length; i < model->file_bytes[file]; i++)
        model->files[file][i] = (unsigned char)random_below(256);
    source_memory_put("model", names[file], model->files[file], model->file_bytes[file]);
}

static int64_t random_bound(uint64_t extent)
{
    int64_t range = (int64_t)extent + 2;
    return (int64_t)random_below((uint64_t)(2 * range + 1)) - range;
}

static void make_view(struct model *model)
{
    size_t order[MAX_TENSORS];
    for (size_t i = 0; i < model->n_tensors; i++) {
        size_t j = random_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    model->n_items = 1 + random_below(model->n_tensors);
    for (size_t i = 0; i < model->n_items; i++) {
        size_t t = order[i];
        bool whole = random_below(4) == 0;
        for (uint32_t d = 0; d < model->ranks[t]; d++) {
            struct slice *slice = &model->slices[i][d];
            slice->start = random_below(4) ? random_bound(model->shapes[t][d]) : 0;
            slice->stop = random_below(4) ? random_bound(model->shapes[t][d]) : INT64_MAX;
        }
        model->tensor_of_item[i] = t;
        model->items[i] = (struct view_item){.name = model->names[t],
                                             .name_length = strlen(model->names[t]),
                                             .n_slices = whole ? 0 : model->ranks[t],
                                             .slices = model->slices[i]};
    }
}

/* NumPy's rule for one bound, written anew. */
static uint64_t bound(int64_t value, uint64_t extent)
{
    if (value == INT64_MAX || value > (int64_t)extent)
        return extent;
    if (value < 0)
        value += (int64_t)extent;
    return value < 0 ? 0 : (uint64_t)value;
}

/* Copies the view's elements of item i one by one to `out`; returns the bytes and checks the shape. */
static uint64_t walk_elements(const struct model *model, size_t i, const struct view_tensor *got, unsigned char *out)
{
    size_t t = model->tensor_of_item[i];
    uint32_t rank = model->ranks[t];
    uint64_t element = dtype_bits(model->dtypes[t]) / 8, first[MAX_RANK], last[MAX_RANK], written = 0;
    for (uint32_t d = 0; d < rank; d++) {
        bool sliced = model->items[i].n_slices != 0;
        first[d] = sliced ? bound(model->slices[i][d].start, model->shapes[t][d]) : 0;
        last[d] = sliced ? bound(model->slices[i][d].stop, model->shapes[t][d]) : model->shapes[t][d];
        last[d] = last[d] < first[d] ? first[d] : last[d];
        assert_int_equal(got->shape[d], last[d] - first[d]);
    }
    const unsigned char *data = model->files[got->record->file] + got->record->offset;
    for (uint64_t n = 0, all = tensor_bytes(model, t) / element; n < all; n++) {
        uint64_t rest = n;
        bool inside = true;
        for (uint32_t d = rank; d-- > 0; rest /= model->shapes[t][d]) {
            uint64_t at = rest % model->shapes[t][d];
            inside = inside && at >= first[d] && at < last[d];
        }
        if (inside) {
            memcpy(out + written, data + n * element, element);
            written += element;
        }
    }
    return written;
}

static void check_runs(const struct mapping *mapping, const struct model *model, unsigned char *replica)
{
    uint64_t moved = 0;
    assert_int_equal(mapping->file_first[0], 0);
    assert_int_equal(mapping->file_first[mapping->artifact->source->n_files], mapping->n_transfers);
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *run = &mapping->transfers[i];
        assert_true(run->row_bytes > 0 && run->n_rows > 0 && run->src_stride >= run->row_bytes);
        assert_true(run->dst_stride >= run->row_bytes && transfer_dst_end(run) <= mapping->replica_bytes);
        assert_true(run->n_rows > 1 || (run->src_stride == run->row_bytes && run->dst_stride == run->row_bytes));
        assert_true(i >= mapping->file_first[run->file] && i < mapping->file_first[run->file + 1]);
        assert_true(transfer_end(run) <= model->file_bytes[run->file]);
        if (i && mapping->transfers[i - 1].file == run->file)
            assert_true(transfer_end(&mapping->transfers[i - 1]) <= run->src_offset);
        assert_int_equal(run->operation, TRANSFER_COPY);
        transfer_table[run->operation].apply(run, model->files[run->file], replica);
        moved += transfer_bytes(run);
    }
    assert_int_equal(moved, mapping->view_bytes);
}

static void check_tensors(const struct mapping *mapping, const struct model *model, const unsigned char *replica)
{
    static unsigned char wanted[FILE_ROOM];
    uint64_t end = 0;
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        uint64_t bytes = walk_elements(model, i, tensor, wanted);
        assert_string_equal(tensor->record->name, model->items[i].name);
        assert_int_equal(tensor->bytes, bytes);
        assert_int_equal(tensor->offset, (end + mapping->align_bytes - 1) / mapping->align_bytes * mapping->align_bytes);
        assert_memory_equal(replica + tensor->offset, wanted, bytes);
        assert_int_equal(tensor->job == JOB_EMPTY, bytes == 0);
        end = tensor->offset + bytes;
    }
    assert_int_equal(end, mapping->replica_bytes);
}

static void run_case(void)
{
    struct model model = {0};
    struct error error;
    struct artifact *artifact;
    make_tensors(&model);
    source_memory_clear();
    write_file(&model, 0);
    write_file(&model, 1);
    make_view(&model);
    if (artifact_resolve("memory:model", &(struct source_options){0}, NULL, false, &artifact, &error) < 0)
        fail_msg("%s", error.message);
    struct view_spec view = {.items = model.items, .n_items = model.n_items, .align_bytes = 1u << random_below(9)};
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    if (!mapping)
        fail_msg("%s", error.message);
    unsigned char *replica = malloc(mapping->replica_bytes + 1);
    check_runs(mapping, &model, replica);
    check_tensors(mapping, &model, replica);
    free(replica);
    mapping_destroy(mapping);
    artifact_unref(artifact);
    free(model.files[0]);
    free(model.files[1]);
}

static void mappings_move_what_an_element_walk_moves(void **state)
{
    const char *seed = getenv("TEST_SEED");
    (void)state;
    random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 0x9E3779B97F4A7C15u;
    print_message("TEST_SEED=%llu, %d cases\n", (unsigned long long)random_state, N_CASES);
    for (int i = 0; i < N_CASES; i++)
        run_case();
    source_memory_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mappings_move_what_an_element_walk_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
