#include "api/prewarm_view.h"

#include <string.h>

#include "base/text.h"
#include "resolve/usual_split.h"

bool prewarm_view_is_whole(const struct config_prewarm *entry)
{
    return entry->n_tensors == 0 && entry->tp_size == 0;
}

struct choice {
    const struct config_prewarm *entry;
    const struct artifact *artifact;
    const struct tp_model *model;
    struct arena *arena;
    bool *is_chosen; /* per tensor */
    struct view_item *items;
    size_t n_items;
};

static bool find_tensor(const void *data, const char *name, size_t length, struct tp_tensor *found)
{
    const struct artifact *artifact = data;
    uint32_t at = map_find(&artifact->by_name, name, length);
    if (at == MAP_NONE)
        return false;
    const struct tensor_record *tensor = &artifact->tensors[at];
    *found = (struct tp_tensor){tensor->name, tensor->name_length, tensor->shape, tensor->rank};
    return true;
}

static int split(const struct choice *choice, const struct tensor_record *tensor, struct view_item *item,
                 struct error *error)
{
    const struct tp_group group = {choice->model, choice->entry->tp_size, choice->entry->tp_rank, find_tensor,
                                   choice->artifact};
    const struct tp_tensor it = {tensor->name, tensor->name_length, tensor->shape, tensor->rank};
    struct tp_part part;
    if (tp_part_find(&group, &it, &part, error) < 0)
        return -1;
    if (part.dimension == USUAL_SPLIT_NONE)
        return 0;
    struct slice *slices = arena_try_array(choice->arena, tensor->rank, sizeof *slices, error);
    if (!slices)
        return -1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        slices[d] = (struct slice){0, INT64_MAX};
    slices[part.dimension] = (struct slice){(int64_t)part.start, (int64_t)part.stop};
    item->slices = slices;
    item->n_slices = tensor->rank;
    return 0;
}

/* A pattern means the tensors of files that are not there, too. NULL = all. */
static int check_absent(const struct artifact *artifact, const char *pattern, struct error *error)
{
    const struct artifact_absent *absent = artifact_absent(artifact);
    for (size_t i = 0; pattern && i < absent->n_tensors; i++) {
        const struct absent_tensor *tensor = &absent->tensors[i];
        if (strcmp(pattern, tensor->name) == 0 || text_glob(pattern, tensor->name, tensor->name_length))
            return artifact_check_complete(artifact, error);
    }
    return pattern ? 0 : artifact_check_complete(artifact, error);
}

/* pattern NULL = all. */
static int choose_matches(struct choice *choice, const char *pattern, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    size_t n_matches = 0;
    if (check_absent(choice->artifact, pattern, error) != 0)
        return -1;
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
        if (split(choice, tensor, item, error) != 0)
            return -1;
    }
    return n_matches || !pattern ? 0
                                 : fail(error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "no tensor of it matches '%s'",
                                        text_escape(pattern, strlen(pattern), shown));
}

int prewarm_view_build(const struct config_prewarm *entry, const struct artifact *artifact, const struct tp_model *model,
                       struct arena *arena, struct view_spec *view, struct error *error)
{
    struct choice choice = {.entry = entry, .artifact = artifact, .model = model, .arena = arena};
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
