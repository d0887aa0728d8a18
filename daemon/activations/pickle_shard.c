/* Values are nodes in an arena; lists and dictionaries hold pointers to them, so a value that the pickle names twice is there
 * once, and nothing that is nested is walked deeper than a shard is. */
#include "activations/pickle_shard.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/text.h"

enum { MAX_FIELDS = 64 /* of an entry */, MIN_ENTRY_BYTES = 16 };

enum value_kind {
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INTEGER,
    VALUE_TEXT,
    VALUE_BYTES,
    VALUE_TUPLE,
    VALUE_LIST,
    VALUE_DICT, /* items: key, value, key, value ... */
    VALUE_GLOBAL,
    VALUE_DTYPE,
    VALUE_ARRAY,
};

enum global { GLOBAL_RECONSTRUCT, GLOBAL_FROMBUFFER, GLOBAL_NDARRAY, GLOBAL_DTYPE };

struct value {
    enum value_kind kind;
    enum dtype dtype;           /* VALUE_DTYPE, VALUE_ARRAY */
    bool is_ready;              /* of an array: it has its state */
    bool is_big_endian;         /* VALUE_DTYPE, VALUE_ARRAY */
    uint8_t *axes;              /* of an array: see pickle_entry */
    int64_t number;             /* VALUE_BOOL, VALUE_INTEGER, VALUE_GLOBAL */
    const unsigned char *bytes; /* VALUE_TEXT, VALUE_BYTES, VALUE_ARRAY */
    size_t n_bytes;
    struct value **items; /* of what holds others; the shape of an array */
    size_t n_items, capacity;
};

struct pickle {
    const unsigned char *start, *at, *end;
    struct arena arena;
    struct value **stack, **memo;
    size_t n_stack, stack_capacity, n_memo, memo_capacity;
    size_t *marks;
    size_t n_marks, marks_capacity;
    struct error *error;
    bool has_failed; /* *error says why */
};

/* --- failing ------------------------------------------------------------------------------------------------------------ */

/* The first complaint counts. Returns false. */
static bool refuse_pickle(struct pickle *pickle, enum error_code code, const char *reason, const char *complaint)
{
    if (!pickle->has_failed)
        fail(pickle->error, code, reason, "%s, at byte %zu", complaint, (size_t)(pickle->at - pickle->start));
    pickle->has_failed = true;
    return false;
}

static bool damaged(struct pickle *pickle, const char *complaint)
{
    return refuse_pickle(pickle, ERROR_DATA_LOSS, "BAD_PICKLE", complaint);
}

/* --- memory ------------------------------------------------------------------------------------------------------------- */

static void *take_room(struct pickle *pickle, size_t count, size_t size)
{
    void *room = pickle->has_failed ? NULL : arena_try_array(&pickle->arena, count, size, pickle->error);
    pickle->has_failed = pickle->has_failed || !room;
    return room;
}

/* The list, or a larger one when it is full; NULL. */
static void *make_room(struct pickle *pickle, void *list, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return list;
    size_t wanted = *capacity ? 2 * *capacity : 4;
    void *larger = take_room(pickle, wanted, size);
    if (larger && n)
        memcpy(larger, list, n * size);
    *capacity = larger ? wanted : *capacity;
    return larger;
}

static bool reserve_items(struct pickle *pickle, struct value ***items, size_t n, size_t *capacity)
{
    struct value **room = make_room(pickle, *items, n, capacity, sizeof *room);
    *items = room ? room : *items;
    return room;
}

static struct value *new_value(struct pickle *pickle, enum value_kind kind)
{
    struct value *value = take_room(pickle, 1, sizeof *value);
    if (value)
        value->kind = kind;
    return value;
}

/* --- the stack ---------------------------------------------------------------------------------------------------------- */

static bool push(struct pickle *pickle, struct value *value)
{
    if (!value || !reserve_items(pickle, &pickle->stack, pickle->n_stack, &pickle->stack_capacity))
        return false;
    pickle->stack[pickle->n_stack++] = value;
    return true;
}

static size_t floor_of_stack(const struct pickle *pickle)
{
    return pickle->n_marks ? pickle->marks[pickle->n_marks - 1] : 0;
}

static struct value *pop(struct pickle *pickle)
{
    if (pickle->n_stack > floor_of_stack(pickle))
        return pickle->stack[--pickle->n_stack];
    damaged(pickle, "the stack is empty");
    return NULL;
}

