/* The machine of Lib/pickle.py: a stack of values, marks in it, and a memo of values by number. One step an opcode. */
#include "pickle_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "pickle_array.h"

enum { FIRST_PROTOCOL = 4, LAST_PROTOCOL = 5, MAX_INT_BYTES = 8 };

enum opcode { /* pickletools.opcodes */
              MARK = '(',
              STOP = '.',
              NONE = 'N',
              NEWTRUE = 0x88,
              NEWFALSE = 0x89,
              BININT = 'J',
              BININT1 = 'K',
              BININT2 = 'M',
              LONG1 = 0x8a,
              BINUNICODE = 'X',
              SHORT_BINUNICODE = 0x8c,
              BINBYTES = 'B',
              SHORT_BINBYTES = 'C',
              BINBYTES8 = 0x8e,
              BYTEARRAY8 = 0x96,
              EMPTY_DICT = '}',
              EMPTY_LIST = ']',
              EMPTY_TUPLE = ')',
              APPEND = 'a',
              APPENDS = 'e',
              SETITEM = 's',
              SETITEMS = 'u',
              TUPLE = 't',
              TUPLE1 = 0x85,
              TUPLE2 = 0x86,
              TUPLE3 = 0x87,
              BINGET = 'h',
              LONG_BINGET = 'j',
              MEMOIZE = 0x94,
              PROTO = 0x80,
              FRAME = 0x95,
              STACK_GLOBAL = 0x93,
              REDUCE = 'R',
              BUILD = 'b',
};

struct values {
    struct pickle_value **list;
    size_t n, room;
};

struct reader {
    const unsigned char *begin, *at, *end;
    struct arena *arena;
    struct values stack, memo;
    struct {
        size_t *list; /* how many values lay on the stack */
        size_t n, room;
    } marks;
    uint32_t n_values;
    struct error *error;
};

/* --- bytes ---------------------------------------------------------------------------------------------------------- */

static int damaged(const struct reader *reader, const char *what)
{
    return fail(reader->error, ERROR_DATA_LOSS, "PICKLE_DAMAGED", "%s", what);
}

static int refused(const struct reader *reader, const char *what)
{
    return fail(reader->error, ERROR_INVALID_ARGUMENT, "PICKLE_REFUSED", "%s", what);
}

static int take_bytes(struct reader *reader, uint64_t n, const unsigned char **bytes)
{
    if (n > (uint64_t)(reader->end - reader->at))
        return damaged(reader, "it ends too early");
    *bytes = reader->at;
    reader->at += n;
    return 0;
}

/* Little-endian, of up to 8 bytes. */
static int take_number(struct reader *reader, uint64_t n_bytes, uint64_t *number)
{
    const unsigned char *bytes = NULL;
    *number = 0;
    if (take_bytes(reader, n_bytes, &bytes))
        return -1;
    for (uint64_t i = 0; i < n_bytes; i++)
        *number |= (uint64_t)bytes[i] << (8 * i);
    return 0;
}

/* --- values --------------------------------------------------------------------------------------------------------- */

static int push_on(struct reader *reader, struct values *values, struct pickle_value *value)
{
    if (values->n == PICKLE_MAX_VALUES)
        return fail(reader->error, ERROR_RESOURCE_EXHAUSTED, "PICKLE_TOO_LARGE", "it has more than %d values",
                    PICKLE_MAX_VALUES);
    ARRAY_RESERVE(values->list, values->n, values->room);
    values->list[values->n++] = value;
    return 0;
}

static struct pickle_value *new_value(struct reader *reader, enum pickle_kind kind)
{
    struct pickle_value *value = NULL;
    if (reader->n_values == PICKLE_MAX_VALUES)
        fail(reader->error, ERROR_RESOURCE_EXHAUSTED, "PICKLE_TOO_LARGE", "it has more than %d values", PICKLE_MAX_VALUES);
    else if ((value = arena_try(reader->arena, sizeof *value, reader->error))) {
        value->kind = kind;
        reader->n_values++;
        if (push_on(reader, &reader->stack, value))
            return NULL;
    }
    return value;
}

static int push_number(struct reader *reader, enum pickle_kind kind, int64_t number)
{
    struct pickle_value *value = new_value(reader, kind);
    if (!value)
        return -1;
    value->number = number;
    return 0;
}

