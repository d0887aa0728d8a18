/* Each function looks at every argument before it makes anything of them; see pickle_array.h. */
#include "pickle_array.h"

#include <string.h>

#include "base/checked.h"
#include "base/text.h"

static int refuse_array(struct error *error, const char *what)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "PICKLE_REFUSED", "it makes %s in a way that shards of arrays do not", what);
}

static const struct pickle_value *argument(const struct pickle_value *tuple, size_t i, enum pickle_kind kind)
{
    bool is_there = tuple->kind == PICKLE_TUPLE && i < tuple->n_items && tuple->items[i]->kind == kind;
    return is_there ? tuple->items[i] : NULL;
}

static bool is_argument(const struct pickle_value *text, const char *what)
{
    return text && text->n_bytes == strlen(what) && memcmp(text->bytes, what, text->n_bytes) == 0;
}

/* --- types ---------------------------------------------------------------------------------------------------------- */

static int make_dtype(const struct pickle_value *arguments, struct pickle_value *result, struct error *error)
{
    static const struct {
        const char *code;
        enum dtype dtype;
    } rows[] = {{"b1", DTYPE_BOOL}, {"u1", DTYPE_U8},  {"i1", DTYPE_I8},  {"i2", DTYPE_I16}, {"u2", DTYPE_U16},
                {"f2", DTYPE_F16},  {"i4", DTYPE_I32}, {"u4", DTYPE_U32}, {"f4", DTYPE_F32}, {"i8", DTYPE_I64},
                {"u8", DTYPE_U64},  {"f8", DTYPE_F64}, {"c8", DTYPE_C64}};
    const struct pickle_value *code = argument(arguments, 0, PICKLE_TEXT);
    char shown[TEXT_NAME_CHARS];
    if (!code)
        return refuse_array(error, "a type");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!is_argument(code, rows[i].code))
            continue;
        *result = (struct pickle_value){.kind = PICKLE_DTYPE, .dtype = rows[i].dtype};
        return 0;
    }
    return fail(error, ERROR_INVALID_ARGUMENT, "PICKLE_REFUSED",
                "elements of NumPy's type '%s' are no numbers that can be stored",
                text_escape((const char *)code->bytes, code->n_bytes, shown));
}

static int set_dtype_state(struct pickle_value *target, const struct pickle_value *state, struct error *error)
{
    const struct pickle_value *order = argument(state, 1, PICKLE_TEXT);
    for (size_t i = 2; i < 5; i++) /* of a type of fields, or of arrays */
        if (!argument(state, i, PICKLE_NONE))
            return refuse_array(error, "a type");
    if (!is_argument(order, "<") && !is_argument(order, "|") && !is_argument(order, "=") && !is_argument(order, ">"))
        return refuse_array(error, "a type");
    target->is_big_endian = is_argument(order, ">");
    return 0;
}

/* --- arrays --------------------------------------------------------------------------------------------------------- */

static int read_shape(const struct pickle_value *tuple, struct arena *arena, struct pickle_array *array, struct error *error)
{
    uint64_t count = 1;
    if (!tuple || tuple->n_items > PICKLE_MAX_RANK)
        return refuse_array(error, "an array's shape");
    uint64_t *shape = arena_try_array(arena, tuple->n_items ? tuple->n_items : 1, sizeof *shape, error);
    if (!shape)
        return -1;
    for (size_t i = 0; i < tuple->n_items; i++) {
        const struct pickle_value *extent = argument(tuple, i, PICKLE_INT);
        if (!extent || extent->number < 0 || !checked_mul(count, (uint64_t)extent->number, &count))
            return refuse_array(error, "an array's shape");
        shape[i] = (uint64_t)extent->number;
    }
    array->shape = shape;
    array->rank = (uint32_t)tuple->n_items;
    array->n_bytes = count; /* of elements, until their type is known */
    return 0;
}