static struct value *top(struct pickle *pickle, enum value_kind kind)
{
    if (pickle->n_stack > floor_of_stack(pickle) && pickle->stack[pickle->n_stack - 1]->kind == kind)
        return pickle->stack[pickle->n_stack - 1];
    damaged(pickle, "something is put into what cannot hold it");
    return NULL;
}

static bool push_mark(struct pickle *pickle)
{
    size_t *marks = make_room(pickle, pickle->marks, pickle->n_marks, &pickle->marks_capacity, sizeof *marks);
    if (!marks)
        return false;
    pickle->marks = marks;
    pickle->marks[pickle->n_marks++] = pickle->n_stack;
    return true;
}

/* The values behind the last mark, which goes; they stay where they are until something is pushed. */
static struct value **pop_mark(struct pickle *pickle, size_t *n)
{
    if (!pickle->n_marks)
        return (damaged(pickle, "there is no mark"), NULL);
    if (!reserve_items(pickle, &pickle->stack, pickle->n_stack, &pickle->stack_capacity)) /* nothing was pushed yet */
        return NULL;
    size_t first = pickle->marks[--pickle->n_marks];
    *n = pickle->n_stack - first;
    pickle->n_stack = first;
    return pickle->stack + first;
}

static bool add_items(struct pickle *pickle, struct value *holder, struct value *const *items, size_t n)
{
    for (size_t i = 0; holder && i < n; i++) {
        if (!reserve_items(pickle, &holder->items, holder->n_items, &holder->capacity))
            return false;
        holder->items[holder->n_items++] = items[i];
    }
    return holder != NULL;
}

static bool push_tuple(struct pickle *pickle, struct value *const *items, size_t n)
{
    struct value *tuple = new_value(pickle, VALUE_TUPLE);
    return add_items(pickle, tuple, items, n) && push(pickle, tuple);
}

static bool push_last(struct pickle *pickle, size_t n)
{
    struct value *items[3] = {NULL};
    for (size_t i = n; i-- > 0;)
        if (!(items[i] = pop(pickle)))
            return false;
    return push_tuple(pickle, items, n);
}

static bool add_marked(struct pickle *pickle, enum value_kind kind)
{
    size_t n;
    struct value **items = pop_mark(pickle, &n);
    if (!items)
        return false;
    if (kind == VALUE_TUPLE)
        return push_tuple(pickle, items, n);
    if (kind == VALUE_DICT && n % 2)
        return damaged(pickle, "a key has no value");
    return add_items(pickle, top(pickle, kind), items, n);
}

/* --- what stands in the bytes ------------------------------------------------------------------------------------------- */

static bool take_number(struct pickle *pickle, size_t n_bytes, uint64_t *number)
{
    *number = 0;
    if ((size_t)(pickle->end - pickle->at) < n_bytes)
        return damaged(pickle, "the pickle ends within an instruction");
    memcpy(number, pickle->at, n_bytes);
    *number = le64toh(*number);
    pickle->at += n_bytes;
    return true;
}

static bool push_number(struct pickle *pickle, enum value_kind kind, int64_t number)
{
    struct value *value = new_value(pickle, kind);
    if (value)
        value->number = number;
    return push(pickle, value);
}

/* Of no bytes, too: zero. */
static bool push_integer(struct pickle *pickle, size_t n_bytes, bool is_signed)
{
    unsigned unused_bits = is_signed && n_bytes ? 64 - 8 * (unsigned)n_bytes : 0;
    uint64_t number;
    return take_number(pickle, n_bytes, &number) &&
           push_number(pickle, VALUE_INTEGER, (int64_t)(number << unused_bits) >> unused_bits);
}

static bool push_long(struct pickle *pickle)
{
    uint64_t n_bytes;
    if (!take_number(pickle, 1, &n_bytes))
        return false;
    return n_bytes > 8 ? damaged(pickle, "a number has more than 64 bits") : push_integer(pickle, (size_t)n_bytes, true);
}

