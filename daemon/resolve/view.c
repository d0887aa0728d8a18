/* Slices become boxes; see view.h. */
#include "resolve/view.h"

#include "base/checked.h"
#include "base/text.h"

static uint64_t clip(int64_t bound, uint64_t extent)
{
    if (bound == INT64_MAX)
        return extent;
    uint64_t magnitude = checked_magnitude(bound);
    if (bound < 0)
        return magnitude < extent ? extent - magnitude : 0;
    return magnitude < extent ? magnitude : extent;
}

void view_slice(const struct slice *slice, uint64_t extent, uint64_t *start, uint64_t *size)
{
    uint64_t first = clip(slice->start, extent), end = clip(slice->stop, extent);
    *size = end > first ? end - first : 0;
    *start = *size ? first : 0;
}

int view_slices(const struct view_item *item, bool leading, const struct tensor_record *record, uint64_t *start,
                uint64_t *size, struct error *error)
{
    static const struct slice whole = {0, INT64_MAX};
    bool fits = item->n_slices == record->rank || (leading && item->n_slices < record->rank);
    if (!fits) {
        fail(error, ERROR_INVALID_ARGUMENT, "WRONG_NUMBER_OF_SLICES",
             "tensor %s has %u dimensions, the view gives %u slice%s; give one per dimension",
             text_show_bytes(record->name, record->name_length), record->rank, item->n_slices,
             item->n_slices == 1 ? "" : "s");
        return error_note_tensor(error, record->name, record->name_length);
    }
    for (uint32_t i = 0; i < record->rank; i++)
        view_slice(i < item->n_slices ? &item->slices[i] : &whole, record->shape[i], &start[i], &size[i]);
    return 0;
}
