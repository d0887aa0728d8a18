/* Writes shards of activations that Python's pickle.load() makes {layer: [{"sample_idx", "activation", "shape",
 * "text_preview"}]} of: protocol 4, NumPy arrays as NumPy itself reduces them, names that NumPy 1 and 2 know. Streaming: nothing
 * is kept. One thread a writer. */
#ifndef CLI_PICKLE_WRITER_H
#define CLI_PICKLE_WRITER_H

#include "base/error.h"
#include "pickle_shard.h"

struct pickle_sink {
    int (*write)(void *data, const void *bytes, size_t n_bytes, struct error *error);
    void *data;
};

/* In this order: begin, for each layer layer_begin, its entries, layer_end; end. Fail as write does; an entry also with
 * UNIMPLEMENTED for an element type that NumPy alone does not know (DTYPE_NOT_IN_NUMPY). */
int pickle_writer_begin(const struct pickle_sink *sink, struct error *error);
int pickle_writer_layer_begin(const struct pickle_sink *sink, uint32_t layer, struct error *error);
int pickle_writer_entry(const struct pickle_sink *sink, const struct pickle_activation *activation, struct error *error);
int pickle_writer_layer_end(const struct pickle_sink *sink, struct error *error);
int pickle_writer_end(const struct pickle_sink *sink, struct error *error);

#endif