static bool push_span(struct pickle *pickle, enum value_kind kind, size_t length_bytes)
{
    uint64_t length;
    if (!take_number(pickle, length_bytes, &length))
        return false;
    if ((uint64_t)(pickle->end - pickle->at) < length)
        return damaged(pickle, "bytes go on behind the end of the pickle");
    if (kind == VALUE_TEXT && !text_is_utf8((const char *)pickle->at, (size_t)length))
        return damaged(pickle, "a text is no UTF-8");
    struct value *value = new_value(pickle, kind);
    if (!value)
        return false;
    value->bytes = pickle->at;
    value->n_bytes = (size_t)length;
    pickle->at += length;
    return push(pickle, value);
}

/* --- memo and globals --------------------------------------------------------------------------------------------------- */

static bool memoize(struct pickle *pickle)
{
    if (pickle->n_stack == floor_of_stack(pickle))
        return damaged(pickle, "there is nothing to remember");
    if (!reserve_items(pickle, &pickle->memo, pickle->n_memo, &pickle->memo_capacity))
        return false;
    pickle->memo[pickle->n_memo++] = pickle->stack[pickle->n_stack - 1];
    return true;
}

static bool recall(struct pickle *pickle, size_t n_bytes)
{
    uint64_t index;
    if (!take_number(pickle, n_bytes, &index))
        return false;
    return index < pickle->n_memo ? push(pickle, pickle->memo[index])
                                  : damaged(pickle, "nothing was remembered under a number");
}

static bool is_text(const struct value *value, const char *text)
{
    return value->kind == VALUE_TEXT && value->n_bytes == strlen(text) && memcmp(value->bytes, text, value->n_bytes) == 0;
}

static const struct {
    const char *module, *name;
    enum global global;
} globals[] = {
    {"numpy.core.multiarray", "_reconstruct", GLOBAL_RECONSTRUCT},
    {"numpy._core.multiarray", "_reconstruct", GLOBAL_RECONSTRUCT},
    {"numpy.core.numeric", "_frombuffer", GLOBAL_FROMBUFFER},
    {"numpy._core.numeric", "_frombuffer", GLOBAL_FROMBUFFER},
    {"numpy", "ndarray", GLOBAL_NDARRAY},
    {"numpy", "dtype", GLOBAL_DTYPE},
};

static bool push_global(struct pickle *pickle)
{
    const struct value *name = pop(pickle), *module = name ? pop(pickle) : NULL;
    char shown[TEXT_NAME_CHARS];
    if (!module)
        return false;
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++)
        if (is_text(module, globals[i].module) && is_text(name, globals[i].name))
            return push_number(pickle, VALUE_GLOBAL, globals[i].global);
    bool is_named = name->kind == VALUE_TEXT;
    text_escape(is_named ? (const char *)name->bytes : "", is_named ? name->n_bytes : 0, shown);
    fail(pickle->error, ERROR_INVALID_ARGUMENT, "FORBIDDEN_GLOBAL",
         "the pickle asks for '%s', which is no part of a shard of arrays; nothing of it was executed", shown);
    pickle->has_failed = true;
    return false;
}

/* --- arrays ------------------------------------------------------------------------------------------------------------- */

static bool is_tuple(const struct value *value, size_t n_items)
{
    return value->kind == VALUE_TUPLE && value->n_items == n_items;
}

static bool make_dtype(struct pickle *pickle, const struct value *arguments)
{
    if (!is_tuple(arguments, 3) || arguments->items[0]->kind != VALUE_TEXT)
        return damaged(pickle, "an element type is made of something else");
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const char *code = dtype_numpy_code((enum dtype)i);
        struct value *value = code && is_text(arguments->items[0], code) ? new_value(pickle, VALUE_DTYPE) : NULL;
        if (!value)
            continue;
        value->dtype = (enum dtype)i;
        return push(pickle, value);
    }
    return refuse_pickle(pickle, ERROR_UNIMPLEMENTED, "BAD_DTYPE", "an array has elements that are no plain numbers");
}

/* Of elements that lie there in C order, dimension `order[i]` becomes dimension i. */
static bool transpose_array(struct pickle *pickle, struct value *array, const struct value *order)
{
    size_t n = array->n_items;
    struct value **shape = take_room(pickle, n + 1, sizeof *shape);
    if (!shape)
        return false;
    memset(array->axes, UINT8_MAX, n);
    bool is_good = is_tuple(order, n);
    for (size_t i = 0; is_good && i < n; i++) {
        const struct value *at = order->items[i];
        is_good =
            at->kind == VALUE_INTEGER && at->number >= 0 && (uint64_t)at->number < n && array->axes[at->number] == UINT8_MAX;
        if (is_good) {
            shape[i] = array->items[at->number];
            array->axes[at->number] = (uint8_t)i;
        }
    }
    array->items = shape;
    return is_good || damaged(pickle, "an array's dimensions have an order that is none");
}

