#include "api/prewarm_view.h"

#include <string.h>

#include "base/text.h"
#include "resolve/usual_split.h"

bool prewarm_view_is_whole(const struct config_prewarm *entry)
{
    return entry->n_tensors == 0 && entry->tp_size == 0;
}

static int split(const struct config_prewarm *entry, const struct tensor_record *tensor, struct arena *arena,
                 struct view_item *item, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    int64_t dimension = usual_split_dimension(tensor->name, tensor->name_length, tensor->rank);
    if (entry->tp_size <= 1 || dimension == USUAL_SPLIT_NONE || tensor->shape[dimension] > INT64_MAX)
        return 0;
    if (tensor->shape[dimension] % entry->tp_size)
        return fail(error, ERROR_INVALID_ARGUMENT, "DOES_NOT_DIVIDE",
                    "tensor %s: dimension %lld (%llu) does not divide by %llu ranks",
                    text_escape(tensor->name, tensor->name_length, name), (long long)dimension,
                    (unsigned long long)tensor->shape[dimension], (unsigned long long)entry->tp_size);
    struct slice *slices = arena_try_array(arena, tensor->rank, sizeof *slices, error);
    if (!slices)
        return -1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        slices[d] = (struct slice){0, INT64_MAX};
    int64_t share = (int64_t)(tensor->shape[dimension] / entry->tp_size), rank = (int64_t)entry->tp_rank;
    slices[dimension] = (struct slice){share * rank, share * (rank + 1)};
    item->slices = slices;
    item->n_slices = tensor->rank;
    return 0;
}

struct choice {
    const struct config_prewarm *entry;
    const struct artifact *artifact;
    struct arena *arena;
    bool *is_chosen; /* per tensor */
    struct view_item *items;
    size_t n_items;
};

/* pattern NULL = all. */
static int choose_matches(struct choice *choice, const char *pattern, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    size_t n_matches = 0;
    for (size_t i = 0; i < choice->artifact->n_tensors; i++) {
        const struct tensor_record *tensor = &choice->artifact->tensors[i];
        bool is_name = pattern && strlen(pattern) == tensor->name_length && strcmp(pattern, tensor->name) == 0;
        if (pattern && !is_name && !text_glob(pattern, tensor->name, tensor->name_length))
            continue;
        n_matches++;
        if (choice->is_chosen[i])
            continue;
        choice->is_chosen[i] = true;
        struct view_item *item = &choice->items[choice->n_items++];
        *item = (struct view_item){.name = tensor->name, .name_length = tensor->name_length};
        if (split(choice->entry, tensor, choice->arena, item, error) != 0)
            return -1;
    }
    return n_matches || !pattern ? 0
                                 : fail(error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "no tensor of it matches '%s'",
                                        text_escape(pattern, strlen(pattern), shown));
}

int prewarm_view_build(const struct config_prewarm *entry, const struct artifact *artifact, struct arena *arena,
                       struct view_spec *view, struct error *error)
{
    struct choice choice = {.entry = entry, .artifact = artifact, .arena = arena};
    int failed = 0;
    choice.is_chosen = arena_try_array(arena, artifact->n_tensors, sizeof *choice.is_chosen, error);
    choice.items = choice.is_chosen ? arena_try_array(arena, artifact->n_tensors, sizeof *choice.items, error) : NULL;
    if (!choice.items)
        return -1;
    if (entry->n_tensors == 0)
        failed = choose_matches(&choice, NULL, error);
    for (size_t i = 0; i < entry->n_tensors && !failed; i++)
        failed = choose_matches(&choice, entry->tensors[i], error);
    *view = (struct view_spec){.whole = choice.n_items == 0,
                               .items = choice.items,
                               .n_items = choice.n_items,
                               .placement = entry->n_tensors ? PLACEMENT_PACKED : PLACEMENT_SOURCE};
    return failed;
}
