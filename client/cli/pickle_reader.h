/* Reads a pickle of Python, protocol 4 or 5, without running anything: it knows the opcodes of numbers, texts, bytes, lists,
 * tuples, dicts and NumPy's arrays of numbers, and the four functions by which NumPy makes arrays, as things that it does
 * itself. Everything else is refused. Pure; any thread; never recursive. */
#ifndef CLI_PICKLE_READER_H
#define CLI_PICKLE_READER_H

#include "base/arena.h"
#include "base/error.h"
#include "pickle_value.h"

/* Values in one pickle, and how many of them wait on the stack or in the memo. */
enum { PICKLE_MAX_VALUES = 1 << 24 };

/* The value before STOP, which is the last byte. Values are the arena's and point into `bytes`. Fails with DATA_LOSS where
 * the pickle ends too early or disagrees with itself, INVALID_ARGUMENT (PICKLE_REFUSED) where it needs what is not known,
 * RESOURCE_EXHAUSTED where it has too many values; the message tells the byte. */
const struct pickle_value *pickle_read(const unsigned char *bytes, uint64_t n_bytes, struct arena *arena,
                                       struct error *error);

#endif