/* Sets what an array is, when shape and bytes fit together. */
static bool set_array(struct pickle *pickle, struct value *array, const struct value *shape, const struct value *dtype,
                      const struct value *bytes, bool is_fortran)
{
    uint64_t size = dtype->kind == VALUE_DTYPE ? dtype_bits(dtype->dtype) / 8 : 0;
    bool is_good = size && shape->kind == VALUE_TUPLE && shape->n_items <= SAMPLE_MAX_RANK && bytes->kind == VALUE_BYTES;
    for (size_t i = 0; is_good && i < shape->n_items; i++)
        is_good = shape->items[i]->kind == VALUE_INTEGER && shape->items[i]->number >= 0 &&
                  checked_mul(size, (uint64_t)shape->items[i]->number, &size);
    if (!is_good || size != bytes->n_bytes)
        return damaged(pickle, "an array's shape and its bytes do not fit together");
    array->dtype = dtype->dtype;
    array->is_big_endian = dtype->is_big_endian;
    array->items = shape->items;
    array->n_items = shape->n_items;
    array->bytes = bytes->bytes;
    array->n_bytes = bytes->n_bytes;
    array->axes = take_room(pickle, array->n_items + 1, sizeof *array->axes);
    for (size_t i = 0; array->axes && i < array->n_items; i++)
        array->axes[i] = (uint8_t)(is_fortran ? array->n_items - 1 - i : i);
    array->is_ready = array->axes != NULL;
    return array->is_ready;
}

static bool make_from_buffer(struct pickle *pickle, const struct value *arguments)
{
    struct value *array = new_value(pickle, VALUE_ARRAY);
    bool has_order = is_tuple(arguments, 5); /* of its dimensions, since NumPy 2.4 */
    if (!array || !(has_order || is_tuple(arguments, 4)))
        return damaged(pickle, "an array is made of something else");
    struct value *const *given = arguments->items;
    bool is_fortran = is_text(given[3], "F"), is_transposed = has_order && is_text(given[3], "K");
    if (!is_fortran && !is_transposed && !is_text(given[3], "C"))
        return damaged(pickle, "an array has an order that is none of C, F and K");
    return set_array(pickle, array, given[2], given[1], given[0], is_fortran) &&
           (!is_transposed || transpose_array(pickle, array, given[4])) && push(pickle, array);
}

static bool call_global(struct pickle *pickle)
{
    const struct value *arguments = pop(pickle), *global = arguments ? pop(pickle) : NULL;
    if (!global || global->kind != VALUE_GLOBAL || global->number == GLOBAL_NDARRAY)
        return damaged(pickle, "something is called that cannot be");
    if (global->number == GLOBAL_DTYPE)
        return make_dtype(pickle, arguments);
    if (global->number == GLOBAL_FROMBUFFER)
        return make_from_buffer(pickle, arguments);
    bool is_good =
        is_tuple(arguments, 3) && arguments->items[0]->kind == VALUE_GLOBAL && arguments->items[0]->number == GLOBAL_NDARRAY;
    return is_good ? push(pickle, new_value(pickle, VALUE_ARRAY)) : damaged(pickle, "an array is made of something else");
}

/* An array takes it with its bytes; what is changed after that is for others. */
static bool set_byte_order(struct pickle *pickle, struct value *dtype, const struct value *state)
{
    const struct value *order = state->n_items < 2 || state->items[1]->kind != VALUE_TEXT ? NULL : state->items[1];
    if (!order || order->n_bytes != 1 || !memchr("<>|=", order->bytes[0], 4))
        return refuse_pickle(pickle, ERROR_UNIMPLEMENTED, "BAD_BYTE_ORDER", "an array has none of the byte orders <>|=");
    dtype->is_big_endian = order->bytes[0] == '>';
    return true;
}