/* How many values lie above the last mark, or on the stack when there is none. */
static size_t n_above(const struct reader *reader)
{
    return reader->stack.n - (reader->marks.n ? reader->marks.list[reader->marks.n - 1] : 0);
}

static struct pickle_value *pop(struct reader *reader)
{
    if (n_above(reader) == 0) {
        damaged(reader, "it takes a value that is not there");
        return NULL;
    }
    return reader->stack.list[--reader->stack.n];
}

static struct pickle_value *top(struct reader *reader, enum pickle_kind kind)
{
    struct pickle_value *value = n_above(reader) ? reader->stack.list[reader->stack.n - 1] : NULL;
    if (value && value->kind == kind)
        return value;
    damaged(reader, "it fills a value that is not there");
    return NULL;
}

static int push_mark(struct reader *reader)
{
    if (reader->marks.n == PICKLE_MAX_VALUES)
        return refused(reader, "it has too many marks");
    ARRAY_RESERVE(reader->marks.list, reader->marks.n, reader->marks.room);
    reader->marks.list[reader->marks.n++] = reader->stack.n;
    return 0;
}

/* Takes everything above the last mark off the stack, where it stays until the next push. */
static int pop_mark(struct reader *reader, struct pickle_value ***items, size_t *n)
{
    if (reader->marks.n == 0)
        return damaged(reader, "it takes a mark that is not there");
    *n = n_above(reader);
    reader->stack.n = reader->marks.list[--reader->marks.n];
    *items = reader->stack.list + reader->stack.n;
    return 0;
}

/* Room is doubled, so that what is left behind in the arena is no more than what is used. */
static int append(struct reader *reader, struct pickle_value *into, struct pickle_value *const *items, size_t n)
{
    if (n > PICKLE_MAX_VALUES - into->n_items)
        return refused(reader, "one of its lists has too many items");
    if (into->n_items + n > into->room) {
        size_t room = into->n_items + n > 2 * into->room ? into->n_items + n : 2 * into->room;
        struct pickle_value **list = arena_try_array(reader->arena, room, sizeof *list, reader->error);
        if (!list)
            return -1;
        if (into->n_items)
            memcpy(list, into->items, into->n_items * sizeof *list);
        into->items = list;
        into->room = room;
    }
    if (n)
        memcpy(into->items + into->n_items, items, n * sizeof *items);
    into->n_items += n;
    return 0;
}

/* --- opcodes -------------------------------------------------------------------------------------------------------- */

static int push_bytes(struct reader *reader, enum pickle_kind kind, uint64_t length_bytes)
{
    uint64_t n;
    const unsigned char *bytes = NULL;
    if (take_number(reader, length_bytes, &n) || take_bytes(reader, n, &bytes))
        return -1;
    struct pickle_value *value = new_value(reader, kind);
    if (!value)
        return -1;
    value->bytes = bytes;
    value->n_bytes = n;
    return 0;
}

static int push_int(struct reader *reader, uint64_t n_bytes, bool is_signed)
{
    uint64_t number;
    if (n_bytes > MAX_INT_BYTES)
        return refused(reader, "it has an integer of more than 64 bits");
    if (take_number(reader, n_bytes, &number))
        return -1;
    if (is_signed && n_bytes > 0 && n_bytes < MAX_INT_BYTES && number >> (8 * n_bytes - 1))
        number |= UINT64_MAX << (8 * n_bytes);
    return push_number(reader, PICKLE_INT, (int64_t)number);
}

static int push_long(struct reader *reader)
{
    uint64_t n_bytes;
    return take_number(reader, 1, &n_bytes) || push_int(reader, n_bytes, true) ? -1 : 0;
}

static int fill_list(struct reader *reader, bool has_mark)
{
    struct pickle_value **items, *one, *list;
    size_t n = 1;
    if (has_mark ? pop_mark(reader, &items, &n) : !(one = pop(reader)))
        return -1;
    return (list = top(reader, PICKLE_LIST)) ? append(reader, list, has_mark ? items : &one, n) : -1;
}

