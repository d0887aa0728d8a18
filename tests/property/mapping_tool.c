/* Prints the mappings of views, of tensors in pieces as tests/support/pieces.h joins them, for test_mapping_numpy.py.
 *
 * stdin, words separated by white space:  REFERENCE ALIGN N_ITEMS, then per item NAME N_SLICES and two bounds per slice,
 * where "." is an open end; again until the end of the input. stdout, per view: an `error CODE` line, or one `mapping` line,
 * a `tensor` line per tensor and a `transfer` line per transfer, with their fields in the order of mapping.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "resolve/mapping.h"
#include "tests/support/operation_name.h"
#include "tests/support/pieces.h"

enum { WORD_CHARS = 1000 };

static void read_word(char word[WORD_CHARS])
{
    if (scanf("%999s", word) != 1) {
        fprintf(stderr, "mapping_tool: the input ends in the middle of a view\n");
        exit(2);
    }
}

static int64_t read_number(int64_t open_end)
{
    char word[WORD_CHARS];
    read_word(word);
    return strcmp(word, ".") == 0 ? open_end : strtoll(word, NULL, 10);
}

static void read_item(struct view_item *item)
{
    char name[WORD_CHARS];
    read_word(name);
    item->name = memory_copy_text(name);
    item->name_length = strlen(name);
    item->n_slices = (uint32_t)read_number(0);
    struct slice *slices = memory_alloc_array(item->n_slices, sizeof *slices);
    for (uint32_t i = 0; i < item->n_slices; i++) {
        slices[i].start = read_number(0);
        slices[i].stop = read_number(INT64_MAX);
    }
    item->slices = slices;
}

static void print_mapping(const struct mapping *mapping)
{
    printf("mapping %zu %zu %" PRIu64 " %" PRIu64 "\n", mapping->n_tensors, mapping->n_transfers, mapping->view_bytes,
           mapping->replica_bytes);
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        printf("tensor %s %" PRIu64 " %" PRIu64, tensor->record->name, tensor->offset, tensor->bytes);
        for (uint32_t d = 0; d < tensor->record->rank; d++)
            printf(" %" PRIu64, tensor->shape[d]);
        printf("\n");
    }
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *run = &mapping->transfers[i];
        printf("transfer %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
               mapping->artifact->source->files[run->file].name, run->src_offset, run->dst_offset, run->row_bytes,
               run->n_rows, run->src_stride, run->dst_stride,
               run->operation ? operation_name(&mapping->operations[run->operation]) : "copy");
    }
}

static void answer(const char *reference, const struct view_spec *view)
{
    const struct source_options options = {.allow_relative = true};
    struct artifact *stored = NULL, *artifact = NULL;
    struct mapping *mapping = NULL;
    struct error error;
    if (artifact_resolve(reference, &options, NULL, false, &stored, &error) == 0) {
        artifact = pieces_join(stored);
        mapping = mapping_build(view, artifact, &error);
    }
    if (mapping)
        print_mapping(mapping);
    else
        printf("error %s %s\n", error_code_name(error.code), error.message);
    mapping_destroy(mapping);
    pieces_free(artifact);
    artifact_unref(stored);
}

int main(void)
{
    char reference[WORD_CHARS];
    while (scanf("%999s", reference) == 1) {
        struct view_spec view = {.align_bytes = (uint64_t)read_number(0)};
        view.n_items = (size_t)read_number(0);
        struct view_item *items = memory_alloc_array(view.n_items, sizeof *items);
        for (size_t i = 0; i < view.n_items; i++)
            read_item(&items[i]);
        view.items = items;
        answer(reference, &view);
        for (size_t i = 0; i < view.n_items; i++) {
            free((char *)items[i].name);
            free((struct slice *)items[i].slices);
        }
        free(items);
    }
    return 0;
}