static bool set_state(struct pickle *pickle)
{
    const struct value *state = pop(pickle);
    struct value *value = state && pickle->n_stack > floor_of_stack(pickle) ? pickle->stack[pickle->n_stack - 1] : NULL;
    if (!value || state->kind != VALUE_TUPLE)
        return damaged(pickle, "something is given a state that has none");
    if (value->kind == VALUE_DTYPE)
        return set_byte_order(pickle, value, state);
    if (value->kind != VALUE_ARRAY || value->is_ready || state->n_items != 5 || state->items[3]->kind != VALUE_BOOL)
        return damaged(pickle, "something is given a state that has none");
    return set_array(pickle, value, state->items[1], state->items[2], state->items[4], state->items[3]->number);
}

/* --- instructions ------------------------------------------------------------------------------------------------------- */

static bool put_item(struct pickle *pickle)
{
    struct value *pair[2] = {NULL, pop(pickle)};
    pair[0] = pair[1] ? pop(pickle) : NULL;
    return pair[0] && add_items(pickle, top(pickle, VALUE_DICT), pair, 2);
}

static bool append_item(struct pickle *pickle)
{
    struct value *item = pop(pickle);
    return item && add_items(pickle, top(pickle, VALUE_LIST), &item, 1);
}

/* clang-format off */
static bool run_instruction(struct pickle *pickle, unsigned char opcode)
{
    switch (opcode) {
    case 0x95: return take_number(pickle, 8, &(uint64_t){0}); /* frames only say how much to read at once */
    case '(': return push_mark(pickle);
    case '}': return push(pickle, new_value(pickle, VALUE_DICT));
    case ']': return push(pickle, new_value(pickle, VALUE_LIST));
    case ')': return push(pickle, new_value(pickle, VALUE_TUPLE));
    case 's': return put_item(pickle);
    case 'u': return add_marked(pickle, VALUE_DICT);
    case 'a': return append_item(pickle);
    case 'e': return add_marked(pickle, VALUE_LIST);
    case 't': return add_marked(pickle, VALUE_TUPLE);
    case 0x85: return push_last(pickle, 1);
    case 0x86: return push_last(pickle, 2);
    case 0x87: return push_last(pickle, 3);
    case 'N': return push_number(pickle, VALUE_NONE, 0);
    case 0x88: return push_number(pickle, VALUE_BOOL, 1);
    case 0x89: return push_number(pickle, VALUE_BOOL, 0);
    case 'J': return push_integer(pickle, 4, true);
    case 'K': return push_integer(pickle, 1, false);
    case 'M': return push_integer(pickle, 2, false);
    case 0x8a: return push_long(pickle);
    case 'X': return push_span(pickle, VALUE_TEXT, 4);
    case 0x8c: return push_span(pickle, VALUE_TEXT, 1);
    case 'B': return push_span(pickle, VALUE_BYTES, 4);
    case 'C': return push_span(pickle, VALUE_BYTES, 1);
    case 0x8e: return push_span(pickle, VALUE_BYTES, 8);
    case 0x96: return push_span(pickle, VALUE_BYTES, 8);
    case 0x94: return memoize(pickle);
    case 'h': return recall(pickle, 1);
    case 'j': return recall(pickle, 4);
    case 0x93: return push_global(pickle);
    case 'R': return call_global(pickle);
    case 'b': return set_state(pickle);
    default: break;
    }
    pickle->at--;
    return refuse_pickle(pickle, ERROR_INVALID_ARGUMENT, "FORBIDDEN_OPCODE",
                  "the pickle has an instruction that is no part of a shard of arrays; nothing of it was executed");
}

/* clang-format on */
/* The value that the whole pickle is, NULL on error. */
static const struct value *run(struct pickle *pickle)
{
    uint64_t protocol;
    if (pickle->at == pickle->end || *pickle->at++ != 0x80 || !take_number(pickle, 1, &protocol) || protocol < 4 ||
        protocol > 5)
        return (refuse_pickle(pickle, ERROR_INVALID_ARGUMENT, "BAD_PROTOCOL", "this is no pickle of protocol 4 or 5"), NULL);
    for (;;) {
        if (pickle->at == pickle->end)
            return (damaged(pickle, "the pickle has no end"), NULL);
        unsigned char opcode = *pickle->at++;
        if (opcode == '.')
            break;
        if (!run_instruction(pickle, opcode))
            return NULL;
    }
    if (pickle->at != pickle->end)
        return (damaged(pickle, "there are bytes behind the end of the pickle"), NULL);
    return pickle->n_marks ? (damaged(pickle, "a mark is left over"), NULL) : pop(pickle);
}

/* --- the shard ---------------------------------------------------------------------------------------------------------- */

