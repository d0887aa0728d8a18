/* What NumPy's functions in a pickle do: types and arrays made of values. The formats are those of numpy/_core/src/multiarray,
 * array_reduce() and arraydescr_reduce(). Pure; any thread. Each fails with INVALID_ARGUMENT or DATA_LOSS. */
#ifndef CLI_PICKLE_ARRAY_H
#define CLI_PICKLE_ARRAY_H

#include "base/arena.h"
#include "base/error.h"
#include "pickle_value.h"

/* function(*arguments): numpy.dtype('f4', False, True), _reconstruct(numpy.ndarray, (0,), b'b'), _frombuffer(bytes, dtype,
 * shape, 'C'). Fills in `result`. */
int pickle_array_call(const struct pickle_value *function, const struct pickle_value *arguments, struct arena *arena,
                      struct pickle_value *result, struct error *error);

/* target.__setstate__(state) of a dtype, (3, '<', None, None, None, -1, -1, 0), and of an array, (1, shape, dtype, is_fortran,
 * bytes). */
int pickle_array_set_state(struct pickle_value *target, const struct pickle_value *state, struct arena *arena,
                           struct error *error);

#endif