static int fill_dict(struct reader *reader, bool has_mark)
{
    struct pickle_value **items, *pair[2], *dict;
    size_t n = 2;
    if (has_mark ? pop_mark(reader, &items, &n) : !(pair[1] = pop(reader)) || !(pair[0] = pop(reader)))
        return -1;
    if (n % 2)
        return damaged(reader, "a key has no value");
    return (dict = top(reader, PICKLE_DICT)) ? append(reader, dict, has_mark ? items : pair, n) : -1;
}

static int make_tuple(struct reader *reader, struct pickle_value **items, size_t n)
{
    struct pickle_value shallow = {.kind = PICKLE_TUPLE}; /* the items lie where the tuple will */
    if (append(reader, &shallow, items, n))
        return -1;
    struct pickle_value *tuple = new_value(reader, PICKLE_TUPLE);
    if (!tuple)
        return -1;
    *tuple = shallow;
    return 0;
}

static int short_tuple(struct reader *reader, size_t n)
{
    if (n_above(reader) < n)
        return damaged(reader, "it takes a value that is not there");
    reader->stack.n -= n;
    return make_tuple(reader, reader->stack.list + reader->stack.n, n);
}

static int long_tuple(struct reader *reader)
{
    struct pickle_value **items;
    size_t n;
    return pop_mark(reader, &items, &n) ? -1 : make_tuple(reader, items, n);
}

static int get_memo(struct reader *reader, uint64_t n_bytes)
{
    uint64_t i;
    if (take_number(reader, n_bytes, &i))
        return -1;
    if (i >= reader->memo.n)
        return damaged(reader, "it remembers a value that was not there");
    return push_on(reader, &reader->stack, reader->memo.list[i]);
}

static int memoize(struct reader *reader)
{
    if (n_above(reader) == 0)
        return damaged(reader, "it keeps a value that is not there");
    return push_on(reader, &reader->memo, reader->stack.list[reader->stack.n - 1]);
}

static bool is_text(const struct pickle_value *value, const char *text)
{
    return value->kind == PICKLE_TEXT && value->n_bytes == strlen(text) && memcmp(value->bytes, text, value->n_bytes) == 0;
}

static const char *escape(const struct pickle_value *value, char out[TEXT_NAME_CHARS])
{
    return value->kind == PICKLE_TEXT ? text_escape((const char *)value->bytes, value->n_bytes, out) : "?";
}

/* A name is known or refused; there is nothing that could look it up. */
static int push_function(struct reader *reader)
{
    static const struct {
        const char *module, *name;
        enum pickle_function function;
    } rows[] = {{"numpy.core.multiarray", "_reconstruct", PICKLE_RECONSTRUCT},
                {"numpy._core.multiarray", "_reconstruct", PICKLE_RECONSTRUCT},
                {"numpy.core.numeric", "_frombuffer", PICKLE_FROM_BUFFER},
                {"numpy._core.numeric", "_frombuffer", PICKLE_FROM_BUFFER},
                {"numpy", "ndarray", PICKLE_NDARRAY_CLASS},
                {"numpy", "dtype", PICKLE_DTYPE_CLASS}};
    char module_text[TEXT_NAME_CHARS], name_text[TEXT_NAME_CHARS];
    const struct pickle_value *name = pop(reader), *module = name ? pop(reader) : NULL;
    if (!module)
        return -1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_text(module, rows[i].module) && is_text(name, rows[i].name))
            return push_number(reader, PICKLE_FUNCTION, rows[i].function);
    return fail(reader->error, ERROR_INVALID_ARGUMENT, "PICKLE_REFUSED",
                "it wants %s.%s, which shards of arrays have no use for; nothing was run", escape(module, module_text),
                escape(name, name_text));
}

static int call(struct reader *reader)
{
    struct pickle_value made;
    const struct pickle_value *arguments = pop(reader), *function = arguments ? pop(reader) : NULL;
    if (!function || pickle_array_call(function, arguments, reader->arena, &made, reader->error))
        return -1;
    struct pickle_value *value = new_value(reader, made.kind);
    if (!value)
        return -1;
    *value = made;
    return 0;
}

static int set_state(struct reader *reader)
{
    const struct pickle_value *state = pop(reader);
    if (!state)
        return -1;
    if (n_above(reader) == 0)
        return damaged(reader, "it fills a value that is not there");
    return pickle_array_set_state(reader->stack.list[reader->stack.n - 1], state, reader->arena, reader->error);
}

