/* Opcodes are those of pickletools; without a memo and without frames, both of which a reader does not need. */
#include "pickle_writer.h"

#include <string.h>

struct piece { /* of an entry: small, arrays go past it */
    unsigned char bytes[4096];
    size_t n;
};

enum { MAX_SHORT_TEXT_BYTES = 64 };

static void put_bytes(struct piece *piece, const void *bytes, size_t n)
{
    memcpy(piece->bytes + piece->n, bytes, n);
    piece->n += n;
}

static void put_code(struct piece *piece, unsigned char opcode)
{
    put_bytes(piece, &opcode, 1);
}

static void put_number(struct piece *piece, uint64_t number, unsigned n_bytes)
{
    for (unsigned i = 0; i < n_bytes; i++)
        put_code(piece, (unsigned char)(number >> (8 * i)));
}

/* LONG1 of eight bytes: what is written is below 2^63. */
static void put_int(struct piece *piece, uint64_t number)
{
    put_code(piece, 0x8a);
    put_code(piece, 8);
    put_number(piece, number, 8);
}

static void put_text(struct piece *piece, const char *text)
{
    put_code(piece, 0x8c); /* SHORT_BINUNICODE */
    put_code(piece, (unsigned char)strnlen(text, MAX_SHORT_TEXT_BYTES));
    put_bytes(piece, text, strnlen(text, MAX_SHORT_TEXT_BYTES));
}

static void put_function(struct piece *piece, const char *module, const char *name)
{
    put_text(piece, module);
    put_text(piece, name);
    put_code(piece, 0x93); /* STACK_GLOBAL */
}

static void put_shape(struct piece *piece, const struct pickle_array *array)
{
    put_code(piece, '(');
    for (uint32_t d = 0; d < array->rank; d++)
        put_int(piece, array->shape[d]);
    put_code(piece, 't');
}

/* numpy.dtype('f4', False, True), with the state (3, '<', None, None, None, -1, -1, 0). */
static void put_dtype(struct piece *piece, const char *code)
{
    static const unsigned char flags[] = {0x89, 0x88, 0x87, 'R'}, nothing[] = {'N', 'N', 'N'};
    static const unsigned char sizes[] = {'J', 0xFF, 0xFF, 0xFF, 0xFF, 'J', 0xFF, 0xFF, 0xFF, 0xFF, 'K', 0, 't', 'b'};
    put_function(piece, "numpy", "dtype");
    put_text(piece, code);
    put_bytes(piece, flags, sizeof flags);
    put_bytes(piece, "(K\3", 3);
    put_text(piece, code[1] == '1' ? "|" : "<");
    put_bytes(piece, nothing, sizeof nothing);
    put_bytes(piece, sizes, sizeof sizes);
}

static const char *numpy_code(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BOOL:
        return "b1";
    case DTYPE_U8:
        return "u1";
    case DTYPE_I8:
        return "i1";
    case DTYPE_I16:
        return "i2";
    case DTYPE_U16:
        return "u2";
    case DTYPE_F16:
        return "f2";
    case DTYPE_I32:
        return "i4";
    case DTYPE_U32:
        return "u4";
    case DTYPE_F32:
        return "f4";
    case DTYPE_I64:
        return "i8";
    case DTYPE_U64:
        return "u8";
    case DTYPE_F64:
        return "f8";
    case DTYPE_C64:
        return "c8";
    default:
        return NULL;
    }
}

static int write_piece(const struct pickle_sink *sink, struct piece *piece, struct error *error)
{
    size_t n = piece->n;
    piece->n = 0;
    return sink->write(sink->data, piece->bytes, n, error);
}

/* --- a shard -------------------------------------------------------------------------------------------------------- */

int pickle_writer_begin(const struct pickle_sink *sink, struct error *error)
{
    return sink->write(sink->data, "\x80\x04}", 3, error);
}

int pickle_writer_layer_begin(const struct pickle_sink *sink, uint32_t layer, struct error *error)
{
    struct piece piece = {.n = 0};
    put_int(&piece, layer);
    put_code(&piece, ']');
    return write_piece(sink, &piece, error);
}

int pickle_writer_entry(const struct pickle_sink *sink, const struct pickle_activation *activation, struct error *error)
{
    struct piece piece = {.n = 0};
    const struct pickle_array *array = activation->array;
    const char *code = numpy_code(array->dtype);
    if (!code)
        return fail(error, ERROR_UNIMPLEMENTED, "DTYPE_NOT_IN_NUMPY",
                    "layer %u, sample %u: NumPy has no type %s of its own; pickles of it need a package to be read",
                    (unsigned)activation->layer, (unsigned)activation->sample, dtype_name(array->dtype));
    put_bytes(&piece, "}(", 2);
    put_text(&piece, "sample_idx");
    put_int(&piece, activation->sample);
    put_text(&piece, "activation");
    put_function(&piece, "numpy.core.multiarray", "_reconstruct");
    put_function(&piece, "numpy", "ndarray");
    put_bytes(&piece,
              "K\0\x85"
              "C\1b\x87R(K\1",
              11); /* ((0,), b'b'), called; its state begins */
    put_shape(&piece, array);
    put_dtype(&piece, code);
    put_code(&piece, array->is_fortran ? 0x88 : 0x89);
    put_code(&piece, 0x8e); /* BINBYTES8 */
    put_number(&piece, array->n_bytes, 8);
    if (write_piece(sink, &piece, error) || (array->n_bytes && sink->write(sink->data, array->bytes, array->n_bytes, error)))
        return -1;
    put_bytes(&piece, "tb", 2);
    put_text(&piece, "shape");
    put_shape(&piece, array);
    put_text(&piece, "text_preview");
    put_code(&piece, 'X');
    put_number(&piece, activation->preview_bytes, 4);
    if (write_piece(sink, &piece, error) ||
        (activation->preview_bytes && sink->write(sink->data, activation->preview, activation->preview_bytes, error)))
        return -1;
    put_bytes(&piece, "ua", 2);
    return write_piece(sink, &piece, error);
}

int pickle_writer_layer_end(const struct pickle_sink *sink, struct error *error)
{
    return sink->write(sink->data, "s", 1, error);
}

int pickle_writer_end(const struct pickle_sink *sink, struct error *error)
{
    return sink->write(sink->data, ".", 1, error);
}