static int fill_array(struct pickle_array *array, const struct pickle_value *shape, const struct pickle_value *dtype,
                      const struct pickle_value *bytes, struct arena *arena, struct error *error)
{
    if (!dtype || !bytes || !shape)
        return refuse_array(error, "an array");
    if (dtype->is_big_endian && dtype_bits(dtype->dtype) > 8)
        return fail(error, ERROR_UNIMPLEMENTED, "BIG_ENDIAN",
                    "an array's elements are big-endian; store them as little-endian");
    if (read_shape(shape, arena, array, error))
        return -1;
    if (!checked_mul(array->n_bytes, dtype_bits(dtype->dtype) / 8, &array->n_bytes) || array->n_bytes != bytes->n_bytes)
        return fail(error, ERROR_DATA_LOSS, "PICKLE_DAMAGED", "an array has %llu bytes, not those of its shape and type",
                    (unsigned long long)bytes->n_bytes);
    array->dtype = dtype->dtype;
    array->bytes = bytes->bytes;
    array->is_complete = true;
    return 0;
}

static int make_array(struct arena *arena, struct pickle_value *result, struct error *error)
{
    struct pickle_array *array = arena_try(arena, sizeof *array, error);
    *result = (struct pickle_value){.kind = PICKLE_ARRAY, .array = array};
    return array ? 0 : -1;
}

/* (bytes, dtype, shape, 'C' or 'F') */
static int from_buffer(const struct pickle_value *arguments, struct arena *arena, struct pickle_value *result,
                       struct error *error)
{
    const struct pickle_value *order = argument(arguments, 3, PICKLE_TEXT);
    if (!is_argument(order, "C") && !is_argument(order, "F"))
        return refuse_array(error, "an array");
    if (make_array(arena, result, error) ||
        fill_array(result->array, argument(arguments, 2, PICKLE_TUPLE), argument(arguments, 1, PICKLE_DTYPE),
                   argument(arguments, 0, PICKLE_BYTES), arena, error))
        return -1;
    result->array->is_fortran = is_argument(order, "F");
    return 0;
}

static int set_array_state(struct pickle_array *array, const struct pickle_value *state, struct arena *arena,
                           struct error *error)
{
    const struct pickle_value *is_fortran = argument(state, 3, PICKLE_BOOL);
    if (!is_fortran)
        return refuse_array(error, "an array");
    array->is_fortran = is_fortran->number;
    return fill_array(array, argument(state, 1, PICKLE_TUPLE), argument(state, 2, PICKLE_DTYPE),
                      argument(state, 4, PICKLE_BYTES), arena, error);
}

/* --- calls ---------------------------------------------------------------------------------------------------------- */

int pickle_array_call(const struct pickle_value *function, const struct pickle_value *arguments, struct arena *arena,
                      struct pickle_value *result, struct error *error)
{
    const struct pickle_value *class = argument(arguments, 0, PICKLE_FUNCTION);
    if (function->kind != PICKLE_FUNCTION || arguments->kind != PICKLE_TUPLE)
        return refuse_array(error, "a value");
    switch ((enum pickle_function)function->number) {
    case PICKLE_DTYPE_CLASS:
        return make_dtype(arguments, result, error);
    case PICKLE_FROM_BUFFER:
        return from_buffer(arguments, arena, result, error);
    case PICKLE_RECONSTRUCT: /* an empty one, whose state follows */
        if (class && class->number == PICKLE_NDARRAY_CLASS)
            return make_array(arena, result, error);
        break;
    case PICKLE_NDARRAY_CLASS:
        break;
    }
    return refuse_array(error, "an array");
}

int pickle_array_set_state(struct pickle_value *target, const struct pickle_value *state, struct arena *arena,
                           struct error *error)
{
    if (target->kind == PICKLE_DTYPE)
        return set_dtype_state(target, state, error);
    if (target->kind == PICKLE_ARRAY && !target->array->is_complete)
        return set_array_state(target->array, state, arena, error);
    return refuse_array(error, "a value");
}