static const struct value *find_item(const struct value *dict, const char *key)
{
    for (size_t i = 0; i < dict->n_items; i += 2)
        if (is_text(dict->items[i], key))
            return dict->items[i + 1];
    return NULL;
}

/* 10, or "layer_10" as the written format has it. */
static bool read_layer(const struct value *key, uint32_t *layer)
{
    if (key->kind != VALUE_INTEGER)
        return key->kind == VALUE_TEXT && activation_parse_layer((const char *)key->bytes, key->n_bytes, layer);
    *layer = (uint32_t)key->number;
    return key->number >= 0 && key->number <= UINT32_MAX;
}

static bool same_shape(const struct value *array, const struct value *shape)
{
    if (shape->kind != VALUE_TUPLE || shape->n_items != array->n_items)
        return false;
    for (size_t i = 0; i < shape->n_items; i++)
        if (shape->items[i]->kind != VALUE_INTEGER || shape->items[i]->number != array->items[i]->number)
            return false;
    return true;
}

static bool read_entry(struct pickle *pickle, const struct value *dict, struct pickle_entry *entry)
{
    if (dict->kind != VALUE_DICT || dict->n_items > 2 * MAX_FIELDS)
        return damaged(pickle, "an entry of a layer is no small dictionary");
    const struct value *number = find_item(dict, "sample_idx"), *array = find_item(dict, "activation");
    const struct value *shape = find_item(dict, "shape"), *text = find_item(dict, "text_preview");
    if (!number || number->kind != VALUE_INTEGER || number->number < 0 || number->number > ACTIVATION_MAX_SAMPLE)
        return damaged(pickle, "an entry has no sample_idx from 0 to 99999999");
    if (!array || array->kind != VALUE_ARRAY || !array->is_ready)
        return damaged(pickle, "an entry has no array");
    if (shape && !same_shape(array, shape))
        return damaged(pickle, "an entry says another shape than its array has");
    uint64_t *dims = take_room(pickle, array->n_items + 1, sizeof *dims);
    for (size_t i = 0; dims && i < array->n_items; i++)
        dims[i] = (uint64_t)array->items[i]->number;
    bool has_text = text && text->kind == VALUE_TEXT;
    entry->sample = (uint32_t)number->number;
    entry->dtype = array->dtype;
    entry->rank = (uint32_t)array->n_items;
    entry->shape = dims;
    entry->bytes = array->bytes;
    entry->n_bytes = array->n_bytes;
    entry->is_big_endian = array->is_big_endian;
    entry->axes = array->axes;
    entry->text = has_text ? (const char *)text->bytes : "";
    entry->text_bytes = has_text ? text->n_bytes : 0;
    return dims != NULL;
}

static bool read_shard(struct pickle *pickle, const struct value *shard,
                       int (*take)(void *data, const struct pickle_entry *entry, struct error *error), void *data)
{
    if (shard->kind != VALUE_DICT)
        return damaged(pickle, "the pickle is no dictionary of layers");
    size_t n_entries = 0;
    for (size_t i = 0; i < shard->n_items; i += 2) {
        struct pickle_entry entry = {0};
        const struct value *list = shard->items[i + 1];
        if (!read_layer(shard->items[i], &entry.layer) || list->kind != VALUE_LIST)
            return damaged(pickle, "the pickle is no dictionary of layers and lists");
        for (size_t k = 0; k < list->n_items; k++) {
            /* one list may be there under many layers: no more is looked at than was written out */
            if (++n_entries > (size_t)(pickle->end - pickle->start) / MIN_ENTRY_BYTES)
                return damaged(pickle, "the pickle repeats its entries");
            if (!read_entry(pickle, list->items[k], &entry) || take(data, &entry, pickle->error) < 0)
                return false;
        }
    }
    return true;
}

int pickle_shard_read(const unsigned char *bytes, size_t count,
                      int (*take)(void *data, const struct pickle_entry *entry, struct error *error), void *data,
                      struct error *error)
{
    struct pickle pickle = {.start = bytes, .at = bytes, .end = bytes + count, .error = error};
    arena_init(&pickle.arena, PICKLE_MAX_ARENA_BYTES);
    const struct value *shard = run(&pickle);
    bool is_good = shard && read_shard(&pickle, shard, take, data);
    arena_fini(&pickle.arena);
    return is_good ? 0 : -1;
}
