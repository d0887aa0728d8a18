/* header -> sink (batched writes) -> out_file. */
#include "safetensors_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/json.h"
#include "base/memory.h"
#include "out_file.h"
#include "resolve/safetensors.h"

/* --- header --- */

enum { LENGTH_BYTES = 8, DATA_ALIGN = 8 };

char *safetensors_writer_header(const struct report_json_tensor *tensors, size_t n_tensors, size_t *length,
                                struct error *error)
{
    struct json_writer json = {.escapes_least = true};
    uint64_t offset = 0;
    json_write_open(&json, '{');
    json_write_key(&json, "__metadata__"); /* transformers refuses files that do not name a framework */
    json_write_open(&json, '{');
    json_put_text(&json, "format", "pt");
    json_write_close(&json, '}');
    for (size_t i = 0; i < n_tensors; i++) {
        json_write_key_bytes(&json, tensors[i].name, tensors[i].name_length);
        json_write_open(&json, '{');
        json_put_text(&json, "dtype", tensors[i].dtype);
        json_put_open(&json, "shape", '[');
        for (size_t d = 0; d < tensors[i].rank; d++)
            json_write_u64(&json, tensors[i].shape[d]);
        json_write_close(&json, ']');
        json_put_open(&json, "data_offsets", '[');
        json_write_u64(&json, offset);
        json_write_u64(&json, offset + tensors[i].bytes);
        json_write_close(&json, ']');
        json_write_close(&json, '}');
        offset += tensors[i].bytes;
    }
    json_write_close(&json, '}');
    size_t padded = (json.length + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    if (padded > SAFETENSORS_MAX_HEADER_BYTES) {
        free(json.text);
        fail(
            error, ERROR_INVALID_ARGUMENT, "HEADER_TOO_LARGE",
            "the header of %zu tensors takes %zu bytes, and a safetensors file may have %d; write fewer tensors to one file",
            n_tensors, padded, SAFETENSORS_MAX_HEADER_BYTES);
        return NULL;
    }
    char *header = memory_alloc(LENGTH_BYTES + padded);
    for (int i = 0; i < LENGTH_BYTES; i++)
        header[i] = (char)((uint64_t)padded >> 8 * i);
    memcpy(header + LENGTH_BYTES, json.text, json.length);
    memset(header + LENGTH_BYTES + json.length, ' ', padded - json.length);
    free(json.text);
    *length = LENGTH_BYTES + padded;
    return header;
}

/* --- sink --- */

enum { SINK_PIECES = 256, SINK_BATCH_BYTES = 16 << 20 };

struct sink {
    const struct out_file *out;
    bool (*stopped)(void);
    struct iovec pieces[SINK_PIECES];
    int n_pieces;
    size_t batch_bytes;
};

static int flush_sink(struct sink *sink, struct error *error)
{
    struct iovec *piece = sink->pieces;
    while (sink->n_pieces) {
        if (sink->stopped && sink->stopped())
            return fail(error, ERROR_CANCELLED, "INTERRUPTED", "writing %s was interrupted", sink->out->shown);
        ssize_t written = writev(sink->out->fd, piece, sink->n_pieces);
        if (written < 0 && errno != EINTR)
            return fail_errno(error, errno, "cannot write %s", sink->out->shown);
        size_t count = written > 0 ? (size_t)written : 0; /* to be dropped from the front */
        while (sink->n_pieces && count >= piece->iov_len) {
            count -= piece->iov_len;
            piece++;
            sink->n_pieces--;
        }
        if (sink->n_pieces) {
            piece->iov_base = (char *)piece->iov_base + count;
            piece->iov_len -= count;
        }
    }
    sink->batch_bytes = 0;
    return 0;
}

static int put_bytes(struct sink *sink, const void *data, uint64_t bytes, struct error *error)
{
    const char *at = data;
    while (bytes) {
        size_t room = SINK_BATCH_BYTES - sink->batch_bytes;
        size_t taken = bytes < room ? (size_t)bytes : room;
        sink->pieces[sink->n_pieces++] = memory_iovec(at, taken);
        sink->batch_bytes += taken;
        at += taken;
        bytes -= taken;
        if ((sink->n_pieces == SINK_PIECES || sink->batch_bytes == SINK_BATCH_BYTES) && flush_sink(sink, error) < 0)
            return -1;
    }
    return 0;
}

struct strided_sink {
    struct sink *sink;
    struct error *error;
};

/* A piece is gone when the next one comes. */
static int put_piece(void *data, const void *piece, size_t bytes)
{
    const struct strided_sink *target = data;
    return put_bytes(target->sink, piece, bytes, target->error) < 0 ? -1 : flush_sink(target->sink, target->error);
}

static int put_tensor(struct sink *sink, const struct report_json_tensor *tensor, struct error *error)
{
    const struct tensor_bytes elements = report_json_elements(tensor);
    struct strided_sink target = {sink, error};
    return tensor->strides ? tensor_bytes_walk(&elements, put_piece, &target)
                           : put_bytes(sink, tensor->data, tensor->bytes, error);
}

static int write_all(const struct out_file *out, const struct report_json_tensor *tensors, size_t n_tensors,
                     bool (*stopped)(void), struct error *error)
{
    struct sink sink = {.out = out, .stopped = stopped};
    size_t length;
    char *header = safetensors_writer_header(tensors, n_tensors, &length, error);
    int status = header ? put_bytes(&sink, header, length, error) : -1;
    for (size_t i = 0; status == 0 && i < n_tensors; i++)
        status = put_tensor(&sink, &tensors[i], error);
    if (status == 0)
        status = flush_sink(&sink, error);
    free(header);
    return status;
}

/* --- the call --- */

int safetensors_writer_write(const char *path, const struct report_json_tensor *tensors, size_t n_tensors,
                             bool (*stopped)(void), struct error *error)
{
    struct out_file out;
    int status = out_file_open(&out, path, error);
    if (status == 0)
        status = write_all(&out, tensors, n_tensors, stopped, error);
    if (status == 0)
        status = out_file_commit(&out, error);
    out_file_close(&out);
    return status;
}
