/* Reaches view_file.c. Every accepted item has a readable name and slices; every refusal says why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/view_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_item(const struct tc_view_item *item)
{
    uint64_t sum = strlen(item->name);
    if (item->n_slices > TC_MAX_RANK || (item->n_slices && !item->slices))
        abort();
    for (size_t d = 0; d < item->n_slices; d++)
        sum += (uint64_t)item->slices[d].start ^ (uint64_t)item->slices[d].stop;
    __asm__ volatile("" ::"r"(sum));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {0};
    struct view_file file;
    struct error error = {0};
    if (view_file_parse((const char *)data, size, &arena, &file, &error) < 0) {
        if (error.code != ERROR_INVALID_ARGUMENT || !error.message[0])
            abort();
    } else {
        if (!file.view.n_items || (file.view.align_bytes & (file.view.align_bytes - 1)))
            abort();
        for (size_t i = 0; i < file.view.n_items; i++)
            read_item(&file.view.items[i]);
    }
    arena_fini(&arena);
    return 0;
}