static int skip_frame(struct reader *reader)
{
    uint64_t n_bytes;
    if (take_number(reader, 8, &n_bytes))
        return -1;
    return n_bytes <= (uint64_t)(reader->end - reader->at) ? 0 : damaged(reader, "it ends too early");
}

static int check_protocol(struct reader *reader)
{
    uint64_t protocol;
    if (take_number(reader, 1, &protocol))
        return -1;
    if (protocol < FIRST_PROTOCOL || protocol > LAST_PROTOCOL)
        return refused(reader, "it is of another protocol than 4 and 5");
    return 0;
}

static int run_opcode(struct reader *reader, unsigned opcode)
{
    switch ((enum opcode)opcode) {
    case PROTO:
        return check_protocol(reader);
    case FRAME:
        return skip_frame(reader);
    case MARK:
        return push_mark(reader);
    case NONE:
        return push_number(reader, PICKLE_NONE, 0);
    case NEWTRUE:
    case NEWFALSE:
        return push_number(reader, PICKLE_BOOL, opcode == NEWTRUE);
    case BININT:
        return push_int(reader, 4, true);
    case BININT1:
        return push_int(reader, 1, false);
    case BININT2:
        return push_int(reader, 2, false);
    case LONG1:
        return push_long(reader);
    case BINUNICODE:
        return push_bytes(reader, PICKLE_TEXT, 4);
    case SHORT_BINUNICODE:
        return push_bytes(reader, PICKLE_TEXT, 1);
    case BINBYTES:
        return push_bytes(reader, PICKLE_BYTES, 4);
    case SHORT_BINBYTES:
        return push_bytes(reader, PICKLE_BYTES, 1);
    case BINBYTES8:
    case BYTEARRAY8:
        return push_bytes(reader, PICKLE_BYTES, 8);
    case EMPTY_DICT:
        return new_value(reader, PICKLE_DICT) ? 0 : -1;
    case EMPTY_LIST:
        return new_value(reader, PICKLE_LIST) ? 0 : -1;
    case EMPTY_TUPLE:
        return short_tuple(reader, 0);
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
        return short_tuple(reader, opcode - TUPLE1 + 1);
    case TUPLE:
        return long_tuple(reader);
    case APPEND:
    case APPENDS:
        return fill_list(reader, opcode == APPENDS);
    case SETITEM:
    case SETITEMS:
        return fill_dict(reader, opcode == SETITEMS);
    case BINGET:
        return get_memo(reader, 1);
    case LONG_BINGET:
        return get_memo(reader, 4);
    case MEMOIZE:
        return memoize(reader);
    case STACK_GLOBAL:
        return push_function(reader);
    case REDUCE:
        return call(reader);
    case BUILD:
        return set_state(reader);
    case STOP:
        break;
    }
    return fail(reader->error, ERROR_INVALID_ARGUMENT, "PICKLE_REFUSED",
                "its opcode 0x%02x is none that shards of arrays need; nothing was run", opcode);
}

static int run(struct reader *reader)
{
    for (uint64_t n = 0;; n++) {
        const unsigned char *opcode = NULL;
        uint64_t at = (uint64_t)(reader->at - reader->begin);
        int failed = take_bytes(reader, 1, &opcode);
        if (!failed && *opcode == STOP)
            return 0;
        if (!failed && (n == 0) != (*opcode == PROTO))
            failed = refused(reader, "it does not begin as a pickle of protocol 4 or 5");
        if (failed || run_opcode(reader, *opcode)) {
            error_prefix(reader->error, "pickle, byte %llu", (unsigned long long)at);
            return -1;
        }
    }
}

const struct pickle_value *pickle_read(const unsigned char *bytes, uint64_t n_bytes, struct arena *arena,
                                       struct error *error)
{
    struct reader reader = {.begin = bytes, .at = bytes, .end = bytes + n_bytes, .arena = arena, .error = error};
    const struct pickle_value *value = NULL;
    if (run(&reader) == 0) {
        if (reader.at != reader.end)
            damaged(&reader, "pickle: there is more behind its end");
        else if (reader.stack.n != 1 || reader.marks.n)
            damaged(&reader, "pickle: it is not one value");
        else
            value = reader.stack.list[0];
    }
    free(reader.stack.list);
    free(reader.memo.list);
    free(reader.marks.list);
    return value;
}
